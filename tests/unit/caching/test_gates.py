"""The gate of a segment with cached state: the order of what it does, and when snapshots are taken."""

from __future__ import annotations

import doctest
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest
from tests.waiting import eventually

from tidelock.cache.fence import Fence
from tidelock.caching import gates as cached_gates
from tidelock.caching.gates import CachedGate, SnapshotSchedule, batches_needed
from tidelock.epochs import BEFORE_FIRST, Epoch, EpochRange
from tidelock.errors import BackendUnavailable, Fenced
from tidelock.running.gates import Stopped
from tidelock.spark.query.batches import Work

EVERY = 3
FENCE = Fence(7, "a run")


def work(last: int, batch: int | None = None, first: int | None = None) -> Work:
    covers = EpochRange(Epoch(last if first is None else first), Epoch(last))
    return Work(covers, (), (), "query", last if batch is None else batch)


class Snapshots:
    """Snapshots that are done when the test says so, and the schedule that asks for them."""

    def __init__(self, newest: int = BEFORE_FIRST) -> None:
        self.asked: list[int] = []
        self.under_way: list[Future[None]] = []
        self.schedule = SnapshotSchedule(EVERY, self.take, Epoch(newest))

    def take(self, epoch: Epoch, fence: Fence, server: str) -> Future[None]:
        assert (fence.pinned, server) == (epoch, "server")
        self.asked.append(epoch)
        self.under_way.append(Future())
        return self.under_way[-1]

    def batch(self, done: int) -> int | None:
        """A batch begins when ``done`` is done; what is pinned while it runs."""
        pinned = self.schedule.pin(Epoch(done))
        self.schedule.begun(Fence(7, "a run", pinned=pinned), "server")
        return pinned


# -- when


def test_a_snapshot_is_due_after_so_many_epochs() -> None:
    snapshots = Snapshots(newest=4)
    assert [snapshots.batch(done) for done in (4, 5, 6, 7, 8)] == [None, None, None, 7, 7]
    assert snapshots.asked == [7]


def test_an_epoch_is_pinned_until_its_snapshot_is_there() -> None:
    snapshots = Snapshots()
    assert [snapshots.batch(done) for done in (-1, 0, 1, 2, 3, 4, 5, 6)] == [None] * 3 + [2] * 5
    snapshots.under_way[0].set_result(None)
    assert [snapshots.batch(done) for done in (7, 8)] == [7, 7], "it is late: the next one is due at once"
    snapshots.under_way[1].set_result(None)
    assert [snapshots.batch(done) for done in (9, 10)] == [None, 10]
    assert snapshots.asked == [2, 7, 10]


def test_nothing_is_pinned_before_the_first_epoch() -> None:
    snapshots = Snapshots(newest=-10)
    assert snapshots.batch(BEFORE_FIRST) is None
    assert snapshots.batch(0) == 0


def test_batches_of_several_epochs_count_as_epochs() -> None:
    snapshots = Snapshots(newest=0)
    assert [snapshots.batch(done) for done in (2, 10)] == [None, 10]


def test_a_snapshot_that_failed_is_tried_again_with_a_newer_epoch() -> None:
    snapshots = Snapshots()
    assert snapshots.batch(2) == 2
    snapshots.under_way[0].set_exception(BackendUnavailable("no"))
    assert snapshots.batch(3) == 3
    snapshots.under_way[1].set_result(None)
    assert [snapshots.batch(done) for done in (4, 5, 6)] == [None, None, 6]
    assert snapshots.asked == [2, 3, 6]


def test_batches_wait_for_a_snapshot_that_is_far_behind() -> None:
    snapshots = Snapshots()
    done = EVERY - 1
    for done in range(EVERY - 1, EVERY - 1 + 53):
        assert snapshots.batch(done) == EVERY - 1
    pinned: list[Any] = []
    batch = threading.Thread(target=lambda: pinned.append(snapshots.batch(done + 1)))
    batch.start()
    eventually(lambda: snapshots.schedule.batches == 54, "the batch is about to begin")
    batch.join(0.2)
    assert not pinned, "it waits"
    snapshots.under_way[0].set_result(None)
    batch.join()
    assert pinned == [done + 1]


def test_a_checkpoint_remembers_enough_batches() -> None:
    """A snapshot is begun every so many batches and may be so late; the next one may be as late."""
    result = doctest.testmod(cached_gates)
    assert (result.failed, result.attempted > 0) == (0, True)
    assert all(batches_needed(every) >= 2 * (every + 50) for every in range(1, 1000))


# -- in which order


class Recorded:
    """Plays the inner gate and the store, and writes down what is asked of them."""

    def __init__(self, fails: str = "", failure: BaseException | None = None) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self._fails = fails
        self._failure = failure
        self.snapshots = Snapshots()
        self.gate = CachedGate(self, self, FENCE, Epoch(4), self.snapshots.schedule, lambda b: b * 10)  # type: ignore[arg-type]

    def _note(self, *call: Any) -> None:
        self.calls.append(call)
        if call[0] == self._fails and self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    def enter(self, work: Work, tidy: Callable[[], object]) -> None:
        self._note("enter", work.batch)

    def leave(self, failure: BaseException | None) -> None:
        self._note("leave", failure)

    def begin(self, fence: Fence, done: Epoch) -> str:
        self._note("begin", fence, done)
        return "server"

    def end(self, fence: Fence, server: str) -> None:
        self._note("end", fence.begun, server)


def test_a_batch_is_begun_in_the_cache_before_and_ended_after() -> None:
    seen = Recorded()
    seen.gate.enter(work(6, batch=9, first=5), list)
    seen.gate.leave(None)
    seen.gate.enter(work(7, batch=10), list)
    first = Fence(7, "a run", batch=9, begun=6, watermark=90, pinned=4)
    second = Fence(7, "a run", batch=10, begun=7, watermark=100, pinned=4)
    assert seen.calls == [
        ("enter", 9),
        ("begin", first, 4),
        ("end", 6, "server"),
        ("leave", None),
        ("enter", 10),
        ("begin", second, 6),
    ]
    assert seen.snapshots.asked == [4]


def test_a_batch_that_has_failed_is_not_ended_in_the_cache() -> None:
    seen = Recorded()
    failure = ValueError("no")
    seen.gate.enter(work(5), list)
    seen.gate.leave(failure)
    seen.gate.enter(work(5), list)
    assert [call[0] for call in seen.calls] == ["enter", "begin", "leave", "enter", "begin"]
    assert seen.calls[2] == ("leave", failure)
    assert seen.calls[-1][2] == 4, "the state is where it was"


@pytest.mark.parametrize("failure", [BackendUnavailable("gone"), Fenced("over"), KeyboardInterrupt()], ids=repr)
def test_a_batch_whose_end_the_cache_does_not_take_has_failed(failure: BaseException) -> None:
    seen = Recorded("end", failure)
    seen.gate.enter(work(5), list)
    with pytest.raises(type(failure)):
        seen.gate.leave(None)
    assert seen.calls[-1] == ("leave", failure)
    seen.gate.enter(work(5), list)
    assert seen.calls[-1][2] == 4, "the state is where it was"


@pytest.mark.parametrize("failure", [BackendUnavailable("gone"), Fenced("over")], ids=repr)
def test_a_batch_that_the_cache_does_not_let_in_has_left(failure: BaseException) -> None:
    seen = Recorded("begin", failure)
    with pytest.raises(type(failure)):
        seen.gate.enter(work(5), list)
    assert [call[0] for call in seen.calls] == ["enter", "begin", "leave"]
    assert seen.calls[-1] == ("leave", failure)
    assert seen.snapshots.asked == [], "what is not pinned is not copied"


def test_a_batch_that_the_inner_gate_does_not_let_in_is_not_begun() -> None:
    seen = Recorded("enter", Stopped("stop"))
    with pytest.raises(Stopped):
        seen.gate.enter(work(5), list)
    assert seen.calls == [("enter", 5)]
