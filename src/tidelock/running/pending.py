"""How much of a log its readers have still to take in."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

from tidelock.epochs import BEFORE_FIRST, Epoch, EpochRange
from tidelock.errors import BackendUnavailable, LogCorrupt
from tidelock.log import EpochLog

_ASK_EVERY = 0.2


@dataclass(frozen=True)
class Pending:
    """What a log holds, and how much of it somebody has still to read."""

    newest: Epoch = BEFORE_FIRST
    held_bytes: int = 0
    epochs: int = 0
    bytes: int = 0


class PendingLog:
    """The pending window of a log, as seen from outside; sizes of entries are asked for once.

    Thread-safe, for the gates of batches and for what shows the log at the same time: what it remembers is
    guarded by a lock, which nobody holds while the store is asked. A look is linear in the number of entries.
    """

    def __init__(self, log: EpochLog, readers: Iterable[str]) -> None:
        self.log = log
        self._readers = tuple(readers)
        self._lock = threading.Lock()
        self._sizes: dict[EpochRange, int] = {}
        self._seen = Pending()
        self._share = (0.0, 0.0)  # when it was asked for, and what it was

    def seen(self) -> Pending:
        """How it is with the log now, or how it was when it could last be asked.

        For whoever only shows it: what is wrong with the log is told by those who read and write it.
        """
        with suppress(BackendUnavailable, LogCorrupt):
            now = self._look()
            with self._lock:
                self._seen = now
        with self._lock:
            return self._seen

    def measure(self) -> tuple[int, int]:
        """The epochs and the bytes that the slowest of the job's own readers has not finished.

        Raises:
            BackendUnavailable: the log's store does not answer.
        """
        return self._waiting(self.log.ranges()) if self._readers else (0, 0)

    def _look(self) -> Pending:
        ranges = self.log.ranges()
        with self._lock:
            self._sizes = {covers: self._sizes[covers] for covers in ranges if covers in self._sizes}
        newest = max((covers.last for covers in ranges), default=BEFORE_FIRST)
        waiting = self._waiting(ranges) if self._readers else (0, 0)
        return Pending(newest, sum(map(self._size, ranges)), *waiting)

    def _waiting(self, ranges: list[EpochRange]) -> tuple[int, int]:
        done = self._slowest()
        waiting = [covers for covers in ranges if covers.last > done]
        return sum(covers.size for covers in waiting), sum(map(self._size, waiting))

    def share_used(self) -> float:
        """How much of the memory for this log is used; asked for at most a few times a second."""
        now = time.monotonic()
        with self._lock:
            asked, used = self._share
        if now - asked > _ASK_EVERY:
            used = self.log.store.share_used()
            with self._lock:
                self._share = now, used
        return used

    def _slowest(self) -> Epoch:
        """The epoch that all readers have finished."""
        cursors = self.log.cursors()
        return min((cursors.get(reader, BEFORE_FIRST) for reader in self._readers), default=BEFORE_FIRST)

    def _size(self, covers: EpochRange) -> int:
        with self._lock:
            known = self._sizes.get(covers)
        if known is not None:
            return known
        try:
            size = self.log.manifest(covers).size
        except LogCorrupt:
            if covers in self.log.ranges():  # if not, it was truncated while we looked
                raise
            return 0
        with self._lock:
            self._sizes[covers] = size
        return size
