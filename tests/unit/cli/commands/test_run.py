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
from tidelock.cli.commands import run as command
from tidelock.cli.exits import INTERRUPTED
from tidelock.cli.pictures.progress import Goal, Meter
from tidelock.cli.pictures.run_screens import JsonScreen, LineScreen, Volume, drawing, screen_for
from tidelock.cli.sessions import _kept_interrupt, _logged_to, _output_to
from tidelock.errors import BatchFailed, Fenced
from tidelock.home.events import RunEvent
from tidelock.home.home import Home, Record
from tidelock.home.status import Status
from tidelock.pipeline.loading import load
from tidelock.running.signals import Signals

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
        options["listener"](RunEvent(1_700_000_000.0, "run started", None, "trending, 2 segments"))

    def wait(self, timeout: float) -> bool:
        step = next(self._steps, None)
        if step is not None:
            step()
            return False
        if self._failure:
            raise self._failure
        return True

    def status(self) -> Status:
        return Status.from_json(status("failed" if self._failure else "stopped"))

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
    assert run.options["accept_changes"] is False
    assert stage.play("--accept-changes") == 0
    assert stage.runs[1].options["accept_changes"] is True


def test_logs_of_single_nodes_are_kept_elsewhere(stage: Stage) -> None:
    assert stage.play("--log", "file:/l", "--log", "numbers=redis://h/0/job?replicas=1") == 0
    (run,) = stage.runs
    assert run.home.log("numbers") == "redis://h/0/job/numbers?replicas=1"
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


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("--plan plans.json", "there is no plan file plans.json"),
        ("--plan torn.json", "torn.json is not JSON"),
        ("--plan other.json", "counts"),
        ("--plan .", "the plan file . cannot be read: Is a directory"),
        ("--home jobs.py", "jobs.py cannot be a home, file exists: give --home a directory"),
        ("--home jobs.py/home", "jobs.py/home cannot be a home, not a directory"),
        ("--home of-another", "is the home of pipeline another, not of trending"),
        ("--log word=file:/l", "no source or operator of that name: there are: numbers"),
        ("--log numbers=reddis://h/0/l", "no log store for 'reddis://h/0/l/numbers'"),
        ("--log redis://h:port/0/l", "'h:port' is not a host and its port"),
        ("--cache redis://h/zero", "redis://h/zero"),
        ("--coordinator embedded:tree.db", "malformed URL"),
        ("--coordinator zookeeper:", "is not the URL of a ZooKeeper ensemble"),
        ("--coordinator tree.db", "no coordination backend for 'tree.db'"),
        ("--backup nowhere://x", "cannot hold a backup"),
        ("--budget 0.1 --topology none.json", "none.json"),
        ("--budget 0.1", "trending.topology.json is not JSON"),
        ("--home /proc/x", "/proc/x cannot be a home, no such file or directory"),
    ],
)
def test_what_is_wrong_is_told_before_spark_starts(
    stage: Stage, tmp_path: Path, capsys: pytest.CaptureFixture[str], options: str, told: str
) -> None:
    (tmp_path / "torn.json").write_text('{"segments": [')
    (tmp_path / "trending.topology.json").write_text('{"operators": [')
    (tmp_path / "other.json").write_text('{"segments": [{"operators": ["counts"]}]}')
    Home(tmp_path / "of-another").remember(Record("another", {}, {}, (), {}))
    before = sorted(tmp_path.rglob("*"))
    assert stage.play(*options.split()) == 2
    assert stage.session == {}
    output = capsys.readouterr().err
    assert told in output
    assert output.count("\n") == 1
    assert sorted(path for path in tmp_path.rglob("*") if path.suffix != ".pyc") == before


def test_a_home_that_keeps_its_plan_needs_no_attributes(stage: Stage, tmp_path: Path) -> None:
    nodes = load("jobs.py").topology()
    Home(tmp_path / "kept").remember(Record("trending", nodes.signature(), {}, (), {}))
    (tmp_path / "trending.topology.json").write_text('{"operators": [')
    assert stage.play("--budget", "0.1", "--home", "kept") == 0


@pytest.mark.parametrize("epoch", ["1 fortnight", "-3 seconds", "0 seconds", "soon", ""])
def test_a_wrong_interval_is_told_with_its_line(
    stage: Stage, tmp_path: Path, capsys: pytest.CaptureFixture[str], epoch: str
) -> None:
    (tmp_path / "jobs.py").write_text(JOB.replace('"trending"', f'"trending", epoch="{epoch}"'))
    assert stage.play() == 2
    assert stage.session == {}
    assert f"line 3: epoch='{epoch}' is not" in capsys.readouterr().err


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
    assert lines[0].startswith("starting Spark, ")
    assert lines[1].split()[1:] == ["run", "started", "trending,", "2", "segments"]
    assert lines[2] == "stopped  trending: every epoch up to 7 has gone through everywhere"


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


def test_a_signal_before_anything_runs_leaves_at_once() -> None:
    left: list[int] = []
    with Signals(left.append, running=False) as signals:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGTERM)
        assert left == [INTERRUPTED, 128 + signal.SIGTERM]
        signals.begun()
        signal.raise_signal(signal.SIGTERM)
    assert len(left) == 2
    assert signals.terminated


def test_a_session_leaves_the_meaning_of_interrupts_alone() -> None:
    before = signal.getsignal(signal.SIGINT)
    with _kept_interrupt():
        signal.signal(signal.SIGINT, lambda number, frame: None)
    assert signal.getsignal(signal.SIGINT) is before


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
    long = "in epoch 7: " + "a long story, " * 20 + "and its end"
    Console(file=page, width=60).print(drawing(status(events=[event("segment failed", "store", long)])))
    assert long.replace(" ", "") in "".join(page.getvalue().split()), "nothing of it is cut off"
    page.truncate(0)
    Console(file=page, width=140).print(drawing(status("stopped", epoch=-1)))
    assert "Ctrl-C" not in page.getvalue()
    assert "has gone through" not in page.getvalue()


def test_a_live_table_ends_with_the_last_word(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    with screen_for(as_json=False) as screen:
        assert screen.every == 0
        screen.tell(RunEvent(**event("run started")))
        screen.show(status())
        screen.end(status("failed"))
    assert "every epoch up to 7 has gone through everywhere" in capsys.readouterr().out


def test_a_live_table_says_how_far_it_is_and_what_it_waits_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    with screen_for(as_json=False, goal=Goal(last_epoch=20)) as screen:
        screen.show(status())
    assert "store 2 epochs behind, store is restarting, ends with epoch 20" in capsys.readouterr().out


def test_a_pipe_gets_a_line_for_each_event() -> None:
    page = io.StringIO()
    lines = LineScreen(Console(file=page, width=20), Meter(Goal()))
    lines.tell(RunEvent(**event("segment failed", "store", "in epoch 7: a long story")))
    lines.show(status())
    told, progress = page.getvalue().splitlines()
    assert told.endswith("segment failed     store: in epoch 7: a long story")
    assert "  epoch 7            " in progress
    assert " rows/s, " in progress


def test_quiet_lines_are_bad_news_only() -> None:
    page = io.StringIO()
    lines = LineScreen(Console(file=page, width=200), Meter(Goal()), Volume.QUIET)
    assert lines.every is None
    for kind in ("run started", "segment failed", "segment recovered", "gave up"):
        lines.tell(RunEvent(**event(kind, "store", "what happened")))
    lines.end(status("failed"))
    failed, gave_up, ended = page.getvalue().splitlines()
    assert "segment failed" in failed
    assert "gave up" in gave_up
    assert ended.startswith("failed  trending")


def test_verbose_lines_have_every_segment() -> None:
    page = io.StringIO()
    LineScreen(Console(file=page, width=20), Meter(Goal()), Volume.VERBOSE).show(status())
    (line,) = page.getvalue().splitlines()
    for segment in status()["segments"]:
        assert f"{segment['name']}" in line
    assert "s per batch" in line


def test_machines_get_progress_as_a_json_object_a_line() -> None:
    page = io.StringIO()
    screen = JsonScreen(page, Meter(Goal(last_epoch=9)))
    screen.show(status())
    progress = json.loads(page.getvalue())["progress"]
    assert (progress["epoch"], progress["last_epoch"]) == (7, 9)
    assert {"rows_per_second", "lag", "behind", "still"} <= progress.keys()


def test_a_run_that_waits_says_for_what() -> None:
    now = 0.0
    meter = Meter(Goal(last_epoch=20), clock=lambda: now)
    document = status()
    for segment in document["segments"]:
        segment.update(lag=0, state="running")
    newest = meter.read(document).newest
    now = 30.0
    told = meter.told(meter.read(document))
    assert told.endswith(f"no new data for 30 s: waits for {20 - newest} more epochs, up to 20")
    document["segments"][0]["epoch"] += 1
    document["segments"][-1]["lag"] = 1
    told = meter.told(meter.read(document))
    assert "no new data" not in told
    assert "1 epoch behind" in told
    assert "ends with epoch 20" in told


def still(goal: Goal, **changed: Any) -> str:
    """What is told of a pipeline whose segments stand at epoch 10 for half a minute."""
    now = 0.0
    meter = Meter(goal, clock=lambda: now)
    document = status()
    for segment in document["segments"]:
        segment.update(epoch=10, lag=0, state="running")
    document["segments"][0].update(changed)
    meter.read(document)
    now = 30.0
    return meter.told(meter.read(document))


@pytest.mark.parametrize("state", ["restarting", "paused", "starting"])
def test_a_segment_that_is_not_running_is_not_told_as_a_silent_source(state: str) -> None:
    told = still(Goal(), state=state)
    assert told.endswith(f"nothing behind, named is {state}")


@pytest.mark.parametrize(
    ("last_epoch", "told"),
    [
        (3, "nothing behind"),
        (10, "nothing behind, ends with epoch 10"),
        (11, "nothing behind, no new data for 30 s: waits for 1 more epoch, up to 11"),
    ],
)
def test_a_run_that_is_where_it_ends_waits_for_nothing(last_epoch: int, told: str) -> None:
    assert still(Goal(last_epoch=last_epoch)).endswith(told)


def test_before_the_first_epoch_nobody_knows_whether_there_is_data() -> None:
    now = 0.0
    meter = Meter(Goal(), clock=lambda: now)
    document = status()
    for segment in document["segments"]:
        segment.update(epoch=-1, lag=0, state="running")
    meter.read(document)
    now = 30.0
    assert meter.told(meter.read(document)).endswith("nothing behind, no first epoch yet, after 30 s")


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
