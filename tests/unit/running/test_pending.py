"""How much of a log is pending: asked by the gate of a batch and by what shows it, at the same time."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from tests.hammering import hammer
from tests.memory_logs import MemoryLog

from tidelock.epochs import Epoch, EpochRange
from tidelock.errors import BackendUnavailable, LogCorrupt
from tidelock.running.pending import Pending, PendingLog

HELD = 200


@dataclass(frozen=True)
class Sized:
    """A manifest, as far as it is looked at here."""

    size: int


class SizedLog(MemoryLog):
    """A log whose every entry has ten bytes; it counts how often it is asked for one."""

    def __init__(self) -> None:
        super().__init__("sized")
        self.asked = 0

    def manifest(self, covers: EpochRange) -> Sized:  # type: ignore[override]
        self.asked += 1
        if covers not in self.store.entries:
            raise LogCorrupt(f"{covers} is not there")
        return Sized(10)

    def roll(self) -> None:
        """Publish an entry and drop the oldest: a window that moves on."""
        self.grow()
        self.store.entries = self.store.entries[-HELD:]


@pytest.fixture
def log() -> SizedLog:
    made = SizedLog()
    for _ in range(HELD):
        made.grow()
    return made


def test_what_is_held_and_what_is_waited_for(log: SizedLog) -> None:
    log.move_cursor("fast", Epoch(150))
    log.move_cursor("slow", Epoch(99))
    pending = PendingLog(log, ["fast", "slow"])
    assert pending.seen() == Pending(Epoch(HELD - 1), HELD * 10, 100, 1000)
    assert pending.measure() == (100, 1000)
    assert PendingLog(log, []).measure() == (0, 0)


def test_the_size_of_an_entry_is_asked_for_once_and_forgotten_with_it(log: SizedLog) -> None:
    pending = PendingLog(log, ["reader"])
    for _ in range(3):
        pending.seen()
        pending.measure()
    assert log.asked == HELD
    log.roll()
    pending.seen()
    assert log.asked == HELD + 1
    assert len(pending._sizes) == HELD


def test_the_gate_of_a_batch_and_what_shows_it_do_not_disturb_each_other(log: SizedLog) -> None:
    pending = PendingLog(log, ["reader"])
    hammer(pending.measure, pending.measure, pending.seen, pending.seen, log.roll, seconds=1.0)
    assert pending.seen() == Pending(Epoch(log.tail), HELD * 10, HELD, HELD * 10)
    assert len(pending._sizes) == HELD, "what is gone is not remembered"


def test_an_entry_is_looked_at_as_often_as_there_are_entries_and_not_more(log: SizedLog) -> None:
    """Showing a long window is linear in its length."""
    compared = 0

    class Counted(EpochRange):
        def __hash__(self) -> int:
            nonlocal compared
            compared += 1
            return hash((self.first, self.last))

    log.store.entries = [Counted(covers.first, covers.last) for covers in log.store.entries]
    pending = PendingLog(log, ["reader"])
    pending.seen()
    compared = 0
    pending.seen()
    assert compared <= 10 * HELD


def test_a_store_that_is_away_leaves_what_was_seen_last(log: SizedLog, monkeypatch: pytest.MonkeyPatch) -> None:
    pending = PendingLog(log, ["reader"])
    before = pending.seen()

    def away() -> list[EpochRange]:
        raise BackendUnavailable("no answer")

    monkeypatch.setattr(log, "ranges", away)
    assert pending.seen() == before
    with pytest.raises(BackendUnavailable):
        pending.measure()
