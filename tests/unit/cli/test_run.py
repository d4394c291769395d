"""`tidelock run`: its options, what it shows, and how it ends; the run itself is played."""

import io
import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from tests.unit.cli.homes import event, status

from tidelock.cli import main
from tidelock.cli import run as command
from tidelock.cli.exits import INTERRUPTED
from tidelock.cli.run_screens import LineScreen, drawing, screen_for
from tidelock.cli.sessions import _logged_to, _output_to
from tidelock.cli.signals import Signals
from tidelock.errors import BatchFailed, Fenced
from tidelock.runtime.events import Event
from tidelock.runtime.home import Home

JOB = """
import tidelock
flow = tidelock.Pipeline("trending")

@flow.source
def numbers(spark): ...

@flow.sink
def store(numbers, epoch): ...
"""


class FakeRun:
    """A run that takes a step at every look, and ends after the last."""

    def __init__(
        self, home: Home, options: dict[str, Any], steps: Sequence[Any], failure: Exception | None
    ) -> None:
        self.home, self.options = home, options
        self.stops: list[bool] = []
        self._steps, self._failure = iter(steps), failure
        options["listener"](Event(1_700_000_000.0, "run started", None, "trending, 2 segments"))

    def wait(self, timeout: float) -> bool:
        step = next(self._steps, None)
        if step is not None:
            step()
            return False
        self.home.put_document("status", status("failed" if self._failure else "stopped"))
        if self._failure:
            raise self._failure
        return True

    def stop(self, *, drain: bool) -> None:
        self.stops.append(drain)


class Stage:
    """Answers `tidelock run` with a run that is played, and keeps what it was asked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._patch = monkeypatch
        self.session: dict[str, Any] = {}
        self.runs: list[FakeRun] = []

    def play(self, *options: str, steps: Sequence[Any] = (), failure: Exception | None = None) -> int:
        @contextmanager
        def session(name: str, settings: Any, **more: Any) -> Iterator[None]:
            self.session = {"name": name, "settings": dict(settings), **more}
            yield

        def make(pipeline: Any, spark: None, home: Home, **options: Any) -> FakeRun:
            self.runs.append(FakeRun(home, options, steps, failure))
            return self.runs[-1]

        self._patch.setattr(command, "command_session", session)
        self._patch.setattr(command, "Run", make)
        return main(["run", "jobs.py", *options])


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    (tmp_path / "jobs.py").write_text(JOB)
    return Stage(monkeypatch)


# -- options


def test_the_options_reach_the_session_and_the_run(stage: Stage, tmp_path: Path) -> None:
    given = "--epochs 7 --plan each --backup file:/b --log file:/l --master local[1] --conf a=1 --conf b=x=y"
    assert stage.play(*given.split()) == 0
    assert stage.session["settings"] == {"a": "1", "b": "x=y"}
    assert stage.session["master"] == "local[1]"
    (run,) = stage.runs
    assert run.home.root == tmp_path / "trending.tidelock"
    assert run.home.log("named") == "file:/l/named"
    assert (run.options["last_epoch"], run.options["plan"], run.options["backup"]) == (6, "each", "file:/b")


def test_logs_of_single_nodes_are_kept_elsewhere(stage: Stage) -> None:
    assert stage.play("--log", "file:/l", "--log", "words=redis://h/0/job?replicas=1") == 0
    (run,) = stage.runs
    assert run.home.log("words") == "redis://h/0/job/words?replicas=1"
    assert run.home.log("counts") == "file:/l/counts"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (("file:/l", "file:/m"), "two places for all logs"),
        (("words=file:/l", "words=/m"), "two places for the log of words"),
    ],
)
def test_two_places_for_one_log(
    stage: Stage, capsys: pytest.CaptureFixture[str], given: tuple[str, str], told: str
) -> None:
    assert stage.play("--log", given[0], "--log", given[1]) != 0
    assert told in capsys.readouterr().err


def test_nothing_said_means_for_ever_and_the_homes_own_plan(stage: Stage, tmp_path: Path) -> None:
    assert stage.play("--home", "elsewhere") == 0
    (run,) = stage.runs
    assert run.home.root == tmp_path / "elsewhere"
    assert (run.options["last_epoch"], run.options["plan"], run.options["backup"]) == (None, None, None)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ("--epochs 0", "'0' is not a whole number of at least 1"),
        ("--conf spark.x", "'spark.x' is not a setting like"),
        ("--log words=", "'words=' is not a URL, nor one for a node like words=file:/path"),
    ],
)
def test_wrong_options_are_refused(options: str, complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["run", "jobs.py", *options.split()])
    assert complaint in capsys.readouterr().err


def test_a_home_in_use_is_told_before_spark_is_started(
    stage: Stage, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Home(tmp_path / "busy").held():
        assert stage.play("--home", "busy") == 2
    assert f"is in use by process {os.getpid()}" in capsys.readouterr().err
    assert not stage.session


# -- how it ends


def test_a_stopped_run_is_good(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    assert stage.play() == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[1:] == ["run", "started", "trending,", "2", "segments"]
    assert lines[1] == "stopped  trending: every epoch up to 7 has gone through everywhere"


def test_a_run_that_was_given_up_is_bad_and_tells_its_story(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    assert stage.play(failure=BatchFailed("segment store was given up: no such word")) == 1
    told = capsys.readouterr()
    assert told.err == "tidelock: segment store was given up: no such word\n"
    assert told.out.splitlines()[-1].startswith("failed  trending")


def test_anything_else_is_impossible(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    assert stage.play("--json", failure=Fenced("a newer run owns it")) == 2
    told = capsys.readouterr()
    assert told.err == "tidelock: a newer run owns it\n"
    assert json.loads(told.out.splitlines()[-1])["status"]["state"] == "failed"


def test_machines_get_events_and_the_last_status_and_nothing_else(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    assert stage.play("--json", steps=[lambda: print("from the user's code")]) == 0
    told = capsys.readouterr()
    first, last = map(json.loads, told.out.splitlines())
    assert first["event"]["kind"] == "run started"
    assert last["status"] == status("stopped")
    assert told.err == "from the user's code\n"


# -- signals


def test_the_first_interrupt_drains_the_second_does_not(stage: Stage) -> None:
    def interrupt() -> None:
        signal.raise_signal(signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    assert stage.play(steps=[interrupt, lambda: None, interrupt, lambda: None]) == 0
    assert stage.runs[0].stops == [True, False]
    assert signal.getsignal(signal.SIGINT) is before


def test_a_polite_kill_does_not_wait_for_the_logs(stage: Stage) -> None:
    assert stage.play(steps=[lambda: signal.raise_signal(signal.SIGTERM), lambda: None]) == 0
    assert stage.runs[0].stops == [False]


def test_the_third_interrupt_leaves_at_once() -> None:
    left: list[int] = []
    with Signals(left.append) as signals:
        assert signals.news() is None
        for _ in range(3):
            signal.raise_signal(signal.SIGINT)
    assert left == [INTERRUPTED]
    assert signals.news() is False


# -- screens


def test_a_terminal_sees_segments_and_events() -> None:
    page = io.StringIO()
    Console(file=page, width=140, highlight=False).print(drawing(status()))
    text = page.getvalue()
    assert "trending  running  epoch 7 has gone through everywhere" in text
    assert "restarting" in text
    assert "run started" in text
    assert "Ctrl-C stops it when all logs are read" in text
    page.truncate(0)
    Console(file=page, width=140).print(drawing(status("stopped", epoch=-1)))
    assert "Ctrl-C" not in page.getvalue()
    assert "has gone through" not in page.getvalue()


def test_a_live_table_ends_with_the_last_word(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    with screen_for(as_json=False) as screen:
        assert screen.moves
        screen.tell(Event(**event("run started")))
        screen.show(status())
        screen.end(status("failed"))
    assert "every epoch up to 7 has gone through everywhere" in capsys.readouterr().out


def test_a_pipe_gets_a_line_for_each_event() -> None:
    page = io.StringIO()
    lines = LineScreen(Console(file=page, width=20))
    lines.show(status())
    lines.tell(Event(**event("segment failed", "store", "in epoch 7: a long story")))
    assert page.getvalue().splitlines()[0].endswith("segment failed     store: in epoch 7: a long story")


# -- what Spark says


def test_what_a_child_process_says_while_it_starts_goes_to_the_file(tmp_path: Path, capfd: Any) -> None:
    with _output_to(tmp_path / "spark.log"):
        subprocess.run("echo to output; echo to error >&2", shell=True, check=True)
    subprocess.run("echo later", shell=True, check=True)
    assert (tmp_path / "spark.log").read_text() == "to output\nto error\n"
    assert capfd.readouterr() == ("later\n", "")


def test_what_py4j_logs_goes_to_the_file(tmp_path: Path, capfd: Any) -> None:
    with _logged_to(tmp_path / "spark.log"):
        logging.getLogger("py4j.clientserver").error("a proxy failed")
        logging.getLogger("py4j.clientserver").debug("nothing of interest")
    assert (tmp_path / "spark.log").read_text() == "a proxy failed\n"
    assert capfd.readouterr() == ("", "")
