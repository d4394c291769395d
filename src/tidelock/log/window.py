"""The rules of a pending window (Segment Backup, sections 3.4 and 3.5). Pure: no I/O, no clock.

Theory of operation
-------------------
A window is the run of entries that a log holds. Entries are contiguous: each one covers the epochs right
after those of the entry before it. The window grows at its tail (`publish`), shrinks at its head
(`truncate`) and, when its producer went back to an older snapshot, at its tail (`rewind`).

Each consumer has a cursor: the newest epoch that it has durably finished, which is its version ack. What a
consumer still has to see is exactly the entries behind its cursor (`pending`), so after any crash it is
enough to replay them; a consumer whose cursor is unknown to itself takes it from here.

Invariants, which hold after every method (`tests/property/test_window.py` checks them):

* entries are contiguous and start right after `truncated_to`;
* `truncated_to` <= every cursor <= the tail: nothing that somebody still needs is dropped (theorem 1: the
  windows along a path can be joined without a gap), and nobody has finished what does not exist;
* every cursor stands on the boundary of an entry (or at the head): a consumer never holds half an entry.

Every method returns a new window, so a caller that could not make a change durable just keeps the old one.
Publish and acknowledge cost O(log n) look-ups plus a copy of the entry list, n entries.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from tidelock.epochs import BEFORE_FIRST, Epoch, EpochRange
from tidelock.errors import PipelineError


class WindowError(PipelineError):
    """A change that the rules of a pending window forbid; the window is as it was."""


@dataclass(frozen=True)
class InputRange:
    """The lineage of an entry: which epochs of which input log it came from."""

    log: str
    name: str
    covers: EpochRange


@dataclass(frozen=True)
class Entry:
    """What the rules need to know of a published entry.

    ``query`` and ``batch`` name the work that made it, ``inputs`` and ``offsets`` what it took in, from logs and
    from other sources: the same work done again agrees in all of them, and that is how a repeated publish is told
    from a conflicting one.
    """

    covers: EpochRange
    query: str = ""
    batch: int = 0
    inputs: tuple[InputRange, ...] = ()
    offsets: str = ""
    published_at: float = 0.0

    def same_work(self, other: Entry) -> bool:
        """Whether both entries are the result of the same batch over the same input."""
        return replace(self, published_at=other.published_at) == other


@dataclass(frozen=True)
class Retention:
    """What a window keeps even when every consumer has read it.

    The last ``epochs`` epochs and everything younger than ``seconds`` stay (a subject keeps its recent past
    for followers that are not there yet). ``wait_for`` names consumers that are known to come: until they
    have registered, nothing is dropped.
    """

    epochs: int | None = None
    seconds: float | None = None
    wait_for: frozenset[str] = frozenset()

    @property
    def bounds_history(self) -> bool:
        """Whether history is bounded by age, so that a log nobody reads does not grow for ever."""
        return self.epochs is not None or self.seconds is not None

    def keeps(self, entry: Entry, tail: Epoch, now: float) -> bool:
        """Whether ``entry`` must stay at time ``now`` although all have read it."""
        recent = self.epochs is not None and entry.covers.last > tail - self.epochs
        young = self.seconds is not None and entry.published_at > now - self.seconds
        return recent or young


@dataclass(frozen=True)
class Window:
    """A pending window: entries, cursors, and where its head was cut."""

    entries: tuple[Entry, ...] = ()
    cursors: Mapping[str, Epoch] = field(default_factory=dict)
    truncated_to: Epoch = BEFORE_FIRST
    retention: Retention = Retention()

    @property
    def tail(self) -> Epoch:
        """The newest published epoch, or the head's position when the window is empty."""
        return self.entries[-1].covers.last if self.entries else self.truncated_to

    def find(self, epoch: Epoch) -> Entry | None:
        """The entry that covers ``epoch``, if the window holds it."""
        place = bisect_left(self.entries, epoch, key=_last)
        if place == len(self.entries) or self.entries[place].covers.first > epoch:
            return None
        return self.entries[place]

    # -- the producer's side

    def publish(self, entry: Entry) -> Window:
        """The window with ``entry`` at its tail; the same window if the same work is there already.

        Raises:
            WindowError: the entry leaves a gap, or its epochs hold the result of other work.
        """
        if entry.covers.last <= self.tail and not self._is_new(entry):
            self._check_same_work(entry)
            return self
        if not self._is_new(entry):
            raise WindowError(
                f"epochs {entry.covers} cannot follow epoch {self.tail}: an entry has to begin at "
                f"epoch {self.tail + 1}"
            )
        if not self.entries and self.truncated_to == BEFORE_FIRST:
            start = Epoch(entry.covers.first - 1)
            return replace(self, entries=(entry,), truncated_to=start, cursors=self._raised(start))
        return replace(self, entries=(*self.entries, entry))

    def _is_new(self, entry: Entry) -> bool:
        untouched = not self.entries and self.truncated_to == BEFORE_FIRST
        return untouched or entry.covers.first == self.tail + 1

    def _raised(self, start: Epoch) -> dict[str, Epoch]:
        return {consumer: max(at, start) for consumer, at in self.cursors.items()}

    def _check_same_work(self, entry: Entry) -> None:
        finished = entry.covers.last <= self.truncated_to  # by all consumers
        if finished and (not self.entries or self.entries[0].query == entry.query):
            return
        there = self.find(entry.covers.last)
        if there is None or not there.same_work(entry):
            raise WindowError(
                f"epochs {entry.covers} hold the result of other work already (the log ends at "
                f"epoch {self.tail}); a query with a new checkpoint needs a new log, or rewind this one"
            )

    def rewind(self, to: Epoch) -> tuple[Window, tuple[Entry, ...]]:
        """Drop the tail behind ``to``, the producer's best safe epoch (Segment Backup 3.5, step 2).

        Raises:
            WindowError: ``to`` is not a boundary of this window, or a consumer is ahead of it (it has to be
                rolled back first, or it would see other records under the same epochs).
        """
        self._check_boundary(to)
        ahead = sorted(name for name, at in self.cursors.items() if at > to)
        if ahead:
            raise WindowError(
                f"cannot rewind to epoch {to}: {', '.join(ahead)} already finished later epochs; "
                "roll those consumers back first"
            )
        cut = bisect_right(self.entries, to, key=_last)
        return replace(self, entries=self.entries[:cut]), self.entries[cut:]

    # -- the consumers' side

    def register(self, consumer: str, at: Epoch) -> Window:
        """The window with a cursor for ``consumer``; one that exists stays where it is."""
        if consumer in self.cursors:
            return self
        self._check_boundary(at)
        return replace(self, cursors={**self.cursors, consumer: at})

    def acknowledge(self, consumer: str, epoch: Epoch) -> Window:
        """Move the consumer's cursor forward to ``epoch``; an older ack changes nothing.

        Raises:
            WindowError: the consumer is unknown, or ``epoch`` is not a boundary of this window.
        """
        if epoch <= self._cursor(consumer):
            return self
        self._check_boundary(epoch)
        return replace(self, cursors={**self.cursors, consumer: epoch})

    def roll_back(self, consumer: str, to: Epoch) -> Window:
        """Move the consumer's cursor back to ``to``, because it restarts from an older snapshot.

        Raises:
            WindowError: the entries behind ``to`` are gone, or it is not a boundary.
        """
        if to > self._cursor(consumer):
            raise WindowError(f"{consumer} cannot be rolled back to epoch {to}: it is not there yet")
        self._check_boundary(to)
        return replace(self, cursors={**self.cursors, consumer: to})

    def forget(self, consumer: str) -> Window:
        """The window without the consumer's cursor: it holds nothing back any more."""
        return replace(self, cursors={k: v for k, v in self.cursors.items() if k != consumer})

    def pending(self, consumer: str) -> tuple[Entry, ...]:
        """What ``consumer`` still has to see, in order: the replay after a crash."""
        return self.entries[bisect_right(self.entries, self._cursor(consumer), key=_last) :]

    # -- the head

    def truncate(self, now: float) -> tuple[Window, tuple[Entry, ...]]:
        """Drop from the head what every consumer has finished and retention does not keep.

        The newest entry always stays: it is where a store remembers how far the log has come.
        """
        limit = self._slowest()
        cut = 0
        for entry in self.entries[:-1]:
            if entry.covers.last > limit or self.retention.keeps(entry, self.tail, now):
                break
            cut += 1
        if not cut:
            return self, ()
        dropped = self.entries[:cut]
        left = replace(self, entries=self.entries[cut:], truncated_to=dropped[-1].covers.last)
        return left, dropped

    def _slowest(self) -> Epoch:
        if self.retention.wait_for - self.cursors.keys():
            return BEFORE_FIRST
        if self.cursors:
            return min(self.cursors.values())
        return self.tail if self.retention.bounds_history else BEFORE_FIRST

    # -- shared checks

    def _cursor(self, consumer: str) -> Epoch:
        try:
            return self.cursors[consumer]
        except KeyError:
            raise WindowError(f"{consumer} is not a consumer of this log") from None

    def _check_boundary(self, epoch: Epoch) -> None:
        if epoch == self.truncated_to:
            return
        if epoch < self.truncated_to:
            raise WindowError(f"epoch {epoch} is gone: this log was truncated up to epoch {self.truncated_to}")
        entry = self.find(epoch)
        if entry is None:
            raise WindowError(f"epoch {epoch} is not published: the log ends at epoch {self.tail}")
        if entry.covers.last != epoch:
            raise WindowError(f"epoch {epoch} is inside the entry of epochs {entry.covers}")


def _last(entry: Entry) -> Epoch:
    return entry.covers.last


def next_boundary(
    after: Epoch,
    boundaries: Iterable[Iterable[Epoch]],
    epochs: int,
    *,
    remainder: bool = False,
) -> Epoch | None:
    """Where a batch that takes ``epochs`` epochs from every log ends; None if they are not all there.

    ``boundaries`` has the ends of the entries of each log. The answer is the smallest epoch, at least
    ``epochs`` behind ``after``, that is such an end in every log: all inputs advance together and none holds
    half an entry. With ``remainder`` a shorter last batch is good enough.

    >>> next_boundary(Epoch(0), [[1, 2, 3], [1, 3]], epochs=2)
    3
    >>> next_boundary(Epoch(0), [[1, 2, 3], [1]], epochs=2) is None
    True
    >>> next_boundary(Epoch(0), [[1, 2, 3], [1]], epochs=2, remainder=True)
    1
    """
    common = set.intersection(*(set(ends) for ends in boundaries))
    ahead = sorted(epoch for epoch in common if epoch > after)
    enough = [epoch for epoch in ahead if epoch >= after + epochs]
    if enough:
        return enough[0]
    return ahead[-1] if ahead and remainder else None
