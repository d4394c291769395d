"""The gate of a running segment: what each of its batches passes before it is computed.

A batch waits here while the log that the segment writes is full of what others have not read yet, so that back
pressure reaches the source and nothing is dropped; and it goes no further when the segment is to stop, so that a
stop always falls on the boundary of an epoch. A gate also remembers what the batch is about that is under way: if
it fails, that says which epoch failed. Between two batches Spark commits the one and plans the other, which can
hang like a batch: so a gate remembers when the last one left, until it is known to be committed or another comes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from tidelock.epochs import Epoch
from tidelock.errors import BackendUnavailable
from tidelock.spark.query.batches import Stopped, Work

_LOOK_EVERY = 0.05


class SegmentGate:
    """The gate of one run of a segment.

    Thread-safe: batches pass it in threads of Spark and the supervisor looks at it from its own. All that changes
    is guarded by a lock, which nobody holds while room is asked for or made.

    Args:
        has_room: whether the log that the segment writes can take more.
        last_epoch: the epoch behind which no batch is let in.
        rest: what a batch does that is not let in any more: it waits until its query is stopped. The answer are
            the words by which Spark knows that.
        clock: what seconds are counted by.
        tell: called in the batch's thread when one comes in, leaves, begins to wait or waits no longer.
    """

    def __init__(
        self,
        has_room: Callable[[], bool],
        last_epoch: Epoch | None = None,
        rest: Callable[[], str] = lambda: "",
        clock: Callable[[], float] = time.monotonic,
        tell: Callable[[], None] = lambda: None,
    ) -> None:
        self._has_room = has_room
        self._tell = tell
        self._last_epoch = last_epoch
        self._admits: Callable[[Work], bool] = lambda work: True
        self._rest = rest
        self._clock = clock
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._done: dict[int, Epoch] = {}
        self._inside: Work | None = None
        self._since = 0.0
        self._left_at: float | None = None  # none while a batch is here, which shows that the last is committed
        self._failed: tuple[Work, BaseException] | None = None
        self._paused = False

    # -- the batch's side

    def enter(self, work: Work, tidy: Callable[[], object] = lambda: None) -> None:
        """Wait until there is room, also while the store cannot say so; what has been read goes with ``tidy``.

        Raises:
            Stopped: the segment is to end before this batch.
        """
        with self._lock:
            self._left_at = None
        tidy()
        while not self._closed.is_set() and not self._may_pass(work):
            self._pause(True)
            self._closed.wait(_LOOK_EVERY)
            tidy()
        self._pause(False)
        with self._lock:
            comes_in = not self._closed.is_set()
            if comes_in:
                self._inside, self._since = work, self._clock()
        if not comes_in:
            raise Stopped(f"stopped before epoch {work.covers}{self._rest()}")
        self._tell()

    def leave(self, failure: BaseException | None) -> None:
        """Remember how the batch ended."""
        with self._lock:
            work, self._inside = self._inside, None
            if work is None:
                return
            if failure is None:
                self._done[work.batch] = work.covers.last
                self._left_at = self._clock()
            else:
                self._failed = work, failure
        self._tell()

    def _pause(self, now: bool) -> None:
        with self._lock:
            is_news, self._paused = now != self._paused, now
        if is_news:
            self._tell()

    def _may_pass(self, work: Work) -> bool:
        if self._last_epoch is not None and work.covers.last > self._last_epoch:
            return False
        if not self._admits(work):
            return False
        try:
            return self._has_room()
        except BackendUnavailable:
            return False  # nobody knows how full the log is: waiting costs time, failing would cost a restart

    # -- the supervisor's side

    def admit(self, admits: Callable[[Work], bool]) -> None:
        """Let only batches in that have their turn; asked again and again while one waits. Before the first."""
        self._admits = admits

    def close(self) -> None:
        """Let no further batch in."""
        self._closed.set()

    @property
    def closed(self) -> bool:
        """Whether no further batch is let in."""
        return self._closed.is_set()

    @property
    def paused(self) -> bool:
        """Whether a batch waits for room."""
        with self._lock:
            return self._paused

    @property
    def failed(self) -> tuple[Work, BaseException] | None:
        """The batch that failed, and how."""
        with self._lock:
            return self._failed

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
            return None if self._inside is None else (self._inside, self._clock() - self._since)

    def uncommitted(self) -> tuple[Epoch, float] | None:
        """The epoch that was computed and is not known to be committed, and for how many seconds."""
        with self._lock:
            if self._left_at is None or not self._done:
                return None
            return self._done[max(self._done)], self._clock() - self._left_at
