"""The command line as such: what it refuses, what it answers with, and how fast it starts."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tidelock.cli import main
from tidelock.cli.exits import exit_code
from tidelock.credentials import taken
from tidelock.errors import BackendUnavailable, InternalError, LogNotFound


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("", "COMMAND"),
        ("swim", "invalid choice: 'swim'"),
        ("log", "QUESTION"),
        ("log show", "URL"),
        ("log show x --last -1", "at least 0"),
        ("demo --epochs 4", "'4' is not a whole number of at least 5"),
        ("demo --rows many", "'many' is not a whole number of at least 1"),
        ("demo --seed blue", "invalid int value: 'blue'"),
    ],
)
def test_a_wrong_command_line_is_refused(line: str, complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(line.split())
    assert exit_.value.code == 2
    assert complaint in capsys.readouterr().err


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(["--version"])
    assert exit_.value.code == 0
    assert capsys.readouterr().out.startswith("tidelock ")


def test_the_help_loads_nothing_heavy() -> None:
    script = "import sys; from tidelock.cli import main\ntry: main(['--help'])\nfinally: print(*sys.modules)"
    # What other tests give to Spark's Python processes is none of its business.
    plain = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True, env=plain)
    assert "demo" in done.stdout
    loaded = {name.partition(".")[0] for name in done.stdout.splitlines()[-1].split()}
    assert not loaded & {"pyspark", "py4j", "pyarrow", "pandas", "rich"}


# -- failures


def raising(error: BaseException) -> int:
    def run() -> int:
        raise error

    return exit_code(run)


@pytest.mark.parametrize(
    "error",
    [LogNotFound("no log there"), BackendUnavailable("no answer"), PermissionError(13, "Permission denied", "/x")],
)
def test_what_could_not_be_done_is_told_in_one_line(error: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    assert raising(error) == 2
    assert capsys.readouterr().err == f"tidelock: {error}\n"


def test_a_defect_shows_its_stack(capsys: pytest.CaptureFixture[str]) -> None:
    assert raising(InternalError("two and two")) == 70
    told = capsys.readouterr().err
    assert "Traceback" in told
    assert told.endswith("tidelock: a defect of Tidelock, please report it: two and two\n")


def test_an_interruption_has_its_own_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert raising(KeyboardInterrupt()) == 130
    assert capsys.readouterr().err == "tidelock: interrupted\n"


def test_a_bug_of_another_kind_is_not_swallowed() -> None:
    with pytest.raises(ZeroDivisionError):
        raising(ZeroDivisionError())


@pytest.mark.parametrize("question", ["show", "verify"])
def test_a_log_that_is_not_there_is_one_line(
    question: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["log", question, f"file:{tmp_path}/nothing"]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith(f"tidelock: there is no epoch log at file:{tmp_path}/nothing")
    assert told.err.count("\n") == 1


# -- passwords


@pytest.mark.parametrize(
    "line",
    [
        "status --home x redis://me:sesame99@x",
        "status --home x redis://me:ses/ame99@x",
        "redis://me:sesame99@x",
        "log show redis://me:sesame99@x --last redis://me:sesame99@y",
        "run x.py --home x --log words=redis://me:sesame99@x words=redis://me:sesame99@y",
        "run x.py --home x --conf redis://me:sesame99@x",
    ],
)
def test_a_refused_command_line_is_told_without_passwords(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(line.split())
    told = capsys.readouterr().err
    assert "me:***@" in told
    assert not re.search("ses|ame99", told)


@pytest.mark.parametrize("password", ["[sesame99]", "se[same99", "ses/ame99", "ses?ame99", "sesame99@[host"])
@pytest.mark.parametrize(
    "words",
    [
        ["log", "show", "redis://{}"],
        ["log", "verify", "kafka://{}"],
        ["subjects", "--coordinator", "zookeeper://{}"],
    ],
)
def test_a_url_that_cannot_be_read_is_told_without_its_password(
    words: list[str], password: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The port is nobody's: what is no URL is told at once, anything else is not there."""
    assert main([word.format(f"me:{password}@localhost:1/0/x?timeout=0.1") for word in words]) == 2
    told = capsys.readouterr().err
    assert not re.search("ses|ame99", told)


def test_the_stack_of_a_defect_has_no_passwords(capsys: pytest.CaptureFixture[str]) -> None:
    taken("redis://me:sesame99@h/0")
    assert raising(InternalError("no sesame99")) == 70
    told = capsys.readouterr().err
    assert "Traceback" in told
    assert "sesame99" not in told


@pytest.mark.parametrize("every", ["0", "-1", "nan", "inf", "soon"])
def test_epochs_that_are_cut_take_some_time(every: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["cut", "kafka://h/t", "--schema", "id long", "--subject", "s", "--log", "/x", "--every", every])
    assert f"argument --every: {every!r} is not a number of seconds above 0" in capsys.readouterr().err
