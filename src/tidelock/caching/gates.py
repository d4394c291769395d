"""The gate of a segment whose state is in a cache: around every batch, the cache is told that it begins and ends.

A batch begins in the cache before its first task and ends after its last, before Spark commits it. So the cache
is never behind what is committed, unless a server has lost something. When a snapshot is due, the epoch that is
done is pinned as the next batch begins, and a snapshot is taken while batches go on.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace

from tidelock.cache.fence import Fence
from tidelock.cache.store import CellStore
from tidelock.epochs import BEFORE_FIRST, Epoch
from tidelock.spark.query.batches import Gate, Work

TakeSnapshot = Callable[[Epoch, Fence, str], "Future[None]"]
"""Start to take a snapshot of an epoch, which a fence pins on a server."""

_MOST_BATCHES_BEHIND = 50
"""How many batches a snapshot may be late before batches wait for it: Spark forgets old batches."""
_SPARKS_OWN = 100


def batches_needed(every: int) -> int:
    """How many batches a checkpoint has to remember, so that it can always go back to the newest snapshot.

    >>> batches_needed(20), batches_needed(400)
    (142, 902)
    """
    return max(_SPARKS_OWN, 2 * (every + _MOST_BATCHES_BEHIND) + 2)


@dataclass
class SnapshotSchedule:
    """When a snapshot is due, and how far the newest one is. For one run of a segment.

    Owned by the batches of the run, of which there is one at a time; the thread that takes a snapshot answers with
    a future.
    """

    every: int
    take: TakeSnapshot
    newest: Epoch
    """The epoch of the newest snapshot; `BEFORE_FIRST` if there is none."""
    batches: int = 0
    """How many batches have begun since."""
    pinned: Epoch | None = None
    under_way: Future[None] | None = None

    def pin(self, done: Epoch) -> Epoch | None:
        """The epoch to be pinned while the next batch runs, if any; waits if snapshots are far behind."""
        self.batches += 1
        if self.under_way is not None and self.batches > self.every + _MOST_BATCHES_BEHIND:
            self.under_way.exception()
        if self.under_way is not None and self.under_way.done():
            if self.under_way.exception() is None and self.pinned is not None:
                self.newest, self.batches = self.pinned, 0
            self.pinned = self.under_way = None
        if self.pinned is None and done > BEFORE_FIRST and done - self.newest >= self.every:
            self.pinned = done
        return self.pinned

    def begun(self, fence: Fence, server: str) -> None:
        """The batch has begun on ``server``, and what is pinned stays as it is."""
        if self.pinned is not None and self.under_way is None:
            self.under_way = self.take(self.pinned, fence, server)


class CachedGate:
    """Wraps the gate of one run of a segment. Owned by its batches, of which there is one at a time."""

    def __init__(
        self,
        inner: Gate,
        store: CellStore,
        fence: Fence,
        done: Epoch,
        schedule: SnapshotSchedule,
        watermark: Callable[[int], int],
    ) -> None:
        self._inner = inner
        self._store = store
        self._fence = fence
        self._done = done
        self._schedule = schedule
        self._watermark = watermark
        self._server = ""

    def enter(self, work: Work, tidy: Callable[[], object]) -> None:
        """Enter the inner gate, then let the tasks of the batch change the state.

        Raises:
            Stopped: the segment is to end before this batch.
            Fenced: a newer run has taken the state over.
            BackendUnavailable: the cache does not work, or has lost something.
        """
        self._inner.enter(work, tidy)
        try:
            self._fence = replace(
                self._fence,
                batch=work.batch,
                begun=work.covers.last,
                watermark=self._watermark(work.batch),
                pinned=self._schedule.pin(self._done),
            )
            self._server = self._store.begin(self._fence, self._done)
            self._schedule.begun(self._fence, self._server)
        except BaseException as failure:
            self._inner.leave(failure)
            raise

    def leave(self, failure: BaseException | None) -> None:
        """Say that all of the batch is in the cache; if that fails, the batch has failed.

        Raises:
            Fenced: a newer run has taken the state over.
            BackendUnavailable: the cache does not work, or has lost something.
        """
        if failure is not None:
            self._inner.leave(failure)
            return
        try:
            self._store.end(self._fence, self._server)
            self._done = Epoch(self._fence.begun)
        except BaseException as broken:
            self._inner.leave(broken)
            raise
        self._inner.leave(None)
