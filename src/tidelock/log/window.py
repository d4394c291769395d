"""The rules of a pending window (Segment Backup, sections 3.4 and 3.5). Pure: no I/O, no clock.

Theory of operation
-------------------
A window is the run of entries that a log holds. Entries are contiguous: each one covers the epochs right
after those of the entry before it. The window grows at its tail (`publish`), shrinks at its head
(`truncate`) and, when its producer went back to an older snapshot, at its tail (`put_back`).

Each consumer has a cursor: the newest epoch that it has durably finished, which is its version ack. What a
consumer still has to see is exactly the entries behind its cursor, so after any crash it is enough to replay
them. A consumer that came before the first entry may have a cursor before the head: it begins at the head.

Invariants, which hold after every method (`tests/property/test_window.py` plays the log that runs by them):

* entries are contiguous and start right after `truncated_to`;
* what is behind the slowest cursor is there: nothing that somebody still needs is dropped (theorem 1: the
  windows along a path can be joined without a gap);
* no cursor is beyond the tail: nobody has finished what does not exist.

Every method returns a new window, so a caller that could not make a change durable just keeps the old one.
Publish costs O(log n) look-ups plus a copy of the entry list, n entries.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tidelock.epochs import BEFORE_FIRST, Epoch, EpochRange
from tidelock.errors import PipelineError
from tidelock.recovery.held import Held


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
    asides: Mapping[str, Epoch] = field(default_factory=dict)
    """By their names, the last epochs of the entries that some consumer is to see without their rows."""

    @classmethod
    def of(cls, ranges: Sequence[EpochRange]) -> Window:
        """The window of entries that cover these ranges, of which nothing else is known."""
        head = Epoch(ranges[0].first - 1) if ranges else BEFORE_FIRST
        return cls(tuple(Entry(covers) for covers in ranges), {}, head)

    @property
    def tail(self) -> Epoch:
        """The newest published epoch, or the head's position when the window is empty."""
        return self.entries[-1].covers.last if self.entries else self.truncated_to

    @property
    def held(self) -> Held:
        """The window as whoever chooses what to go on from sees it (`recovery.adjust`): its boundaries."""
        return Held(self.truncated_to, tuple(entry.covers.last for entry in self.entries))

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
            return replace(self, entries=(entry,), truncated_to=Epoch(entry.covers.first - 1))
        return replace(self, entries=(*self.entries, entry))

    def _is_new(self, entry: Entry) -> bool:
        untouched = not self.entries and self.truncated_to == BEFORE_FIRST
        return untouched or entry.covers.first == self.tail + 1

    def _check_same_work(self, entry: Entry) -> None:
        finished = entry.covers.last <= self.truncated_to  # by all consumers
        if finished and (not self.entries or self.entries[0].query == entry.query):
            return
        there = self.find(entry.covers.last)
        if there is None or not there.same_work(entry):
            raise WindowError(
                f"epochs {entry.covers} hold the result of other work already (the log ends at "
                f"epoch {self.tail}); a query with a new checkpoint needs a new log"
            )

    # -- what is done to it by hand (`repair`)

    def put_back(self, to: Epoch, readers: Mapping[str, Epoch]) -> Window:
        """The window of a log whose producer goes on behind ``to`` (Segment Backup 3.5, step 2).

        What is behind ``to`` goes; that is everything if ``to`` is before the head. ``readers`` go on where they
        are said to, and nobody else is beyond ``to``. Notes on epochs that are made again are not meant any more.
        Done again, it changes nothing.
        """
        left = self.held.rewound(to)
        return replace(
            self,
            entries=self.entries[: len(left.ends)],
            truncated_to=left.head,
            cursors={**{name: min(at, to) for name, at in self.cursors.items()}, **readers},
            asides={name: last for name, last in self.asides.items() if last <= to},
        )

    def change_readers(self, gone: Collection[str], readers: Collection[str], new: Mapping[str, Epoch]) -> Window:
        """The window when others read the log: who is ``gone`` holds nothing back, ``new`` ones have a position.

        It waits for ``readers``, and goes on waiting for whoever is neither, such as snapshots of cached state.
        """
        cursors = {name: at for name, at in {**self.cursors, **new}.items() if name not in gone}
        waits = self.retention.wait_for.difference(gone).union(readers)
        return replace(self, cursors=cursors, retention=replace(self.retention, wait_for=waits))

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


def _last(entry: Entry) -> Epoch:
    return entry.covers.last


def runs(ranges: Iterable[EpochRange]) -> list[list[EpochRange]]:
    """The pieces that a log is in which holds these entries, in order: runs without a gap.

    >>> covers = [EpochRange.single(Epoch(epoch)) for epoch in (0, 1, 4)]
    >>> [[str(one) for one in run] for run in runs(covers)]
    [['0', '1'], ['4']]
    """
    found: list[list[EpochRange]] = []
    for covers in ranges:
        if found and found[-1][-1].last + 1 == covers.first:
            found[-1].append(covers)
        else:
            found.append([covers])
    return found


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
