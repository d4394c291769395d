"""Whatever the order of publishes, acks, crashes and rewinds: every record exactly once, in epoch order.

The machine plays a producer with snapshots and several consumers with snapshots around the pure `Window`. What a
consumer has taken in is kept beside its cursor, as a query's state is beside its offsets; a crash sets both back
to the newest snapshot.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tidelock.epochs import Epoch, EpochRange
from tidelock.log.cursor import all_past, encode_cursor
from tidelock.log.window import Entry, Retention, Window, WindowError

CONSUMERS = ("a", "b", "c")


class Chain(RuleBasedStateMachine):
    """One producer, one window, three consumers."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.window = Window(retention=Retention(epochs=2, wait_for=frozenset(CONSUMERS[:1])))
        self.snapshot = Epoch(-1)  # the producer's newest snapshot
        self.position = Epoch(-1)  # how far the producer has come in this life
        self.batches: dict[int, EpochRange] = {}  # the producer's offset log: what a batch covers
        self.taken: dict[str, list[int]] = {}
        self.seen: dict[str, Epoch] | None = None  # the cursors as a truncation under way has read them

    # -- the producer

    @rule(size=st.integers(1, 3))
    def publish(self, size: int) -> None:
        entry = self.entry(self.position, size)
        self.window = self.window.publish(entry)
        self.position = entry.covers.last

    def entry(self, after: Epoch, size: int) -> Entry:
        covers = EpochRange.after(after, Epoch(after + size))
        # A batch that runs again covers what it covered before: Spark keeps its offsets.
        covers = self.batches.setdefault(covers.first, covers)
        return Entry(covers, "q", covers.last, published_at=self.now)

    @rule()
    def commit(self) -> None:
        self.snapshot = self.position

    @rule()
    def crash_and_run_again(self) -> None:
        """The producer restarts from its snapshot and publishes again what is there already."""
        self.position = self.snapshot

    @rule()
    def crash_and_rewind(self) -> None:
        """The producer restarts from its snapshot and drops what it published behind it."""
        self.position = self.snapshot
        ahead = [name for name, at in self.window.cursors.items() if at > self.snapshot]
        if ahead or self.snapshot < self.window.truncated_to:
            with pytest.raises(WindowError):
                self.window.rewind(self.snapshot)
        else:
            self.window, dropped = self.window.rewind(self.snapshot)
            assert all(entry.covers.first > self.snapshot for entry in dropped)
            self.batches = {n: covers for n, covers in self.batches.items() if n <= self.snapshot}

    @rule(seconds=st.floats(0, 5))
    def truncate(self, seconds: float) -> None:
        self.now += seconds
        before = {name: self.window.pending(name) for name in self.window.cursors}
        head, tail = self.window.truncated_to, self.window.tail
        self.window, _ = self.window.truncate(self.now)
        assert self.window.truncated_to <= max(head, tail - 2), "the last two epochs are to be kept"
        assert before == {name: self.window.pending(name) for name in self.window.cursors}

    @rule()
    def begin_to_truncate(self) -> None:
        """The writer reads the cursors; consumers come, go on and go back before it drops anything."""
        self.seen = dict(self.window.cursors)

    @precondition(lambda self: self.seen is not None)
    @rule()
    def end_to_truncate(self) -> None:
        """What was found out of the way goes if that is still so: a store judges it in the moment it goes."""
        now, seen = self.window.cursors, self.seen
        left, dropped = replace(self.window, cursors=seen).truncate(self.now)
        if dropped and all_past(map(encode_cursor, now.values()), dropped[-1].covers.last):
            self.window = replace(left, cursors=now)
        self.seen = None

    # -- the consumers

    @rule(name=st.sampled_from(CONSUMERS))
    def join(self, name: str) -> None:
        if name not in self.window.cursors:
            self.window = self.window.register(name, self.window.truncated_to)
            self.taken[name] = list(range(self.window.truncated_to + 1))

    @precondition(lambda self: self.taken)
    @rule(data=st.data())
    def consume(self, data: st.DataObject) -> None:
        """A consumer takes some entries, and its snapshot (its cursor) moves with what it took."""
        name = data.draw(st.sampled_from(sorted(self.taken)))
        for entry in self.window.pending(name)[: data.draw(st.integers(0, 3))]:
            self.taken[name].extend(range(entry.covers.first, entry.covers.last + 1))
            self.window = self.window.acknowledge(name, entry.covers.last)

    @precondition(lambda self: self.taken)
    @rule(data=st.data())
    def consume_and_crash(self, data: st.DataObject) -> None:
        """A consumer takes entries and dies before its cursor moved: what it took is gone with it."""
        name = data.draw(st.sampled_from(sorted(self.taken)))
        before = self.window
        self.window.pending(name)
        assert self.window == before

    @precondition(lambda self: self.taken)
    @rule(data=st.data())
    def roll_back(self, data: st.DataObject) -> None:
        """A consumer is restored from an older snapshot, if the window still has what it needs."""
        name = data.draw(st.sampled_from(sorted(self.taken)))
        boundaries = [self.window.truncated_to, *(e.covers.last for e in self.window.entries)]
        to = data.draw(st.sampled_from([b for b in boundaries if b <= self.window.cursors[name]]))
        self.window = self.window.roll_back(name, to)
        self.taken[name] = self.taken[name][: to + 1]

    @precondition(lambda self: self.taken)
    @rule(data=st.data())
    def acknowledge_nonsense(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.taken)))
        with pytest.raises(WindowError):
            self.window.acknowledge(name, Epoch(self.window.tail + 1))

    # -- what always holds

    @invariant()
    def entries_are_contiguous(self) -> None:
        at = self.window.truncated_to
        for entry in self.window.entries:
            assert entry.covers.first == at + 1
            at = entry.covers.last
        assert at == self.window.tail

    @invariant()
    def nothing_needed_is_dropped(self) -> None:
        for name, at in self.window.cursors.items():
            assert self.window.truncated_to <= at <= self.window.tail
            pending = self.window.pending(name)
            assert not pending or pending[0].covers.first == at + 1

    @invariant()
    def every_epoch_exactly_once_and_in_order(self) -> None:
        for name, taken in self.taken.items():
            assert taken == list(range(self.window.cursors[name] + 1))

    @invariant()
    def an_expected_consumer_is_waited_for(self) -> None:
        if CONSUMERS[0] not in self.window.cursors:
            assert self.window.truncated_to == -1


TestChain = Chain.TestCase
TestChain.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
