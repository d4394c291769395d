"""The gate of a segment: room, stops, and what is known of the batch inside."""

from __future__ import annotations

import threading

import pytest
from tests.waiting import eventually

from tidelock.epochs import Epoch, EpochRange
from tidelock.errors import BackendUnavailable
from tidelock.running.gates import SegmentGate, Stopped
from tidelock.spark.query.batches import Work


def work(epoch: int, batch: int | None = None) -> Work:
    return Work(EpochRange.single(Epoch(epoch)), (), (), "query", epoch if batch is None else batch)


def test_a_batch_waits_for_room() -> None:
    room = threading.Event()
    gate = SegmentGate(room.is_set)
    batch = threading.Thread(target=lambda: gate.enter(work(3)))
    batch.start()
    eventually(lambda: gate.paused, "it waits")
    assert gate.inside() is None
    room.set()
    batch.join()
    assert not gate.paused
    inside = gate.inside()
    assert inside is not None
    assert inside[0] == work(3)


def test_room_is_made_before_a_batch_and_while_it_waits() -> None:
    left = [3, 2, 1, 0]
    gate = SegmentGate(lambda: not left)
    gate.enter(work(1), left.pop)
    assert left == []


def test_a_closed_gate_lets_nothing_in_and_lets_the_last_one_finish() -> None:
    gate = SegmentGate(lambda: True)
    gate.enter(work(1))
    gate.close()
    assert not gate.at_rest(), "a batch is inside"
    gate.leave(None)
    assert not gate.at_rest(), "nobody has seen its commit yet"
    assert gate.unconfirmed() == [1]
    assert gate.epoch_of(1) == 1
    assert gate.at_rest()
    with pytest.raises(Stopped, match="before epoch 2"):
        gate.enter(work(2))


def test_a_batch_that_waits_is_let_go_when_the_gate_closes() -> None:
    gate = SegmentGate(lambda: False)
    outcomes: list[str] = []

    def enter() -> None:
        try:
            gate.enter(work(1))
        except Stopped:
            outcomes.append("stopped")

    batch = threading.Thread(target=enter)
    batch.start()
    eventually(lambda: gate.paused, "it waits")
    gate.close()
    batch.join()
    assert outcomes == ["stopped"]


def test_no_epoch_after_the_last_one_is_let_in() -> None:
    gate = SegmentGate(lambda: True, last_epoch=Epoch(4))
    gate.enter(work(4))
    gate.leave(None)

    def enter() -> None:
        with pytest.raises(Stopped):
            gate.enter(work(5))

    waits = threading.Thread(target=enter)
    waits.start()
    eventually(lambda: gate.paused, "epoch 5 waits")
    gate.close()
    waits.join()


def test_a_failure_is_remembered_with_its_work() -> None:
    gate = SegmentGate(lambda: True)
    failure = ValueError("no")
    gate.enter(work(7, batch=8))
    gate.leave(failure)
    assert gate.failed == (work(7, batch=8), failure)
    assert gate.epoch_of(8) is None


def test_a_batch_waits_while_nobody_can_say_whether_there_is_room() -> None:
    answers = iter([BackendUnavailable("away"), BackendUnavailable("away"), False, True])
    gate = SegmentGate(lambda: _given(next(answers)))
    gate.enter(work(3))
    assert gate.inside() is not None
    assert next(answers, None) is None, "it has asked until there was an answer"


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_what_was_computed_is_known_to_wait_for_its_commit() -> None:
    clock = Clock()
    gate = SegmentGate(lambda: True, clock=clock)
    gate.enter(work(3, batch=7))
    clock.now += 5
    assert gate.uncommitted() is None, "it is still computed"
    gate.leave(None)
    clock.now += 2
    assert gate.uncommitted() == (3, 2)
    assert gate.epoch_of(7) == 3
    assert gate.uncommitted() is None, "it is committed"


def test_a_batch_that_comes_shows_that_the_one_before_is_committed() -> None:
    clock = Clock()
    room = threading.Event()
    gate = SegmentGate(room.is_set, clock=clock)
    room.set()
    gate.enter(work(3))
    gate.leave(None)
    room.clear()
    batch = threading.Thread(target=lambda: gate.enter(work(4)))
    batch.start()
    eventually(lambda: gate.paused, "the next one waits")
    clock.now += 1000
    assert gate.uncommitted() is None, "Spark begins no batch before"
    room.set()
    batch.join()
    assert gate.uncommitted() is None
    assert gate.unconfirmed() == [3]


def _given(answer: bool | Exception) -> bool:
    if isinstance(answer, Exception):
        raise answer
    return answer


def test_it_tells_of_every_batch_that_comes_waits_and_goes() -> None:
    told: list[tuple[bool, bool]] = []
    room = [False, False, True]
    gate = SegmentGate(
        lambda: room.pop(0) if room else True, tell=lambda: told.append((gate.paused, gate.inside() is not None))
    )
    gate.enter(work(0))
    gate.leave(None)
    gate.enter(work(1))
    gate.leave(ValueError("bad"))
    assert told == [(True, False), (False, False), (False, True), (False, False), (False, True), (False, False)]
