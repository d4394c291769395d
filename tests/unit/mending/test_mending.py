"""Logs that were lost between two runs: who goes back, how far, and what is told."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from tests.unit.backup.backup_job import COLUMNS, Job
from tests.unit.mending.lost_logs import (
    contents,
    lose,
    lose_entries,
    positions,
    started_again,
    tail,
)

from tidelock.epochs import BEFORE_FIRST, Epoch, EpochRange
from tidelock.home.home import Home, Record, SegmentRecord
from tidelock.home.identities import announce_recalls
from tidelock.log import EpochLog
from tidelock.log.entry import Manifest
from tidelock.mending.checkpoints import mend_checkpoints
from tidelock.mending.mending import Mended, mend
from tidelock.mending.rolling_back import roll_back, safe_versions
from tidelock.recovery import Pieces, Unrecoverable
from tidelock.spark.checkpoint.checkpoint import Checkpoint
from tidelock.spark.checkpoint.replay import read_replay


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(Home(tmp_path / "home"))


def mended(job: Job, **more: Any) -> Mended:
    found = mend(job.home, job.home.known(), **more)
    assert found is not None
    return found


class TestNothingIsLost:
    def test_a_new_home(self, job: Job) -> None:
        before = contents(job.home)
        assert mend(job.home, job.home.known()) is None
        assert contents(job.home) == before

    def test_a_log_may_be_ahead_of_its_writer_and_a_reader_too(self, job: Job) -> None:
        job.run_to(3)
        job.step("words", commit=False)
        job.step("counts")
        assert job.position("counts") > job.position("words")
        before = contents(job.home)
        assert mend(job.home, job.home.known()) is None
        assert contents(job.home) == before

    def test_an_epoch_that_a_reader_has_begun_is_not_forgotten(self, job: Job) -> None:
        job.run_to(3)
        job.run("words", "words")
        job.step("counts", commit=False)
        assert mend(job.home, job.home.known()) is None
        assert (Path(job.home.checkpoint("counts")) / "offsets" / "4").exists()


class TestEverythingIsLost:
    def test_where_all_are_at_the_same_epoch_nothing_is_done_again(self, job: Job) -> None:
        job.run_to(3)
        lose(job, "words")
        lose(job, "counts")
        found = mended(job)
        assert found == Mended({"words": "everything", "counts": "everything"}, {}, {})
        assert str(found) == ("log words has lost everything; log counts has lost everything; done again: nothing")
        job = started_again(job.home)
        job.run_to(6)
        job.check(6)

    def test_all_go_back_to_the_newest_epoch_that_they_agree_on(self, job: Job) -> None:
        job.run_to(3)
        job.run("words", "words", "counts", "words")
        lose(job, "words")
        lose(job, "counts")
        found = mended(job)
        assert found.again == {"words": (4, 6), "counts": (4, 4)}
        assert found.sinks == {}, "the sink was the last one"
        job = started_again(job.home)
        assert set(positions(job).values()) == {3}
        job.run_to(8)
        job.check(8)

    def test_one_log_takes_only_those_back_who_share_it(self, job: Job) -> None:
        job.run_to(3)
        job.run("words", "counts", "words")
        lose(job, "counts")
        found = mended(job)
        assert found.lost == {"counts": "everything"}
        assert found.again == {"counts": (4, 4)}, "words goes on: its log is there"
        job = started_again(job.home)
        job.run_to(6)
        job.check(6)

    def test_its_identity_is_known_from_its_readers(self, job: Job) -> None:
        job.run_to(3)
        before = job.log("words").header.id
        lose(job, "words")
        mended(job)
        assert started_again(job.home).log("words").header.id == before

    def test_without_a_common_epoch_nothing_is_changed(self, job: Job) -> None:
        job.run_to(0)
        for _ in range(12):
            job.run("words")
        lose(job, "words")
        before = contents(job.home)
        with pytest.raises(Unrecoverable, match=r"has no version left.*start the pipeline from nothing"):
            mend(job.home, job.home.known())
        assert contents(job.home) == before


class TestSomeIsLost:
    def test_a_tail_that_all_have_read_costs_nothing(self, job: Job) -> None:
        job.run_to(5)
        lose_entries(job, "words", 5, 5)
        assert mended(job).again == {}
        job = started_again(job.home)
        job.run_to(7)
        job.check(7)

    def test_a_tail_that_some_need_is_made_again(self, job: Job) -> None:
        job.run_to(2)
        job.run("words", "words", "words")
        lose_entries(job, "words", 4, 5)
        found = mended(job)
        assert found.lost == {"words": "the epochs from 4 to 5"}
        assert found.again == {"words": (4, 5)}
        assert tail(job, "words") == 3
        job.run_to(7)
        job.check(7)

    def test_a_sink_that_was_ahead_delivers_again(self, job: Job) -> None:
        job.run_to(5)
        job.run("words", "words")
        lose_entries(job, "words", 4, 99)
        lose_entries(job, "counts", 0, 99)
        found = mended(job)
        assert found.sinks.keys() <= {"report"}
        job = started_again(job.home)
        job.run_to(9)
        job.check(9)

    def test_an_epoch_in_the_middle(self, job: Job) -> None:
        job.run_to(1)
        job.run("words", "words", "words", "words")
        lose_entries(job, "words", 3, 3)
        found = mended(job)
        assert found.lost == {"words": "some of its epochs"}
        assert tail(job, "words") == 2
        job.run_to(7)
        job.check(7)

    def test_a_part_without_which_an_entry_cannot_be_read(self, job: Job) -> None:
        job.run_to(1)
        job.run("words", "words")
        (part, *_) = sorted((job.home.root / "logs" / "words" / "parts").glob("000000000003*"))
        part.unlink()
        assert mended(job).again == {"words": (3, 3)}
        job.run_to(4)
        job.check(4)

    def test_cursors_go_back_with_their_readers(self, job: Job) -> None:
        job.run_to(5)
        job.run("words", "counts")
        job.log("words").move_cursor("follower", Epoch(6))
        lose_entries(job, "words", 3, 99)
        lose_entries(job, "counts", 0, 99)
        mended(job)
        job = started_again(job.home)
        readers = {name: job.position(name) for name in ("counts", "report")}
        cursors = job.log("words").cursors()
        assert {name: cursors[name] for name in readers} == readers
        assert cursors["follower"] <= job.position("words")


class TestStateElsewhere:
    def test_a_segment_comes_back_alone_if_its_input_is_held(self, job: Job) -> None:
        job.run_to(1)
        job.run("words", "words", "counts", "counts")
        job.log("words").move_cursor("report", Epoch(1))
        ranges = job.log("counts").ranges()
        found = mended(job, safe={"counts": [Epoch(0), Epoch(1)]})
        assert found.again == {"counts": (2, 3)}
        assert positions(job) == {"words": 3, "counts": 1, "report": 1}
        assert job.log("counts").ranges() == ranges, "what it publishes again is there already"
        job.run_to(5)
        job.check(5)

    def test_otherwise_those_who_read_from_it_go_back_too(self, job: Job) -> None:
        job.run_to(4)
        job.run("words")  # which drops what all have read
        found = mended(job, safe={"counts": [Epoch(1)]})
        assert found.again["counts"] == (2, 4)
        assert found.sinks == {"report": 2}
        assert set(positions(job).values()) == {1}
        job.run_to(6)
        job.check(6)

    def test_one_that_was_killed_before_it_could_commit_only_repeats_that_batch(self, job: Job) -> None:
        """Its state is one batch ahead, and knows what was before."""
        job.run_to(3)
        job.run("words")
        job.step("counts", commit=False)
        before = positions(job)
        state = {"counts": [Epoch(4), BEFORE_FIRST]}
        assert mend(job.home, job.home.known(), safe=state, cached={"counts": Epoch(4)}) is None
        assert positions(job) == before

    def test_unless_the_input_of_that_batch_is_gone(self, job: Job) -> None:
        job.run_to(3)
        job.run("words")
        job.step("counts", commit=False)
        lose_entries(job, "words", 4, 99)
        found = mended(job, safe={"counts": [Epoch(4), Epoch(1)]}, cached={"counts": Epoch(4)})
        assert found.again["counts"] == (2, 3)

    def test_a_sink_does_not_deliver_the_same_again(self, job: Job) -> None:
        job.run_to(4)
        job.log("words").move_cursor("counts", BEFORE_FIRST)
        job.run("words", "counts")
        found = mended(job, safe={"report": [Epoch(3)]})
        assert (found.again, found.sinks) == ({"report": (4, 4)}, {})
        replay = read_replay(job.home.replay("report"))
        assert replay is not None
        assert (replay.after, replay.ends, replay.delivered) == (3, (4,), 4)


class TestRollingBack:
    def test_what_a_killed_query_has_left_unfinished_goes_with_the_rest(self, job: Job) -> None:
        """Spark begins a query only where nothing is, not even a hidden file."""
        job.run_to(1)
        checkpoint = Path(job.home.checkpoint("counts"))
        (checkpoint / "commits" / ".2.1234.tmp").write_text("v1")
        (checkpoint / "offsets" / ".2.1234.tmp").touch()
        roll_back(job.home, "counts", BEFORE_FIRST)
        assert [file.name for file in checkpoint.rglob("*") if file.is_file()] == ["metadata"]

    def test_the_ends_of_the_batches_are_written_down(self, job: Job) -> None:
        job.run_to(5)
        job.step("words", commit=False)
        roll_back(job.home, "words", Epoch(3))
        replay = read_replay(job.home.replay("words"))
        assert replay is not None
        assert (replay.after, replay.batch, replay.ends) == (3, 3, (4, 5, 6))
        assert (replay.delivered, replay.rolled_back) == (BEFORE_FIRST, True)

    def test_a_replay_that_is_not_over_is_remembered_when_it_goes_further_back(self, job: Job) -> None:
        job.run_to(5)
        roll_back(job.home, "words", Epoch(3))
        roll_back(job.home, "words", Epoch(2))
        replay = read_replay(job.home.replay("words"))
        assert replay is not None
        assert (replay.after, replay.ends) == (2, (3, 4, 5))

    def test_a_version_is_safe_only_with_its_state(self, job: Job) -> None:
        job.run_to(6)
        assert list(safe_versions(job.home, "words")) == [BEFORE_FIRST, 0, 1, 2, 3, 4, 5, 6]
        (Path(job.home.checkpoint("words")) / "state" / "0" / "0" / "2.delta").unlink()
        assert list(safe_versions(job.home, "words")) == [BEFORE_FIRST, 0, 3, 4, 5, 6], "4 has a full file"

    def test_from_nothing_only_as_long_as_the_first_batch_is_known(self, job: Job) -> None:
        job.run_to(12)
        assert BEFORE_FIRST not in safe_versions(job.home, "words")


class TestReadersInOtherJobs:
    """They do not go back: logs tell them what is published again."""

    def recalls(self, job: Job) -> dict[str, tuple[Epoch, ...]]:
        """What the logs say once the job runs again."""
        job = started_again(job.home)
        logs = {node: job.log(node) for node in ("words", "counts")}
        announce_recalls(job.home, logs)
        return {node: log.recalls() for node, log in logs.items()}

    def test_nothing_is_published_again(self, job: Job) -> None:
        job.run_to(3)
        lose(job, "words")
        lose(job, "counts")
        mended(job)
        assert self.recalls(job) == {"words": (), "counts": ()}

    def test_logs_that_are_put_back_say_so_also_if_they_are_made_anew(self, job: Job) -> None:
        job.run_to(3)
        job.run("words", "words", "counts", "words")
        lose(job, "words")
        lose(job, "counts")
        mended(job)
        assert self.recalls(job) == {"words": (3,), "counts": (3,)}
        again = started_again(job.home)
        again.run_to(5)
        again.run("words", "words")
        lose(again, "words")
        mended(again)
        assert self.recalls(again) == {"words": (3, 5), "counts": (3,)}
        lose(again, "counts")
        assert self.recalls(again)["counts"] == (3,), "the home remembers it"

    def test_a_batch_that_was_begun_and_is_forgotten(self, job: Job) -> None:
        job.run_to(3)
        job.run("words")
        job.step("counts", commit=False)
        lose(job, "words")
        mended(job)
        assert self.recalls(job) == {"words": (3,), "counts": (3,)}, "somebody may have read its entry"


class TestManySegments:
    """A chain of segments; every log has lost its tail, so each could be kept or given up: 2 ** 199 choices."""

    SEGMENTS = 200

    def test_mending_takes_steps_that_grow_with_the_number_of_segments(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(os, "fsync", lambda descriptor: None)
        home = Home(tmp_path / "home")
        record = chain(home, self.SEGMENTS)
        steps, serves = [0], Pieces.serves

        def counted(log: Pieces, *given: Any) -> bool:
            steps[0] += 1
            return serves(log, *given)

        monkeypatch.setattr(Pieces, "serves", counted)
        found = mend(home, record)
        assert found is not None
        assert len(found.lost) == self.SEGMENTS - 1
        assert {Checkpoint(None, home.checkpoint(s.name)).position() for s in record.segments} == {1}
        assert steps[0] <= self.SEGMENTS**2


def chain(home: Home, segments: int) -> Record:
    """The first and every second segment is at epoch 2, the others at epoch 1; no log holds more than epoch 0."""
    names = [f"s{number}" for number in range(segments)]
    records = tuple(
        SegmentRecord(
            name, (name,), ((names[n - 1], 0),) if n else (), home.log(name) if n < segments - 1 else None
        )
        for n, name in enumerate(names)
    )
    for number, segment in enumerate(records):
        for batch in range(3 - number % 2):
            offset = {"tidelock": "id", "name": "log", "together": 1, "start": batch - 1, "epoch": batch}
            for folder, text in (
                ("offsets", f'v1\n{{"batchWatermarkMs": 0}}\n{json.dumps(offset)}'),
                ("commits", ""),
            ):
                file = Path(home.checkpoint(segment.name)) / folder / str(batch)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text)
        if segment.log is not None:
            writer = EpochLog.create(segment.log, COLUMNS, name=segment.name).take_over("test")
            covers = EpochRange.single(Epoch(0))
            writer.publish(Manifest(writer.log.header.id, covers, COLUMNS, (), (), query="q", batch=0))
    record = Record("chain", {}, {}, records, {})
    home.remember(record)
    return record


class TestTornFilesOfThePowerCutThatTookMore:
    """What `mending_checkpoints` lets a segment do again, its logs may have dropped."""

    def test_input_that_was_dropped_is_made_again(self, job: Job) -> None:
        job.run_to(5)
        job.log("words").move_cursor("counts", Epoch(5))
        job.log("words").move_cursor("report", Epoch(5))
        job.run("words")
        assert job.log("words").ranges()[0].first == 6, "what counts had finished is gone"
        tear(job, "counts", "commits/5", "offsets/6")
        removed = mend_checkpoints(job.home, job.home.known())
        assert [one.file.path for one in removed] == ["offsets/6", "commits/5"]
        found = mended(job)
        assert found.lost["words"] == "epochs that a reader needs"
        job = started_again(job.home)
        job.run_to(8)
        job.check(8)

    def test_input_that_is_there_is_only_read_again(self, job: Job) -> None:
        job.run_to(5)
        tear(job, "counts", "commits/5", "offsets/6")
        assert len(mend_checkpoints(job.home, job.home.known())) == 2
        assert mend(job.home, job.home.known()) is None
        job.run_to(8)
        job.check(8)


def tear(job: Job, segment: str, *names: str) -> None:
    """Leave files of a segment's checkpoint as a power cut does."""
    for name in names:
        (Path(job.home.checkpoint(segment)) / name).write_text("")
