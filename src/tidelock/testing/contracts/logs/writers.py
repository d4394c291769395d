"""One writer at a time, whoever is killed or stopped at whatever moment."""

from __future__ import annotations

import os
from collections.abc import Callable
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Event as Started

import pytest

from tidelock.epochs import Epoch
from tidelock.errors import Fenced
from tidelock.log import EpochLog, LogWriter
from tidelock.testing.contracts.logs.base import ANY_STEP, SPAWN, LogFixtures
from tidelock.testing.logs import SCHEMA, back, covers, publish, rows, write_part
from tidelock.testing.pausing import pausing
from tidelock.testing.waiting import eventually


def publish_for_ever(url: str) -> None:
    """What a child does until it is killed."""
    writer = EpochLog.create(url, SCHEMA).take_over("a child")
    while True:
        last = writer.window.tail
        publish(writer, covers(last + 1), [last + 1] * 50)


def take_over_and_publish(url: str, start: Started, done: Queue[tuple[str, bool]]) -> None:
    """What a child does: take the log over, wait for the others, publish, and tell how that went."""
    writer = EpochLog.open(url).take_over(f"process {os.getpid()}")
    start.wait()
    try:
        done.put(("published", publish(writer, covers(0), [os.getpid()], query=str(os.getpid()))))
    except Fenced:
        done.put(("fenced", False))


def outcome(work: Callable[[], object]) -> str:
    """How it ends: `done` or `fenced`."""
    try:
        work()
    except Fenced:
        return "fenced"
    return "done"


STALE: dict[str, Callable[[LogWriter], object]] = {
    "publish": lambda writer: publish(writer, covers(writer.window.tail + 1), [writer.window.tail + 1]),
    "truncate": lambda writer: writer.truncate(),
    "put back": lambda writer: back(writer.log, writer.window.tail - 1),
}
"""What somebody may be in the middle of when another writer takes over."""


class WritersContract(LogFixtures):
    """Who may write."""

    # -- one writer

    def test_a_second_writer_fences_the_first(self, log: EpochLog, writer: LogWriter) -> None:
        publish(writer, covers(0), [1])
        second = log.take_over("the second")
        with pytest.raises(Fenced, match="the second has taken this log over"):
            publish(writer, covers(1), [99])
        with pytest.raises(Fenced):
            publish(writer, covers(1), [98])
        assert publish(second, covers(1), [2])
        assert rows(log) == {0: [1], 1: [2]}

    def test_a_fenced_writer_truncates_nothing(self, log: EpochLog, writer: LogWriter) -> None:
        for n in range(3):
            publish(writer, covers(n), [n])
        log.take_over("the second")
        log.move_cursor("c", Epoch(2))
        with pytest.raises(Fenced):
            writer.truncate()
        assert list(rows(log)) == [0, 1, 2]

    def newer_run(self, log: EpochLog) -> None:
        """Take over, put one epoch in the place of another, and drop one that all have read."""
        back(log, log.tail() - 1)
        newer = log.take_over("a newer run")
        for _ in range(2):
            number = newer.window.tail + 1
            publish(newer, covers(number), [number], query="newer")
        log.move_cursor("c", Epoch(newer.window.truncated_to + 1))
        assert len(newer.truncate()) == 1

    def test_a_stale_take_over_destroys_nothing(self, log: EpochLog, writer: LogWriter) -> None:
        for n in range(5):
            publish(writer, covers(n), [n])
        log.move_cursor("c", Epoch(0))
        for at in ANY_STEP:
            write_part(log.take_over("a run that dies"), covers(99), [99])
            stale, store = pausing(log, at, lambda: self.newer_run(log))
            outcome(lambda: stale.take_over("the stale one"))  # noqa: B023
            found, held = rows(log), log.ranges()
            assert found == {n: [n] for n in range(held[0].last, held[-1].last + 1)}, f"stopped before step {at}"
        assert store.steps < at, "no step was left out"
        log.take_over("the last")
        assert len(log.store.part_names()) == len(rows(log)), "and what was left over is gone"

    @pytest.mark.parametrize("change", STALE)
    def test_a_writer_that_is_fenced_in_the_middle_destroys_nothing(
        self, log: EpochLog, writer: LogWriter, change: str
    ) -> None:
        for n in range(5):
            publish(writer, covers(n), [n])
        for at in ANY_STEP:
            stale, store = pausing(log, 0, lambda: None)
            old = stale.take_over("the stale one")
            STALE["publish"](old)
            log.move_cursor("c", Epoch(old.window.truncated_to + 1))
            store.pause(at, lambda: self.newer_run(log))
            assert outcome(lambda: STALE[change](old)) in ("done", "fenced")  # noqa: B023
            found, held = rows(log), log.ranges()
            assert found == {n: [n] for n in range(held[0].last, held[-1].last + 1)}, f"stopped before step {at}"
        assert store.steps < at, "no step was left out"

    def test_of_many_processes_one_publishes(self, log: EpochLog) -> None:
        done, start = SPAWN.Queue(), SPAWN.Event()
        args = (log.url, start, done)
        children = [SPAWN.Process(target=take_over_and_publish, args=args) for _ in range(3)]
        for child in children:
            child.start()
        eventually(lambda: [*(log.store.holder() or ())][:1] == [3], "all three have taken the log over")
        start.set()
        told = sorted(done.get(timeout=60) for _ in children)
        for child in children:
            child.join()
        assert told == [("fenced", False), ("fenced", False), ("published", True)]
        assert len(rows(log)[0]) == 1

    def test_a_writer_killed_at_any_moment_leaves_whole_entries(self, url: str) -> None:
        log = EpochLog.create(url, SCHEMA)
        newest = -1
        for _ in range(8):
            child = SPAWN.Process(target=publish_for_ever, args=(url,))
            child.start()
            eventually(lambda: log.ranges() and log.ranges()[-1].last > newest + 3, "the child publishes")  # noqa: B023
            child.kill()
            child.join()
            # One look, because what the child had sent may arrive at a server a little after its death.
            found = rows(log)
            assert found == {n: [n] * 50 for n in range(len(found))}
            assert len(found) > newest + 4, "and what others had seen before is there"
            newest = len(found) - 1
