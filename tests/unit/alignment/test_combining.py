"""A subject of several producers: their parts make one epoch, whoever combines and whoever dies."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.register_assert_rewrite("tests.following")

from tests.following import Clock  # noqa: E402

from tidelock.alignment.combining import Combiner, combiner_cursor, standing  # noqa: E402
from tidelock.epochs import BEFORE_FIRST, Epoch  # noqa: E402
from tidelock.errors import BackendUnavailable, Fenced, PipelineError  # noqa: E402
from tidelock.log import EpochLog, LogWriter, Retention  # noqa: E402
from tidelock.log.entry import Manifest, Watermark  # noqa: E402
from tidelock.testing.logs import SCHEMA, covers, rows, write_part  # noqa: E402


class Shared:
    """A shared subject that keeps two epochs, its producers, and a way to write rows into their logs."""

    def __init__(self, folder: Path, names: str = "pq") -> None:
        self.folder = folder
        self.clock = Clock()
        self.recalled: list[Epoch] = []
        self.subject = EpochLog.create(
            f"file:{folder}/subject", SCHEMA, name="numbers", retention=Retention(epochs=2), event_time=True
        )
        self.producers: dict[str, EpochLog] = {}
        self.writers: dict[str, LogWriter] = {}
        for name in names:
            self.join(name)

    def join(self, name: str) -> None:
        keep = Retention(wait_for=frozenset({combiner_cursor("numbers")}))
        log = EpochLog.create(f"file:{self.folder}/{name}", SCHEMA, retention=keep, event_time=True, identity=name)
        self.producers[name], self.writers[name] = log, log.take_over(name)

    def write(self, name: str, number: int, watermark: int = 0) -> None:
        """An entry of one row."""
        writer = self.writers[name]
        epochs = covers(writer.window.tail + 1)
        mark = Watermark(0, watermark, {"t": 10})
        part = write_part(writer, epochs, [number])
        writer.publish(Manifest(name, epochs, SCHEMA, (part,), watermark=mark, query="q", batch=epochs.last))

    def combiner(self) -> Combiner:
        return Combiner(self.subject, patience=10.0, recalled=self.recalled.append, clock=self.clock)

    def combine(self, combiner: Combiner) -> dict[int, list[int]]:
        """Everything that can be put together now; the rows of all epochs."""
        while combiner.step(self.producers):
            pass
        return rows(self.subject)

    def watermarks(self) -> list[int]:
        manifests = [self.subject.manifest(epochs) for epochs in self.subject.ranges()]
        return [m.watermark.after for m in manifests if m.watermark]


@pytest.fixture
def shared(tmp_path: Path) -> Shared:
    return Shared(tmp_path)


class TestOneEpoch:
    def test_it_has_exactly_the_rows_of_one_entry_of_each(self, shared: Shared) -> None:
        combiner = shared.combiner()
        for n in (1, 2):
            shared.write("p", n)
            shared.write("q", 10 * n)
        assert shared.combine(combiner) == {0: [1, 10], 1: [2, 20]}

    def test_nothing_is_visible_before_all_have_their_part(self, shared: Shared) -> None:
        combiner = shared.combiner()
        assert not combiner.step(shared.producers)
        shared.write("p", 1)
        assert not combiner.step(shared.producers)
        assert shared.subject.ranges() == []
        assert standing(shared.subject).epoch == BEFORE_FIRST

    def test_it_names_the_parts_and_the_epochs_that_it_came_from(self, shared: Shared) -> None:
        shared.write("p", 1)
        shared.write("q", 10)
        shared.combine(shared.combiner())
        manifest = shared.subject.manifest(covers(0))
        assert [(i.log, i.covers) for i in manifest.inputs] == [("p", covers(0)), ("q", covers(0))]
        assert [part.log for part in manifest.parts] == [shared.producers[n].url for n in "pq"]
        assert standing(shared.subject).at == {"p": 0, "q": 0}

    def test_without_producers_there_is_nothing(self, shared: Shared) -> None:
        assert not shared.combiner().step({})


class TestDifferentPaces:
    def test_several_of_a_fast_producer_for_one_of_a_slow_one(self, shared: Shared) -> None:
        for who, n in (("p", 0), ("p", 1), ("q", 10), ("p", 2), ("p", 3), ("q", 20)):
            shared.write(who, n)
        assert shared.combine(shared.combiner()) == {0: [0, 1, 10], 1: [2, 3, 20]}

    def test_a_silent_producer_is_waited_for_once(self, shared: Shared) -> None:
        combiner = shared.combiner()
        shared.write("p", 1)
        assert shared.combine(combiner) == {}
        shared.clock.now = 9.9
        assert shared.combine(combiner) == {}
        shared.clock.now = 10
        assert shared.combine(combiner) == {0: [1]}
        shared.write("p", 2)
        assert shared.combine(combiner) == {0: [1], 1: [2]}, "at once"

    def test_it_takes_part_again_when_it_is_back(self, shared: Shared) -> None:
        combiner = shared.combiner()
        shared.write("p", 1)
        shared.combine(combiner)
        shared.clock.now = 10
        shared.combine(combiner)
        shared.write("q", 10)
        assert shared.combine(combiner) == {0: [1]}, "p is waited for"
        shared.write("p", 2)
        assert shared.combine(combiner) == {0: [1], 1: [2, 10]}
        shared.write("p", 3)
        assert shared.combine(combiner) == {0: [1], 1: [2, 10]}, "and so is q"

    def test_nobody_is_waited_for_while_all_are_still(self, shared: Shared) -> None:
        combiner = shared.combiner()
        shared.combine(combiner)
        shared.clock.now = 100
        shared.write("p", 1)
        assert shared.combine(combiner) == {}
        shared.write("q", 10)
        assert shared.combine(combiner) == {0: [1, 10]}

    def test_a_producer_that_joins_later(self, shared: Shared) -> None:
        combiner = shared.combiner()
        shared.write("p", 1)
        shared.write("q", 10)
        shared.combine(combiner)
        shared.join("r")
        shared.write("r", 100)
        shared.write("p", 2)
        shared.write("q", 20)
        assert shared.combine(combiner) == {0: [1, 10], 1: [2, 20, 100]}

    def test_a_producer_that_is_withdrawn_and_comes_back_goes_on_where_it_was(self, shared: Shared) -> None:
        combiner = shared.combiner()
        shared.write("p", 1)
        shared.write("q", 10)
        shared.combine(combiner)
        gone = shared.producers.pop("q")
        shared.write("p", 2)
        assert shared.combine(combiner) == {0: [1, 10], 1: [2]}
        shared.producers["q"] = gone
        shared.write("q", 20)
        shared.write("p", 3)
        assert shared.combine(combiner)[2] == [3, 20]


class TestTakingOver:
    def test_after_a_death_behind_the_publication_no_epoch_is_twice_and_none_is_lost(
        self, shared: Shared, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        dying = shared.combiner()
        monkeypatch.setattr(dying, "_let_go", lambda logs: 1 / 0)
        for n in (1, 2):
            shared.write("p", n)
            shared.write("q", 10 * n)
        with pytest.raises(ZeroDivisionError):
            dying.step(shared.producers)
        assert rows(shared.subject) == {0: [1, 10]}
        assert shared.combine(shared.combiner()) == {0: [1, 10], 1: [2, 20]}

    def test_the_older_one_is_fenced(self, shared: Shared) -> None:
        older, newer = shared.combiner(), shared.combiner()
        shared.write("p", 1)
        shared.write("q", 10)
        with pytest.raises(Fenced):
            older.step(shared.producers)
        assert shared.combine(newer) == {0: [1, 10]}
        shared.write("p", 2)
        shared.write("q", 20)
        with pytest.raises(Fenced):
            older.step(shared.producers)
        assert shared.combine(newer) == {0: [1, 10], 1: [2, 20]}

    def test_after_an_outage_it_begins_again_from_what_the_log_says(
        self, shared: Shared, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The epoch was published, but the answer did not come; meanwhile a producer has more."""
        combiner, store = shared.combiner(), shared.subject.store
        publish = type(store).publish

        def published_but_not_told(*args: Any) -> None:
            publish(store, *args)
            raise BackendUnavailable("no answer")

        shared.write("p", 1)
        shared.write("q", 10)
        monkeypatch.setattr(store, "publish", published_but_not_told)
        with pytest.raises(BackendUnavailable):
            combiner.step(shared.producers)
        monkeypatch.undo()
        shared.write("p", 2)
        assert shared.combine(shared.combiner()) == {0: [1, 10]}
        shared.write("q", 20)
        assert shared.combine(shared.combiner()) == {0: [1, 10], 1: [2, 20]}


class TestLosingEpochs:
    """The store of the subject's own log comes back as it was some epochs ago."""

    def test_followers_are_told_before_anything_is_combined_again(self, shared: Shared, tmp_path: Path) -> None:
        combined(shared, 1)
        shutil.copytree(tmp_path / "subject", tmp_path / "copy")
        combined(shared, 2)
        come_back(tmp_path, "copy")
        combiner = shared.combiner()
        shared.write("p", 3)
        assert shared.subject.ranges() == [covers(0)]
        assert combiner.step(shared.producers)
        assert (shared.subject.recalls(), shared.recalled) == ((0,), [0])
        assert rows(shared.subject) == {0: [1, 10], 1: [2, 20]}, "3 was published later"
        assert shared.subject.check_stands(Epoch(0), 0) == 1
        with pytest.raises(PipelineError, match="the epochs behind 0 were lost"):
            shared.subject.check_stands(Epoch(1), 0)

    def test_it_is_told_once_whoever_combines(self, shared: Shared, tmp_path: Path) -> None:
        combined(shared, 1)
        shutil.copytree(tmp_path / "subject", tmp_path / "copy")
        combined(shared, 2)
        away = shared.producers.pop("q")  # it remembers epoch 1 of before the loss
        come_back(tmp_path, "copy")
        combined(shared, 3)
        shared.producers["q"] = away
        combined(shared, 4)
        assert (shared.subject.recalls(), shared.recalled) == ((0,), [0])

    def test_a_loss_of_what_was_told_about_a_loss(self, shared: Shared, tmp_path: Path) -> None:
        combined(shared, 1)
        shutil.copytree(tmp_path / "subject", tmp_path / "first")
        combined(shared, 2)
        shutil.copytree(tmp_path / "subject", tmp_path / "second")
        combined(shared, 3)
        come_back(tmp_path, "second")
        shared.combine(shared.combiner())
        assert shared.subject.recalls() == (1,)
        come_back(tmp_path, "first")
        shared.combine(shared.combiner())
        assert shared.subject.recalls() == (1, 0), "whoever knows of one of them hears of the other"
        assert shared.recalled == [1, 0]

    def test_a_death_between_the_notes_and_the_telling(
        self, shared: Shared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        combined(shared, 1)
        shutil.copytree(tmp_path / "subject", tmp_path / "copy")
        combined(shared, 2)
        come_back(tmp_path, "copy")
        with monkeypatch.context() as patch:
            patch.setattr(shared.subject, "tell_recalls", lambda epochs: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                shared.combiner().step(shared.producers)
        shared.combine(shared.combiner())
        assert shared.subject.recalls() == (0,)

    def test_nothing_is_told_when_nothing_was_lost(self, shared: Shared) -> None:
        for n in range(1, 5):
            combined(shared, n)
        assert (shared.subject.recalls(), shared.recalled) == ((), [])

    def test_another_log_of_the_same_name_is_another_subject(self, shared: Shared, tmp_path: Path) -> None:
        combined(shared, 1)
        combined(shared, 2)
        shared.subject = EpochLog.create(f"file:{tmp_path}/other", SCHEMA, name="numbers")
        combined(shared, 3)
        assert (shared.subject.recalls(), shared.recalled) == ((), [])

    def test_what_producers_no_longer_have_is_not_left_out_silently(self, shared: Shared, tmp_path: Path) -> None:
        combined(shared, 1)
        shutil.copytree(tmp_path / "subject", tmp_path / "copy")
        for n in range(2, 7):
            combined(shared, n)
        for writer in shared.writers.values():
            writer.truncate()
        come_back(tmp_path, "copy")
        with pytest.raises(PipelineError, match="were asked for, but the log holds"):
            shared.combiner().step(shared.producers)
        assert shared.subject.ranges() == [covers(0)]


def combined(shared: Shared, n: int) -> None:
    """One more epoch, by a combiner of its own."""
    for name, factor in (("p", 1), ("q", 10)):
        shared.write(name, n * factor)
    shared.combine(shared.combiner())


def come_back(folder: Path, copy: str) -> None:
    shutil.rmtree(folder / "subject")
    shutil.copytree(folder / copy, folder / "subject")


class TestLettingGo:
    def test_producers_drop_what_the_subject_no_longer_names_and_nothing_else(self, shared: Shared) -> None:
        combiner = shared.combiner()
        for n in range(6):
            shared.write("p", n)
            shared.write("q", 10 * n)
            shared.combine(combiner)
            for writer in shared.writers.values():
                writer.truncate()
            held = {epochs.last for epochs in shared.subject.ranges()}
            assert held == {n, n - 1} & set(range(6)), "two are kept"
            for log in shared.producers.values():
                assert {epochs.last for epochs in log.ranges()} == held
            rows(shared.subject)

    def test_nothing_goes_before_it_was_combined(self, shared: Shared) -> None:
        for n in range(4):
            shared.write("p", n)
        assert shared.writers["p"].truncate() == ()
        combiner = shared.combiner()
        shared.write("q", 10)
        assert shared.combine(combiner) == {0: [0, 1, 2, 3, 10]}
        assert shared.writers["p"].truncate() == ()

    def test_what_a_reader_of_the_subject_still_needs_stays(self, shared: Shared) -> None:
        combiner = shared.combiner()
        shared.subject.move_cursor("reader", BEFORE_FIRST)
        for n in range(5):
            shared.write("p", n)
            shared.write("q", 10 * n)
            shared.combine(combiner)
            shared.writers["p"].truncate()
        assert rows(shared.subject) == {n: [n, 10 * n] for n in range(5)}

    def test_a_producer_that_was_silent_in_all_epochs_keeps_what_comes_next(self, shared: Shared) -> None:
        combiner = shared.combiner()
        shared.write("q", 10)
        shared.write("p", 0)
        shared.combine(combiner)
        for n in range(1, 6):
            shared.write("p", n)
            shared.clock.now += 10
            shared.combine(combiner)
            shared.clock.now += 10
            shared.combine(combiner)
        assert shared.producers["q"].cursor(combiner_cursor("numbers")) == 0
        shared.write("q", 20)
        shared.write("p", 6)
        assert shared.combine(combiner)[6] == [6, 20]

    def test_whoever_takes_over_lets_go_as_well(self, shared: Shared) -> None:
        for n in range(5):
            shared.write("p", n)
            shared.write("q", 10 * n)
            shared.combine(shared.combiner())
        assert shared.producers["p"].cursor(combiner_cursor("numbers")) == 2


class TestEventTime:
    def test_it_is_the_slowest_producers_and_never_goes_back(self, shared: Shared) -> None:
        combiner = shared.combiner()
        for p, q in ((100, 50), (200, 80), (300, 40)):
            shared.write("p", 1, p)
            shared.write("q", 1, q)
            shared.combine(combiner)
        marks = [m.watermark for m in (shared.subject.manifest(e) for e in shared.subject.ranges())]
        assert [(m.before, m.after) for m in marks if m] == [(50, 80), (80, 80)]

    def test_a_producer_that_has_told_nothing_yet_holds_it_back(self, shared: Shared) -> None:
        combiner = shared.combiner()
        shared.write("p", 1, 100)
        shared.combine(combiner)
        shared.clock.now = 10
        shared.combine(combiner)
        assert shared.watermarks() == [0], "rows of q may be older than 100"
        shared.write("p", 2, 200)
        shared.write("q", 10, 150)
        shared.combine(combiner)
        assert shared.watermarks() == [0, 150]

    def test_a_producer_that_joins_later_does_not_turn_it_back(self, shared: Shared) -> None:
        combiner = shared.combiner()
        shared.write("p", 1, 100)
        shared.write("q", 10, 100)
        shared.combine(combiner)
        shared.join("r")
        for name, mark in (("p", 200), ("q", 200), ("r", 30)):
            shared.write(name, 1, mark)
        shared.combine(combiner)
        assert shared.watermarks() == [100, 100]

    def test_a_producer_that_was_withdrawn_does_not_hold_it_back(self, shared: Shared) -> None:
        combiner = shared.combiner()
        shared.write("p", 1, 100)
        shared.write("q", 10, 50)
        shared.combine(combiner)
        del shared.producers["q"]
        shared.write("p", 2, 200)
        shared.combine(combiner)
        assert shared.watermarks() == [50, 200]

    def test_whoever_takes_over_knows_it(self, shared: Shared) -> None:
        shared.write("p", 1, 100)
        shared.write("q", 10, 80)
        shared.combine(shared.combiner())
        shared.write("p", 2, 200)
        shared.clock.now = 10
        taken_over = shared.combiner()
        shared.combine(taken_over)
        shared.clock.now = 20
        shared.combine(taken_over)
        assert shared.watermarks() == [80, 80]
