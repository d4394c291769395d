"""`tidelock profile`, and `tidelock plan` of a pipeline: what they refuse before Spark starts, what they tell."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from tests.unit.cli.homes import make_home

from tidelock.cli import main
from tidelock.cli.commands import plan_pipeline, profile

JOB = """
import tidelock
flow = tidelock.Pipeline("trending")

@flow.source
def numbers(spark): ...

@flow.operator
def named(numbers): ...

@flow.operator(mode="update")
def counts(named): ...

@flow.sink
def store(counts, epoch): ...
"""


@pytest.fixture(autouse=True)
def no_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory with a pipeline in it, where Spark must not be started."""

    @contextmanager
    def session(*asked: Any, **more: Any) -> Iterator[None]:
        pytest.fail("Spark was started")
        yield

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    monkeypatch.setattr(plan_pipeline, "command_session", session)
    monkeypatch.setattr(profile, "command_session", session)
    (tmp_path / "jobs.py").write_text(JOB)
    (tmp_path / "file").touch()


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What a command says that cannot be done."""
    assert main(list(words)) == 2
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    return said.err


@pytest.mark.parametrize("command", ["plan", "profile"])
@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("--out /nonexist/x.svg", "/nonexist/x.svg cannot be written: there is no directory /nonexist"),
        ("--out .", "cannot be written: it is a directory"),
        ("--out file/x", "cannot be written: there is no directory file"),
        ("--cache redis://a,b/0/x", "sentinel"),
        ("--cache redis://h/zero", "redis://h/zero"),
    ],
)
def test_places_that_cannot_be_are_told_before_spark_starts(
    capsys: pytest.CaptureFixture[str], command: str, options: str, told: str
) -> None:
    assert told in refused(capsys, command, "jobs.py", *options.split())


@pytest.mark.parametrize("home", ["nothere", "file"])
def test_a_history_that_is_none_is_told(capsys: pytest.CaptureFixture[str], home: str) -> None:
    assert "is not the home of a pipeline" in refused(capsys, "profile", "jobs.py", "--history", home)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("--apply --home nothere", "nothere is not the home of a pipeline"),
        ("--home file", "file cannot be a home, file exists"),
        ("--home file/home", "file/home cannot be a home, not a directory"),
        ("--budget 0.1", "trending.topology.json is not JSON"),
        ("--budget 0.1 --topology .", "the topology file . cannot be read: Is a directory"),
    ],
)
def test_a_plan_that_cannot_be_made_is_told_before_spark_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: str, told: str
) -> None:
    (tmp_path / "trending.topology.json").write_text("{")
    assert told in refused(capsys, "plan", "jobs.py", *options.split())
    assert not (tmp_path / "nothere").exists()


def test_a_plan_for_a_home_in_use_is_told_before_spark_starts(capsys: pytest.CaptureFixture[str]) -> None:
    with make_home(Path("home")).held():
        assert "is in use by process" in refused(capsys, "plan", "jobs.py", "--apply", "--home", "home")


def test_attributes_that_could_not_be_kept_are_not_measured(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    told = "trending.topology.json cannot be written: this user may not do that"
    assert told in refused(capsys, "plan", "jobs.py", "--budget", "0.1")


@pytest.mark.parametrize("command", ["plan", "profile", "run"])
@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("foo:bar", "no coordination backend for 'foo:bar'"),
        ("zookeeper://:pw", "':pw' is not a host and its port"),
    ],
)
def test_a_wrong_tree_is_told_before_spark_starts(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    url: str,
    told: str,
) -> None:
    monkeypatch.setenv("TIDELOCK_COORDINATOR", url)
    monkeypatch.setenv("JAVA_HOME", "/nonexistent")
    (tmp_path / "jobs.py").write_text(f"{JOB}\nflow.publish('named', subject='a.name')")
    assert told in refused(capsys, command, "jobs.py")


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ("flow.publish('named', subject='a', shared='foo://x')", "no log store for 'foo://x'"),
        ("flow.subscribe('numbers.other', home='missing')", "missing is not the home of a pipeline"),
        (
            "flow.subscribe('numbers.other', home='there')",
            "does not publish numbers.other: it publishes numbers.named",
        ),
    ],
)
def test_places_of_other_jobs_are_looked_at_before_spark_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: str, told: str
) -> None:
    make_home(tmp_path / "there")
    after = "\n@flow.sink\ndef keep(other): ...\n" if "subscribe" in more else "\n"
    (tmp_path / "jobs.py").write_text(f"{JOB}\n{more}{after}")
    assert told in refused(capsys, "profile", "jobs.py")


# -- what is told while it is measured


def test_a_pipe_gets_a_line_for_each_step() -> None:
    page = io.StringIO()
    with profile._steps(Console(file=page, width=20), quiet=False) as tell:
        tell("this machine: how long a restart takes")
        tell("8 epochs of counts")
    assert page.getvalue().splitlines() == [
        "measuring this machine: how long a restart takes",
        "measuring 8 epochs of counts",
    ]


def test_nothing_is_told_where_that_was_asked() -> None:
    page = io.StringIO()
    with profile._steps(Console(file=page), quiet=True) as tell:
        tell("8 epochs of counts")
    assert page.getvalue() == ""
