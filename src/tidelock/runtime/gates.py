"""The gate of a running segment: what each of its batches passes before it is computed.

A batch waits here while the log that the segment writes is full of what others have not read yet, so that back
pressure reaches the source and nothing is dropped; and it goes no further when the segment is to stop, so that a
stop always falls on the boundary of an epoch. A gate also remembers what the batch is about that is under way: if
it fails, that says which epoch failed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from tidelock.epochs import Epoch
from tidelock.errors import BackendUnavailable, TidelockError
from tidelock.spark.batches import Work

_LOOK_EVERY = 0.05


class Stopped(TidelockError):
    """The query was asked to end, and does so before its next epoch."""


class SegmentGate:
    """The gate of one run of a segment. Thread-safe."""

    def __init__(self, has_room: Callable[[], bool], last_epoch: Epoch | None = None) -> None:
        self._has_room = has_room
        self._last_epoch = last_epoch
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._done: dict[int, Epoch] = {}
        self._inside: Work | None = None
        self._since = 0.0
        self.failed: tuple[Work, BaseException] | None = None
        self.paused = False

    # -- the batch's side

    def enter(self, work: Work, tidy: Callable[[], object] = lambda: None) -> None:
        """Wait until there is room, also while the store cannot say so; what has been read goes with ``tidy``.

        Raises:
            Stopped: the segment is to end before this batch.
        """
        tidy()
        while not self._closed.is_set() and not self._may_pass(work):
            self.paused = True
            self._closed.wait(_LOOK_EVERY)
            tidy()
        self.paused = False
        with self._lock:
            if self._closed.is_set():
                raise Stopped(f"stopped before epoch {work.covers}")
            self._inside, self._since = work, time.monotonic()

    def leave(self, failure: BaseException | None) -> None:
        """Remember how the batch ended."""
        with self._lock:
            work, self._inside = self._inside, None
            if work is None:
                return
            if failure is None:
                self._done[work.batch] = work.covers.last
            else:
                self.failed = work, failure

    def _may_pass(self, work: Work) -> bool:
        if self._last_epoch is not None and work.covers.last > self._last_epoch:
            return False
        try:
            return self._has_room()
        except BackendUnavailable:
            return False  # nobody knows how full the log is: waiting costs time, failing would cost a restart

    # -- the supervisor's side

    def close(self) -> None:
        """Let no further batch in."""
        self._closed.set()

    @property
    def closed(self) -> bool:
        """Whether no further batch is let in."""
        return self._closed.is_set()

    def epoch_of(self, batch: int) -> Epoch | None:
        """The epoch at which a batch of this run ended; known once."""
        with self._lock:
            return self._done.pop(batch, None)

    def unconfirmed(self) -> list[int]:
        """The batches that have left and are not known to be committed."""
        with self._lock:
            return list(self._done)

    def at_rest(self) -> bool:
        """Whether nothing is under way: no batch inside, and what has left is known to be committed."""
        with self._lock:
            return self._inside is None and not self._done

    def inside(self) -> tuple[Work, float] | None:
        """The batch that is being computed, and for how many seconds."""
        with self._lock:
            return None if self._inside is None else (self._inside, time.monotonic() - self._since)
