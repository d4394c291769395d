"""The command line as such: what it refuses, what it answers with, and how fast it starts."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tidelock.cli import main
from tidelock.cli.exits import exit_code
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
