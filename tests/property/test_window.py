"""Whatever the order of publishes, acks, crashes and repairs: every record exactly once, in epoch order.

The machine plays a producer with snapshots and several consumers with snapshots around a real log, in memory, with
its real writer and the real repairs (`log/repair.py`). A repair is killed before one of its changes and done
again; what comes out is what the pure `Window` says.

Some consumers are segments of the producer's home: when the log is put back, they go back too. The others are
followers in other jobs.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.mortal_logs import Killed, mortal_log

from tidelock.epochs import BEFORE_FIRST, Epoch, EpochRange
from tidelock.log import EpochLog, LogWriter, Retention, Window
from tidelock.log.documents import ASIDES, HEADER, last_aside, round_name
from tidelock.log.entry import Manifest
from tidelock.log.repair import put_back, remove_log, set_readers
from tidelock.log.window import runs

FOLLOWERS = ("f", "g")
MOMENTS = st.integers(0, 12)
"""How many changes of the store a repair makes before it is killed; few of them make more."""


class Chain(RuleBasedStateMachine):
    """One producer, one log, some consumers."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.log, self.store = mortal_log(Retention(epochs=2, wait_for=frozenset("a")))
        self.writer = self.taken_over()
        self.segments = ["a", "b"]
        self.coming = iter("cdehijklmnopqrstuvwxyz")
        self.snapshot = BEFORE_FIRST  # the producer's newest snapshot
        self.position = BEFORE_FIRST  # how far the producer has come in this life
        self.batches: dict[int, EpochRange] = {}  # the producer's offset log: what a batch covers
        self.taken: dict[str, list[int]] = {}
        self.join("b")
        self.join("f")

    def taken_over(self) -> LogWriter:
        self.log = EpochLog.kept_in(self.log.store)
        return self.log.take_over("a run", clock=lambda: self.now)

    def window(self, piece: list[EpochRange]) -> Window:
        """What the log holds, or a piece of it, as the rules see it."""
        asides = {name: last_aside(name) for name in self.store.names(ASIDES)}
        keep = self.log.header.retention
        return replace(Window.of(piece), cursors=self.log.cursors(), asides=asides, retention=keep)

    def pending(self, name: str) -> list[EpochRange]:
        return [covers for covers in self.log.ranges() if covers.last > self.log.cursors()[name]]

    # -- the producer

    @rule(size=st.integers(1, 3))
    def publish(self, size: int) -> None:
        covers = EpochRange.after(self.position, Epoch(self.position + size))
        # A batch that runs again covers what it covered before: Spark keeps its offsets.
        covers = self.batches.setdefault(covers.first, covers)
        manifest = Manifest("log", covers, {}, (), query="q", batch=covers.last)
        is_new = not any(held == covers for held in self.log.ranges()) and covers.last > self.log.head()
        assert self.writer.publish(manifest) == is_new
        self.position = covers.last

    @rule()
    def commit(self) -> None:
        self.snapshot = self.position

    @rule()
    def crash_and_run_again(self) -> None:
        """The producer restarts from its snapshot and publishes again what is there already."""
        self.position, self.writer = self.snapshot, self.taken_over()

    @rule(seconds=st.floats(0, 5), comes=st.sampled_from([None, *FOLLOWERS]))
    def truncate(self, seconds: float, comes: str | None) -> None:
        """Somebody may come when the writer has seen the cursors, and has dropped nothing yet."""
        self.now += seconds
        before = {name: self.pending(name) for name in self.taken}
        head, tail, waits = self.log.head(), self.log.tail(), self.log.header.retention.wait_for
        self.store.before_drop = None if comes is None else lambda: self.join(comes)
        self.writer.truncate()
        self.store.before_drop = None
        assert self.log.head() <= max(head, tail - 2), "the last two epochs are to be kept"
        assert self.log.head() == head or not waits - self.taken.keys(), "who is expected is waited for"
        assert before == {name: self.pending(name) for name in before}

    # -- the consumers

    def join(self, name: str) -> None:
        if name not in self.taken:
            assert self.log.register(name) == self.log.head()
            self.taken[name] = []

    @rule(data=st.data())
    def come(self, data: st.DataObject) -> None:
        self.join(data.draw(st.sampled_from([*self.segments, *FOLLOWERS])))

    @precondition(lambda self: any(map(self.pending, self.taken)))
    @rule(data=st.data(), count=st.integers(1, 5))
    def consume(self, data: st.DataObject, count: int) -> None:
        """A consumer takes some entries, and its snapshot (its cursor) moves with what it took."""
        name = data.draw(st.sampled_from([name for name in sorted(self.taken) if self.pending(name)]))
        for covers in self.pending(name)[:count]:
            self.taken[name].extend(range(covers.first, covers.last + 1))
            self.log.move_cursor(name, covers.last)

    @precondition(lambda self: self.taken)
    @rule(data=st.data())
    def roll_back(self, data: st.DataObject) -> None:
        """A consumer is restored from an older snapshot, if the log still has what it needs."""
        name = data.draw(st.sampled_from(sorted(self.taken)))
        to = data.draw(st.sampled_from(self.places(name, self.log.ranges(), self.log.tail())))
        self.log.move_cursor(name, to)
        self.go_back(name, to)

    @rule(name=st.sampled_from(FOLLOWERS))
    def give_up(self, name: str) -> None:
        self.log.forget(name)
        self.taken.pop(name, None)

    @precondition(lambda self: any(map(self.pending, self.taken)))
    @rule(data=st.data())
    def set_aside(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from([name for name in sorted(self.taken) if self.pending(name)]))
        self.log.set_aside(name, self.log.manifest(self.pending(name)[0]))

    def places(self, name: str, ranges: list[EpochRange], last: int) -> list[Epoch]:
        """Where a consumer can stand in these entries that has come no further than to ``last`` or its cursor."""
        at = min(self.log.cursors()[name], last)
        head = [Epoch(ranges[0].first - 1)] if ranges else []
        fitting = [place for place in [*head, *(covers.last for covers in ranges)] if place <= at]
        return fitting or ([BEFORE_FIRST] if at == BEFORE_FIRST else [])

    def go_back(self, name: str, to: Epoch) -> None:
        self.taken[name] = [epoch for epoch in self.taken[name] if epoch <= to]

    # -- repairs

    @precondition(lambda self: self.log.ranges())
    @rule(data=st.data(), lost=st.integers(0, 40), moment=MOMENTS)
    def put_back(self, data: st.DataObject, lost: int, moment: int) -> None:
        """The log may have lost an entry. One of its pieces is kept, up to where the producer can go on."""
        found = [covers for place, covers in enumerate(self.log.ranges()) if place != lost]
        piece = data.draw(st.sampled_from(runs(found) or [[]]))
        head = Epoch(piece[0].first - 1) if piece else self.position
        to = data.draw(
            st.sampled_from([*({Epoch(head - 1)} if head >= 0 else ()), head, *(r.last for r in piece)])
        )
        readers = {}
        for name in self.segments:
            if name in self.taken:
                at = self.log.cursors()[name]
                places = self.places(name, piece, to) if piece and to >= head else [to] if at >= to else []
                if not places:
                    return  # it would not find what it needs: something else would be chosen
                readers[name] = data.draw(st.sampled_from(places))
        for covers in set(self.log.ranges()) - set(found):
            del self.store.manifests[covers]
        expected = self.window(piece).put_back(to, readers)
        for name in readers:
            self.store.put(round_name(name), b"")

        def repair() -> None:
            present = self.store.ranges()
            put_back(self.store, [covers for covers in piece if covers in present], to, readers)

        def check_half_done() -> None:
            present = self.store.ranges()
            assert {entry.covers for entry in expected.entries} <= set(present)
            assert len(runs(present)) <= len(runs(found)), "whoever looks again finds the same pieces"

        self.killed_and_done_again(repair, moment, check_half_done)
        left = self.window(self.log.ranges())
        assert left == replace(expected, truncated_to=self.log.head())
        assert all(at <= to for at in [*left.cursors.values(), *left.asides.values(), self.log.tail()])
        assert not self.store.names(round_name(""))
        self.snapshot = self.position = to
        self.batches = {n: covers for n, covers in self.batches.items() if covers.last <= to}
        for name in list(self.taken):
            self.go_back(name, readers.get(name, to))
            if name not in readers and (self.log.cursors()[name] < min(head, to) or not piece):
                self.give_up(name)  # it has lost what it would read, and stops
        self.writer = self.taken_over()

    @rule(data=st.data(), moment=MOMENTS)
    def change_readers(self, data: st.DataObject, moment: int) -> None:
        """Another plan: a segment goes, and another one comes, at the end of an entry."""
        new, gone = next(self.coming, None), data.draw(st.sampled_from(self.segments))
        if new is None:
            return
        staying = [name for name in self.segments if name != gone]
        begins = {new: self.log.tail()} if self.log.ranges() else {}
        before = self.window(self.log.ranges())
        expected = before.change_readers([gone], [*staying, new], begins)

        def repair() -> None:
            set_readers(self.log, [gone], [*staying, new], begins)

        def check_half_done() -> None:
            assert gone not in before.cursors or not begins or {new, gone} & self.log.cursors().keys()

        self.killed_and_done_again(repair, moment, check_half_done)
        self.writer, self.segments = self.taken_over(), [*staying, new]
        assert self.window(self.log.ranges()) == expected
        self.taken.pop(gone, None)
        self.taken.update({name: [] for name in begins})

    def killed_and_done_again(
        self, repair: Callable[[], None], moment: int, check_half_done: Callable[[], None]
    ) -> None:
        self.store.changes_left = moment
        with suppress(Killed):
            repair()
        self.store.changes_left = None
        check_half_done()
        repair()
        self.store.changes_left = 0
        repair()  # there is nothing left that would be changed
        self.store.changes_left = None

    # -- what always holds

    @invariant()
    def entries_are_contiguous(self) -> None:
        assert len(runs(self.log.ranges())) <= 1

    @invariant()
    def nothing_needed_is_dropped(self) -> None:
        for name, at in self.log.cursors().items():
            pending = self.pending(name)
            assert at <= max(self.log.tail(), self.position)
            assert not pending or pending[0].first == at + 1 or not self.taken[name]

    @invariant()
    def every_epoch_exactly_once_and_in_order(self) -> None:
        for name, taken in self.taken.items():
            at = self.log.cursors()[name]
            assert taken == list(range(taken[0], at + 1)) if taken else True


TestChain = Chain.TestCase
TestChain.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)


def test_a_log_that_is_removed_stays_until_all_else_is_gone() -> None:
    for moment in range(20):
        log, store = mortal_log(Retention())
        writer = log.take_over("a run")
        for epoch in range(3):
            writer.publish(Manifest("log", EpochRange.single(Epoch(epoch)), {}, (), batch=epoch))
        log.register("a")
        log.set_aside("a", log.manifest(EpochRange.single(Epoch(1))))
        log.tell_recalls([Epoch(0)])
        store.changes_left = moment
        with suppress(Killed):
            remove_log(store)
        left = store.changes_left
        store.changes_left = None
        assert HEADER in store.documents or not (store.documents or store.manifests)
        remove_log(store)
        assert not store.documents and not store.manifests
    assert left, "the last time, nothing was left out"
