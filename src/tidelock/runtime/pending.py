"""How much of a log its readers have still to take in."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

from tidelock.epochs import BEFORE_FIRST, Epoch, EpochRange
from tidelock.errors import BackendUnavailable, LogCorrupt
from tidelock.log import EpochLog

_ASK_EVERY = 0.2


@dataclass(frozen=True)
class Look:
    """What a log was found to hold."""

    newest: Epoch = BEFORE_FIRST
    pending_epochs: int = 0
    pending_bytes: int = 0
    bytes_held: int = 0


class PendingLog:
    """The pending window of a log, as seen from outside; sizes of entries are asked for once. Thread-safe."""

    def __init__(self, log: EpochLog, readers: Iterable[str]) -> None:
        self.log = log
        self._readers = tuple(readers)
        self._sizes: dict[EpochRange, int] = {}
        self._seen = Look()
        self._asked, self._used = 0.0, 0.0

    def look(self) -> Look:
        """What the log holds, for those who only tell it: what was last seen while its store is away."""
        with suppress(BackendUnavailable):
            self._seen = Look(self.newest(), *self.measure(), self.bytes_held())
        return self._seen

    def measure(self) -> tuple[int, int]:
        """The epochs and the bytes that the slowest of the job's own readers has not finished."""
        if not self._readers:
            return 0, 0
        done = self.slowest()
        waiting = [covers for covers in self.log.ranges() if covers.last > done]
        return sum(covers.size for covers in waiting), sum(map(self._size, waiting))

    def share_used(self) -> float:
        """How much of the memory for this log is used; asked for at most a few times a second."""
        now = time.monotonic()
        if now - self._asked > _ASK_EVERY:
            self._asked, self._used = now, self.log.store.share_used()
        return self._used

    def slowest(self) -> Epoch:
        """The epoch that all readers have finished."""
        cursors = self.log.cursors()
        return min((cursors.get(reader, BEFORE_FIRST) for reader in self._readers), default=BEFORE_FIRST)

    def newest(self) -> Epoch:
        """The newest epoch of the log."""
        return max((covers.last for covers in self.log.ranges()), default=BEFORE_FIRST)

    def bytes_held(self) -> int:
        """The size of everything that the log holds."""
        ranges = self.log.ranges()
        self._sizes = {covers: size for covers, size in self._sizes.items() if covers in set(ranges)}
        return sum(map(self._size, ranges))

    def _size(self, covers: EpochRange) -> int:
        if covers not in self._sizes:
            try:
                self._sizes[covers] = self.log.manifest(covers).size
            except LogCorrupt:
                if covers in self.log.ranges():  # if not, it was truncated while we looked
                    raise
                return 0
        return self._sizes[covers]
