"""The supervisor and starts that hang: queries are played, because what hangs is never code of Spark."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.waiting import eventually

from tidelock.epochs import Epoch, EpochRange
from tidelock.errors import BackendUnavailable
from tidelock.home.events import Events
from tidelock.home.home import Home, Record, SegmentRecord
from tidelock.pipeline.declaration import RunSettings
from tidelock.recovery import Policy
from tidelock.running.gates import Stopped
from tidelock.running.supervisor import Supervisor
from tidelock.spark.query.batches import Work
from tidelock.spark.query.listening import Losses

HANG_AFTER = 600.0
"""Nothing takes that long here; the clock is put forward when something hangs."""


class Clock:
    """A clock that goes, and can be put forward."""

    def __init__(self) -> None:
        self._ahead = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self._ahead

    def put_forward(self, seconds: float) -> None:
        self._ahead += seconds


class Query:
    """A query that does nothing until it is stopped."""

    def __init__(self, run: str) -> None:
        self.runId = run
        self.isActive = True

    def stop(self) -> None:
        self.isActive = False

    def exception(self) -> None:
        return None


@dataclass
class PlayedSegments:
    """Starts one segment, `only`, as ``prepare``, before its turn, and ``play`` say for each attempt."""

    play: Callable[[int, Any], Query]
    prepare: Callable[[int], object]
    turns: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(1))
    prepared: int = 0
    attempts: int = 0
    queries: list[Query] = field(default_factory=list)

    def __post_init__(self) -> None:
        quiet = SimpleNamespace(addListener=lambda _: None, removeListener=lambda _: None)
        self.spark = SimpleNamespace(streams=quiet)
        segment = SimpleNamespace(name="only", writes=None, is_head=True, operators=("only",), sink="only")
        self.cutting = SimpleNamespace(segments=[segment], segment=lambda _: segment)
        self.functions: dict[str, Any] = {}
        self.caches = SimpleNamespace(close=lambda _: True)

    def start(self, _segment: Any, _gate: Any, *, starting: Any, draining: bool = False) -> Query:
        self.prepared += 1
        self.prepare(self.prepared)
        with starting.turn(self.turns):
            self.attempts += 1
            return self.play(self.attempts, starting)

    def begin(self, starting: Any) -> Query:
        """What Spark does when it is asked to start a query."""
        query = Query(f"run {len(self.queries)}")
        self.queries.append(query)
        starting.begun(query)
        return query


@dataclass
class Played:
    """A supervisor in a thread of its own, in a home."""

    home: Home
    segments: PlayedSegments
    supervisor: Supervisor
    thread: threading.Thread
    clock: Clock

    def hangs(self) -> None:
        """Whatever is under way has been for longer than it may."""
        self.clock.put_forward(HANG_AFTER + 1)

    def kinds(self) -> list[str]:
        return [event["kind"] for event in self.home.events()]

    def texts(self, kind: str) -> list[str]:
        return [event["text"] for event in self.home.events() if event["kind"] == kind]

    def state(self) -> str:
        return self.supervisor.view.segments["only"].state.value

    def ends(self) -> None:
        self.thread.join(60)
        assert not self.thread.is_alive(), "the run has ended"


Script = Callable[[PlayedSegments, int, Any], Query]
Play = Callable[..., Played]


@pytest.fixture
def hanging() -> Iterator[threading.Event]:
    """What a start waits for that hangs; whatever hangs does not outlive the test."""
    made = threading.Event()
    yield made
    made.set()


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Play:
    monkeypatch.setattr("tidelock.running.supervisor.losses", lambda _: Losses(0, ()))
    monkeypatch.setattr("tidelock.running.supervisor.is_gone", lambda _: False)

    def begin(
        script: Script,
        prepare: Callable[[int], object] = lambda _: None,
        raised: list[BaseException] | None = None,
    ) -> Played:
        home = Home(tmp_path)
        home.remember(Record("job", {}, {}, (SegmentRecord("only", ("only",), (), None),), {}))
        segments = PlayedSegments(lambda attempt, starting: script(segments, attempt, starting), prepare)
        care = RunSettings(Policy(attempts=3, first_delay=0.0), None, HANG_AFTER, 1, 1.0)  # type: ignore[arg-type]
        clock = Clock()
        supervisor = Supervisor(segments, home, care, Events(home), clock=clock, last_words=0.0)  # type: ignore[arg-type]

        def run() -> None:
            try:
                supervisor.run()
            except Exception as failure:
                if raised is None:
                    raise
                raised.append(failure)

        thread = threading.Thread(target=run)
        thread.start()
        return Played(home, segments, supervisor, thread, clock)

    return begin


def test_a_start_that_hangs_is_cut_off_and_made_again(play: Play, hanging: threading.Event) -> None:
    woken: list[Query | None] = []

    def script(segments: PlayedSegments, attempt: int, starting: Any) -> Query:
        if attempt == 1:
            hanging.wait()
            with suppress(Stopped):
                segments.begin(starting)
            woken.append(segments.queries[-1])
            starting.check()
        return segments.begin(starting)

    run = play(script)
    eventually(lambda: run.segments.attempts == 1, "it has its turn")
    run.hangs()
    eventually(lambda: run.state() == "running", "the second one is up")
    hanging.set()
    eventually(lambda: woken, "the first one wakes up")
    assert run.texts("segment failed") == [f"while starting: its query was not up within {HANG_AFTER:g} s"]
    eventually(
        lambda: [query.isActive for query in run.segments.queries] == [True, False], "and its query is stopped"
    )
    run.supervisor.stop(drain=False)
    run.ends()
    assert run.segments.attempts == 2
    assert run.kinds().count("segment failed") == 1, "what was cut off is told once"
    assert not any(query.isActive for query in run.segments.queries)


def test_one_that_hangs_behind_its_query_is_stopped_there(play: Play, hanging: threading.Event) -> None:
    def script(segments: PlayedSegments, attempt: int, starting: Any) -> Query:
        query = segments.begin(starting)
        while attempt == 1 and query.isActive:
            hanging.wait(0.01)
        return query

    run = play(script)
    eventually(lambda: run.segments.queries, "its query is there")
    run.hangs()
    eventually(lambda: run.state() == "running", "the second one is up")
    assert [query.isActive for query in run.segments.queries] == [False, True]
    run.supervisor.stop(drain=True)
    run.ends()


def test_one_that_always_hangs_is_given_up_and_the_run_ends(play: Play, hanging: threading.Event) -> None:
    def script(_segments: PlayedSegments, _attempt: int, _starting: Any) -> Query:
        hanging.wait()
        raise Stopped("too late")

    run = play(script)
    for attempt in range(1, 4):
        eventually(lambda: run.segments.attempts == attempt, "it starts")  # noqa: B023
        run.hangs()
    run.ends()
    assert run.supervisor.view.state == "failed"
    (story,) = run.texts("gave up")
    assert "3 times in a row" in story and "was not up within" in story
    assert run.segments.turns.acquire(blocking=False), "nobody holds a turn"


@pytest.mark.parametrize("has_query", [True, False])
def test_a_stop_does_not_wait_for_one_that_hangs(play: Play, hanging: threading.Event, has_query: bool) -> None:
    def script(segments: PlayedSegments, _attempt: int, starting: Any) -> Query:
        query = segments.begin(starting) if has_query else Query("")
        while query.isActive:
            hanging.wait(0.01)
            if not has_query and hanging.is_set():
                raise Stopped("too late")
        return query

    run = play(script)
    eventually(lambda: run.segments.attempts == 1, "it starts")
    run.supervisor.stop(drain=False)
    run.ends()
    assert run.supervisor.view.state == "stopped"
    assert not any(query.isActive for query in run.segments.queries)


@pytest.mark.parametrize("wakes", [True, False])
def test_one_that_hangs_before_its_turn_is_cut_off_too(play: Play, hanging: threading.Event, wakes: bool) -> None:
    """As behind the lock of a log whose holder is stopped."""
    woken = threading.Event()

    def prepare(attempt: int) -> None:
        if attempt == 1:
            hanging.wait()
            woken.set()

    run = play(lambda segments, _, starting: segments.begin(starting), prepare)
    eventually(lambda: run.segments.prepared == 1, "it starts")
    run.hangs()
    eventually(lambda: run.state() == "running", "the second one is up")
    if wakes:
        hanging.set()
        eventually(woken.is_set, "the first one wakes up")
    assert run.texts("segment failed") == [f"while starting: its query was not up within {HANG_AFTER:g} s"]
    run.supervisor.stop(drain=False)
    run.ends()
    assert run.segments.attempts == len(run.segments.queries) == 1, "the first one has gone no further"


def test_a_stop_does_not_wait_for_one_that_hangs_before_its_turn(play: Play, hanging: threading.Event) -> None:
    run = play(lambda segments, _, starting: segments.begin(starting), lambda _: hanging.wait())
    eventually(lambda: run.segments.prepared == 1, "it starts")
    run.supervisor.stop(drain=True)
    run.ends()
    assert (run.supervisor.view.state, run.segments.queries) == ("stopped", [])


def test_a_query_that_comes_up_behind_a_stop_is_stopped(play: Play, hanging: threading.Event) -> None:
    def script(segments: PlayedSegments, _attempt: int, starting: Any) -> Query:
        hanging.wait()
        return segments.begin(starting)

    run = play(script)
    eventually(lambda: run.segments.attempts == 1, "it starts")
    run.supervisor.stop(drain=False)
    run.ends()
    hanging.set()
    eventually(lambda: [query.isActive for query in run.segments.queries] == [False], "it is stopped")


def test_what_shows_how_spark_is_does_not_end_a_run(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    run = play(lambda segments, _, starting: segments.begin(starting))
    eventually(lambda: run.state() == "running", "it is up")

    def away(_: Any) -> Losses:
        raise ConnectionError("nobody answers")

    monkeypatch.setattr("tidelock.running.supervisor.losses", away)
    eventually(lambda: run.texts("status failed"), "it is told")
    monkeypatch.setattr("tidelock.running.supervisor.losses", lambda _: Losses(0, ()))
    eventually(lambda: run.texts("status recovered"), "and that it is over")
    run.supervisor.stop(drain=True)
    run.ends()
    assert run.supervisor.view.state == "stopped"


def test_a_checkpoint_that_cannot_be_read_is_told_once_and_ends_nothing(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = play(lambda segments, _, starting: segments.begin(starting))
    eventually(lambda: run.state() == "running", "it is up")
    asked: list[int] = []

    def broken(_: Any, batch: int) -> bool:
        asked.append(batch)
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr("tidelock.running.supervisor.Checkpoint.is_committed", broken)
    gate = run.supervisor.attempts["only"].gate
    gate.enter(Work(EpochRange.single(Epoch(0)), (), (), "query", 0))
    gate.leave(None)
    for count in range(1, 4):
        eventually(lambda: len(asked) >= count, "it is read again")  # noqa: B023
        run.clock.put_forward(10)
    monkeypatch.setattr("tidelock.running.supervisor.Checkpoint.is_committed", lambda *_: True)
    eventually(lambda: run.supervisor.view.segments["only"].epoch == 0, "the commit is learnt of")
    (told,) = run.texts("status failed")
    assert "Input/output error" in told
    assert run.texts("status recovered") == ["the checkpoints can be read again"]
    run.supervisor.stop(drain=True)
    run.ends()


def test_a_jvm_that_is_gone_ends_the_run_in_one_sentence(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    raised: list[BaseException] = []
    run = play(lambda segments, _, starting: segments.begin(starting), raised=raised)
    eventually(lambda: run.state() == "running", "it is up")

    def refused(*_: Any) -> Any:
        raise ConnectionRefusedError("nobody listens")

    monkeypatch.setattr("tidelock.running.supervisor.is_gone", lambda _: True)
    monkeypatch.setattr("tidelock.spark.query.failures.is_gone", lambda _: True)
    monkeypatch.setattr(Query, "isActive", property(refused), raising=False)
    run.segments.spark.streams.removeListener = refused
    run.ends()
    (failure,) = raised
    assert isinstance(failure, BackendUnavailable)
    assert str(failure).startswith("Spark's JVM is gone") and "start it again" in str(failure)
