"""Cursors and what they hold, and what goes when all have read it, or when a log is put back."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tidelock.epochs import Epoch
from tidelock.following.follower import Follower, Instruction
from tidelock.following.rounds import Reading, Rounds
from tidelock.log import EpochLog, LogWriter, Retention
from tidelock.log.repair import put_back
from tidelock.testing.contracts.logs.base import ANY_STEP, LogFixtures
from tidelock.testing.logs import SCHEMA, back, covers, publish, rows, write_part
from tidelock.testing.pausing import pausing


def begun(log: EpochLog) -> Epoch:
    """Where a query over two logs that are the same, and reads all there is, begins."""
    return Rounds([Reading(log), Reading(log)], "new").first("earliest")


NEW_READERS: dict[str, Callable[[EpochLog], Epoch]] = {
    "cursor": lambda log: log.register("new"),
    "rounds": begun,
    "follower": lambda log: Follower([log], "group", Instruction, consumers={log.header.id: "new"}).first(
        "earliest"
    )[log.header.id],
}
"""What takes its place in a log: the position from which it is going to read."""


class ReadersContract(LogFixtures):
    """What readers are promised."""

    # -- cursors, truncation, putting back, leftovers

    def test_the_slowest_cursor_truncates(self, log: EpochLog, writer: LogWriter) -> None:
        for n in range(4):
            publish(writer, covers(n), [n])
        log.move_cursor("fast", Epoch(3))
        log.move_cursor("slow", Epoch(1))
        assert [e.covers.last for e in writer.truncate()] == [0, 1]
        assert rows(log) == {2: [2], 3: [3]}
        assert len(log.store.part_names()) == 2
        assert log.cursors() == {"fast": 3, "slow": 1}

    def drop_one(self, log: EpochLog, writer: LogWriter) -> None:
        """One more epoch, and the oldest is one that all who are known have read."""
        log.forget("new")
        publish(writer, covers(writer.window.tail + 1), [writer.window.tail + 1])
        log.move_cursor("c", Epoch(writer.window.truncated_to + 1))

    def check_held(self, log: EpochLog, writer: LogWriter, position: Epoch) -> None:
        """See that a reader at ``position`` gets all that follows, whatever is dropped now."""
        assert log.cursors()["new"] <= position
        log.move_cursor("c", writer.window.tail)
        writer.truncate()
        assert [m.covers.last for m in log.manifests(position, writer.window.tail)]
        assert {n: [n] for n in range(position + 1, writer.window.tail + 1)}.items() <= rows(log).items()

    @pytest.mark.parametrize("reader", NEW_READERS)
    def test_a_new_reader_gets_what_it_begins_with(self, log: EpochLog, writer: LogWriter, reader: str) -> None:
        for n in range(4):
            publish(writer, covers(n), [n])
        for at in ANY_STEP:
            self.drop_one(log, writer)
            seen, store = pausing(log, at, writer.truncate)
            position = NEW_READERS[reader](seen)
            self.check_held(log, writer, position)
        assert store.steps < at, "no step was left out"

    @pytest.mark.parametrize("reader", NEW_READERS)
    def test_a_reader_that_comes_while_a_log_is_truncated(
        self, log: EpochLog, writer: LogWriter, reader: str
    ) -> None:
        for n in range(4):
            publish(writer, covers(n), [n])
        for at in ANY_STEP:
            seen, store = pausing(log, 0, lambda: None)
            writer = seen.take_over("the next")
            self.drop_one(log, writer)
            positions: list[Epoch] = []
            store.pause(at, lambda: positions.append(NEW_READERS[reader](log)))  # noqa: B023
            writer.truncate()
            for position in positions:
                self.check_held(log, writer, position)
        assert store.steps < at, "no step was left out"

    def test_a_cursor_that_goes_back_while_a_log_is_truncated(self, log: EpochLog, writer: LogWriter) -> None:
        for n in range(4):
            publish(writer, covers(n), [n])
        log.move_cursor("c", Epoch(3))
        for at in ANY_STEP:
            seen, store = pausing(log, 0, lambda: None)
            writer = seen.take_over("the next")
            publish(writer, covers(writer.window.tail + 1), [writer.window.tail + 1])
            log.move_cursor("c", Epoch(writer.window.truncated_to + 2))
            store.pause(at, lambda: log.move_cursor("c", log.head()))
            writer.truncate()
            assert log.head() <= log.cursors()["c"]
        assert store.steps < at, "no step was left out"

    def test_a_forgotten_consumer_is_not_waited_for(self, log: EpochLog, writer: LogWriter) -> None:
        for n in range(3):
            publish(writer, covers(n), [n])
        log.move_cursor("gone", Epoch(-1))
        log.move_cursor("c", Epoch(2))
        assert writer.truncate() == ()
        log.forget("gone")
        assert [e.covers.last for e in writer.truncate()] == [0, 1]

    def test_after_truncation_a_new_run_knows_where_it_is(self, log: EpochLog, writer: LogWriter) -> None:
        for n in range(3):
            publish(writer, covers(n), [n])
        log.move_cursor("c", Epoch(2))
        writer.truncate()
        again = log.take_over("the next run")
        assert (again.window.truncated_to, again.window.tail) == (1, 2)
        assert not publish(again, covers(2), [99])
        assert publish(again, covers(3), [3])

    def test_retention_is_kept_with_the_log(self, url: str) -> None:
        kept = Retention(epochs=2, wait_for=frozenset({"late"}))
        EpochLog.create(url, SCHEMA, retention=kept)
        assert EpochLog.open(url).header.retention == kept

    def test_a_log_that_is_put_back_drops_its_tail(self, log: EpochLog, writer: LogWriter) -> None:
        for n in range(4):
            publish(writer, covers(n), [n])
        back(log, 1)
        assert rows(log) == {0: [0], 1: [1]}
        assert publish(log.take_over("a run after that"), covers(2), [22], query="made again")
        assert rows(log) == {0: [0], 1: [1], 2: [22]}

    def test_nobody_is_beyond_what_a_log_was_put_back_to(self, log: EpochLog, writer: LogWriter) -> None:
        for n in range(3):
            publish(writer, covers(n), [n])
        log.move_cursor("ahead", Epoch(2))
        log.move_cursor("behind", Epoch(0))
        log.set_aside("ahead", log.manifest(covers(1)))
        log.set_aside("ahead", log.manifest(covers(2)))
        put_back(log.store, log.ranges(), Epoch(1), {"reader": Epoch(0)})
        assert log.cursors() == {"ahead": 1, "behind": 0, "reader": 0}
        assert log.store.names("aside/") == ["aside/ahead-1"]

    def test_left_over_parts_are_collected(self, log: EpochLog, writer: LogWriter) -> None:
        publish(writer, covers(0), [0])
        write_part(writer, covers(1), [99])
        write_part(writer, covers(0), [98])
        assert len(log.store.part_names()) == 3
        log.take_over("the next run")
        assert len(log.store.part_names()) == 1
        assert rows(log) == {0: [0]}

    def test_what_other_attempts_of_an_epoch_left_goes_when_it_is_published(
        self, log: EpochLog, writer: LogWriter
    ) -> None:
        write_part(writer, covers(0), [99])  # a task that was run twice
        publish(writer, covers(0), [0])
        assert len(log.store.part_names()) == 1
