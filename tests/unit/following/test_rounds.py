"""One decision per round, for every source of a query, also when a source is asked late or a run has died."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelock.epochs import Epoch
from tidelock.errors import LogCorrupt, PipelineError
from tidelock.following.rounds import ALL_EPOCHS, Decision, Reading, Rounds
from tidelock.log import EpochLog, LogWriter
from tidelock.testing.logs import SCHEMA, back, covers, publish


class Pair:
    """Two logs, and the two sources of a query that reads them together."""

    def __init__(self, home: Path) -> None:
        self.writers = [EpochLog.create(f"file:{home}/{n}", SCHEMA).take_over("test") for n in "ab"]
        self.restart()

    def restart(self) -> None:
        readings = [Reading(writer.log) for writer in self.writers]
        self.sources = [Rounds(readings, "c") for _ in "ab"]

    def grow(self, which: int) -> None:
        writer = self.writers[which]
        publish(writer, covers(writer.window.tail + 1), [1])

    def ask(self, which: int, position: int, epochs: int = 1) -> Decision:
        return self.sources[which].decide(position, lambda: Epoch(position), epochs)


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    return Pair(tmp_path)


def grow(writer: LogWriter, epochs: int) -> None:
    for _ in range(epochs):
        publish(writer, covers(writer.window.tail + 1), [1])


def test_the_second_follows_although_more_has_arrived(pair: Pair) -> None:
    pair.grow(0)
    assert pair.ask(0, -1) == Decision(-1, -1)
    pair.grow(1)
    assert pair.ask(1, -1) == Decision(-1, -1), "the first has said that there is nothing"
    assert pair.ask(0, -1) == pair.ask(1, -1) == Decision(-1, 0)


def test_a_run_that_died_between_the_two_does_no_harm(pair: Pair) -> None:
    pair.grow(0)
    pair.grow(1)
    assert pair.ask(0, -1) == Decision(-1, 0)
    pair.restart()
    pair.grow(0)
    pair.grow(1)
    assert pair.ask(0, -1, ALL_EPOCHS) == pair.ask(1, -1, ALL_EPOCHS)


def test_a_decision_about_epochs_that_were_made_again_is_not_followed(pair: Pair) -> None:
    for which in (0, 1):
        pair.grow(which)
        pair.grow(which)
    assert pair.ask(0, 0) == Decision(0, 1)
    for writer in pair.writers:
        back(writer.log, 0)
    pair.restart()
    assert pair.ask(0, 0) == pair.ask(1, 0) == Decision(0, 0)


def test_a_decision_about_epochs_that_are_gone_is_not_followed(pair: Pair) -> None:
    for writer in pair.writers:
        grow(writer, 2)
    first = pair.sources[0]
    assert first.decide("earliest", lambda: first.first("earliest"), ALL_EPOCHS) == Decision(-1, 1)
    for writer in pair.writers:  # it dies, its consumer is given up, and the logs go on
        writer.log.forget("c")
        grow(writer, 1)
        writer.log.move_cursor("other", Epoch(0))
        writer.truncate()
    pair.restart()
    for source in pair.sources:
        found = source.decide("earliest", lambda: source.first("earliest"), ALL_EPOCHS)  # noqa: B023
        assert found == Decision(0, 2)


def test_an_epoch_that_is_gone_is_no_start(pair: Pair) -> None:
    for which in (0, 1):
        grow(pair.writers[which], 3)
    pair.writers[0].log.move_cursor("other", Epoch(1))
    pair.writers[0].truncate()
    assert pair.sources[0].first("earliest") == 1
    assert pair.sources[0].first("latest") == 2
    assert pair.sources[0].first("2") == 1
    with pytest.raises(PipelineError, match="epoch 1 is gone, the oldest that is left is 2"):
        pair.sources[0].first("1")


def replaying(pair: Pair, *ends: int) -> Rounds:
    return Rounds([Reading(writer.log) for writer in pair.writers], "c", tuple(map(Epoch, ends)))


def decided(rounds: Rounds, start: int, epochs: int) -> tuple[int, int]:
    decision = rounds.decide(start, lambda: Epoch(start), epochs)
    return decision.start, decision.end


class TestReplay:
    def test_batches_end_where_they_had_ended(self, pair: Pair) -> None:
        for which in (0, 1):
            grow(pair.writers[which], 8)
        rounds = replaying(pair, 2, 3, 6)
        assert decided(rounds, -1, 2) == (-1, 2)
        assert decided(rounds, 2, 2) == (2, 3)
        assert decided(rounds, 3, ALL_EPOCHS) == (3, 6)
        assert decided(rounds, 6, 1) == (6, 7), "behind the replay it goes on as ever"

    def test_an_end_that_is_not_there_yet_is_waited_for(self, pair: Pair) -> None:
        for which in (0, 1):
            grow(pair.writers[which], 2)
        rounds = replaying(pair, 3)
        assert decided(rounds, -1, 1) == (-1, -1)
        assert rounds.is_short(Epoch(-1), 1), "so that a drain takes what there is"
        assert decided(rounds, -1, ALL_EPOCHS) == (-1, 1)

    def test_logs_that_are_cut_otherwise_now_are_taken_as_they_are(self, pair: Pair) -> None:
        for writer in pair.writers:
            publish(writer, covers(0, 3), [1])
        rounds = replaying(pair, 2)
        assert not rounds.is_short(Epoch(-1), 1)
        assert decided(rounds, -1, 1) == (-1, 3)


class TestALogIsLost:
    def test_it_is_gone(self, pair: Pair) -> None:
        pair.grow(0)
        pair.grow(1)
        pair.ask(0, -1)
        shutil.rmtree(pair.writers[0].log.store.root)
        with pytest.raises(LogCorrupt, match=r"has lost everything.*Start the pipeline again"):
            pair.ask(0, 0)

    def test_it_never_had_an_entry_and_is_gone(self, pair: Pair) -> None:
        pair.ask(0, -1)
        shutil.rmtree(pair.writers[0].log.store.root)
        with pytest.raises(LogCorrupt, match="has lost everything"):
            pair.ask(0, -1)

    def test_it_is_empty_although_it_had_entries(self, pair: Pair) -> None:
        for which in (0, 1):
            grow(pair.writers[which], 2)
        pair.ask(0, -1)
        shutil.rmtree(pair.writers[0].log.store.root / "entries")
        with pytest.raises(LogCorrupt, match="has lost all of its epochs, up to 1"):
            pair.ask(0, 0)

    def test_its_writer_tells_it_too(self, pair: Pair) -> None:
        grow(pair.writers[0], 3)
        shutil.rmtree(pair.writers[0].log.store.root)
        with pytest.raises(LogCorrupt, match="has lost everything"):
            pair.grow(0)

    def test_its_writer_tells_older_data_from_a_newer_writer(self, pair: Pair) -> None:
        writer = pair.writers[0]
        root = writer.log.store.root
        grow(writer, 1)
        shutil.copytree(root, root.with_name("older"))
        writer = pair.writers[0] = writer.log.take_over("a newer run")
        grow(writer, 2)
        shutil.rmtree(root)
        root.with_name("older").rename(root)
        with pytest.raises(LogCorrupt, match="has lost the epochs from 1 to 2"):
            pair.grow(0)


@settings(max_examples=60, deadline=None)
@given(
    steps=st.lists(st.sampled_from(["a", "b", "round", "crash", "half"]), max_size=25), epochs=st.integers(0, 3)
)
def test_whatever_happens_both_end_at_the_same_epoch(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str], epochs: int
) -> None:
    pair, position = Pair(tmp_path_factory.mktemp("pair")), -1
    for step in steps:
        if step in "ab":
            pair.grow("ab".index(step))
        elif step == "round":  # more may arrive between the two questions of a round
            first = pair.ask(0, position, epochs)
            pair.grow(len(steps) % 2)
            assert pair.ask(1, position, epochs) == first
            assert first.end <= min(writer.window.tail for writer in pair.writers)
            position = first.end
        else:
            if step == "half":
                pair.ask(0, position, epochs)
            pair.restart()
