"""A start that is waited for no longer: its turn goes to others, and what it brings up is taken down."""

from __future__ import annotations

import threading
from math import inf
from types import SimpleNamespace
from typing import cast

import pytest
from tests.waiting import PATIENCE

from tidelock.epochs import Epoch, EpochRange
from tidelock.recovery import QueryFailed
from tidelock.running.attempts import Attempt, cut_off, stop
from tidelock.running.gates import SegmentGate, Stopped
from tidelock.spark.frames import StreamingQuery
from tidelock.spark.query.batches import Work


class Query:
    """A query, as far as it is looked at here."""

    runId = "run"  # noqa: N815

    def __init__(self) -> None:
        self.stopped = False

    def stop(self) -> None:
        self.stopped = True


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def attempt(clock: Clock) -> Attempt:
    return Attempt(SegmentGate(lambda: True, clock=clock), clock)


def made(query: Query) -> StreamingQuery:
    return cast(StreamingQuery, query)


def test_a_start_that_comes_up(attempt: Attempt) -> None:
    query, turns = Query(), threading.Semaphore(1)
    with attempt.turn(turns):
        attempt.begun(made(query))
        assert not turns.acquire(blocking=False)
    assert turns.acquire(blocking=False)
    assert (attempt.query, attempt.run) == (query, "run")
    attempt.forget()
    assert attempt.query is None


class Turns(threading.Semaphore):
    """Turns for which an attempt waits for a long time."""

    def __init__(self, attempt: Attempt, clock: Clock) -> None:
        super().__init__(1)
        self._attempt = attempt
        self._clock = clock

    def acquire(self, blocking: bool = True, timeout: float | None = None) -> bool:
        before = self._attempt.lasted()
        self._clock.now += 1000
        assert self._attempt.lasted() == before, "meanwhile it does not grow older"
        return super().acquire(blocking, timeout)


def test_the_time_before_and_in_each_turn_counts_and_waiting_for_turns_does_not(
    attempt: Attempt, clock: Clock
) -> None:
    clock.now += 3
    assert attempt.lasted() == 3, "what comes before the turn may hang, too"
    for lasted in (5, 7):
        with attempt.turn(Turns(attempt, clock)):
            clock.now += 2
            assert attempt.lasted() == lasted


def test_one_that_hangs_does_not_keep_the_turn_of_others(attempt: Attempt) -> None:
    turns, begun, hangs, query = threading.Semaphore(1), threading.Event(), threading.Event(), Query()
    raised: list[BaseException] = []

    def start() -> None:
        try:
            with attempt.turn(turns):
                begun.set()
                hangs.wait()
                attempt.begun(made(query))
        except Stopped as stopped:
            raised.append(stopped)

    thread = threading.Thread(target=start)
    thread.start()
    assert begun.wait(PATIENCE), "it has its turn"
    assert attempt.abandon() is None
    assert turns.acquire(blocking=False), "another one starts"
    hangs.set()
    thread.join()
    assert len(raised) == 1 and query.stopped
    assert attempt.query is None
    assert not turns.acquire(blocking=False), "a turn is given back once"


def test_one_that_hangs_behind_its_query_gives_it_out_to_be_stopped(attempt: Attempt) -> None:
    query = Query()
    with attempt.turn(threading.Semaphore(1)):
        attempt.begun(made(query))
        assert attempt.abandon() is query
        with pytest.raises(Stopped):
            attempt.check()


def test_turns_of_several_kinds_are_all_given_back(attempt: Attempt) -> None:
    outer, inner = threading.Semaphore(1), threading.Semaphore(1)
    with attempt.turn(outer):
        with attempt.turn(inner):
            assert not inner.acquire(blocking=False)
        assert inner.acquire(blocking=False)
        inner.release()
        assert not outer.acquire(blocking=False)
        with attempt.turn(inner):
            attempt.abandon()
            assert outer.acquire(blocking=False) and inner.acquire(blocking=False)
    assert not outer.acquire(blocking=False) and not inner.acquire(blocking=False), "once"


def test_nothing_of_one_that_is_abandoned_is_let_in(attempt: Attempt) -> None:
    attempt.abandon()
    with pytest.raises(Stopped):
        attempt.gate.enter(Work(EpochRange.single(Epoch(0)), (), (), "query", 0))


def test_a_query_that_cannot_be_interrupted_is_not_waited_for_without_end(
    attempt: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelock.running.attempts.STOP_WITHIN", 0.01)
    goes_on = threading.Event()
    query = SimpleNamespace(runId="run", stop=goes_on.wait)
    attempt.begun(cast(StreamingQuery, query))
    try:
        failed = cut_off("only", attempt, attempt.query, Epoch(3), "epoch 3 hangs")
        assert isinstance(failed, QueryFailed)
        assert failed.final, "another query beside it would not help"
        assert "epoch 3 hangs, and its code cannot be interrupted" in failed.story
        with pytest.raises(TimeoutError, match=r"has not ended within 0\.01 s"):
            stop("only", attempt, cast(StreamingQuery, query))
    finally:
        goes_on.set()


def test_one_that_is_not_wanted_any_more_does_not_begin(attempt: Attempt) -> None:
    turns = threading.Semaphore(1)
    attempt.gate.close()
    with pytest.raises(Stopped), attempt.turn(turns):
        pytest.fail("it has begun")
    assert turns.acquire(blocking=False)


def test_when_it_matters_to_look_at_it(attempt: Attempt, clock: Clock) -> None:
    assert attempt.look_at(60) == clock.now + 60, "its start may hang"
    clock.now += 70
    assert clock.now < attempt.look_at(60) < clock.now + 0.01, "and never in a moment that does not pass"
    attempt.begun(made(Query()))
    attempt.started = True
    assert attempt.look_at(60) == clock.now, "its query may have ended meanwhile"
    attempt.doubtful = False
    assert attempt.look_at(60) == inf, "it waits for data"
    attempt.gate.enter(Work(EpochRange.single(Epoch(0)), (), (), "query", 0))
    clock.now += 10
    assert attempt.look_at(60) == clock.now + 50, "a batch may hang"
    attempt.gate.leave(None)
    clock.now += 20
    assert attempt.look_at(60) == clock.now + 40, "and its commit"
    attempt.gate.close()
    assert attempt.look_at(60) == clock.now + 40, "which a stop waits for"
    attempt.gate.epoch_of(0)
    assert attempt.look_at(60) == clock.now, "it can be stopped"
    attempt.ending = True
    assert attempt.look_at(60) == inf


def test_a_query_whose_batch_has_failed_is_about_to_end(attempt: Attempt, clock: Clock) -> None:
    attempt.begun(made(Query()))
    attempt.started, attempt.doubtful = True, False
    attempt.gate.enter(Work(EpochRange.single(Epoch(0)), (), (), "query", 0))
    attempt.gate.leave(ValueError("bad"))
    assert clock.now < attempt.look_at(60) < clock.now + 1
    attempt.forget()
    assert attempt.look_at(60) == inf
