"""Copying a home, and what the copy keeps, follows and tells."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import shutil
import threading
from pathlib import Path

import pytest
from tests.unit.backup.backup_job import RETAINED, Job, names, stored

from tidelock.backup.backup import CURSOR, Backup, release, status
from tidelock.backup.checkpoints import CheckpointCopy
from tidelock.backup.restore import restore
from tidelock.backup.store import BackupStore
from tidelock.errors import BackendUnavailable, PipelineError
from tidelock.home.home import Home, Record
from tidelock.log import EpochLog


@pytest.fixture(autouse=True)
def _no_power_cuts(monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests kill nothing: without waiting for the disk they take a tenth of the time."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(Home(tmp_path / "home"))


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "backup"


def restored(job: Job, store: Path | str, to: str = "elsewhere") -> Job:
    """The job after the loss of its home."""
    shutil.rmtree(job.home.root)
    home = Home(job.home.root.parent / to)
    restore(str(store), home)
    return Job(home)


# -- there and back


def test_logs_in_redis_are_copied_and_brought_back(tmp_path: Path, store: Path, redis_url: str) -> None:
    job = Job(Home(tmp_path / "home", redis_url))
    job.run_to(5)
    Backup(job.home, str(store)).copy()
    job.run_to(7)
    again = restored(job, store)
    assert again.home.log("words").startswith("file:")
    again.run_to(20)
    again.check(20)


def test_a_job_goes_on_elsewhere(job: Job, store: Path) -> None:
    job.run_to(5)
    Backup(job.home, str(store)).copy()
    job.run_to(7)
    again = restored(job, store)
    assert [again.position(s) for s in ("words", "counts", "report")] == [5, 5, 5]
    again.run_to(20)
    again.check(20)


def test_the_readers_of_a_restored_log_are_told_what_is_published_again(job: Job, store: Path) -> None:
    job.run_to(5)
    Backup(job.home, str(store)).copy()
    again = restored(job, store)
    assert again.log("words").recalls() == (5,)
    again.run_to(8)
    Backup(again.home, str(store)).copy()
    assert restored(again, store, "further").log("words").recalls() == (5, 8)


def test_segments_are_copied_at_different_epochs(job: Job, store: Path) -> None:
    job.run(*["words"] * 9, *["counts"] * 6, *["report"] * 2)
    progress = Backup(job.home, str(store)).copy()
    assert progress.copied == {"words": 8, "counts": 5, "report": 1}
    again = restored(job, store)
    assert [again.position(s) for s in ("words", "counts", "report")] == [8, 5, 1]
    assert again.log("words").cursors() == {"counts": 5, "report": 1}
    again.run_to(20)
    again.check(20)


def test_a_job_that_has_done_nothing_is_copied_too(job: Job, store: Path) -> None:
    Backup(job.home, str(store)).copy()
    again = restored(job, store)
    again.run_to(3)
    again.check(3)


def test_only_what_is_new_is_copied(job: Job, store: Path) -> None:
    job.run_to(9)
    backup = Backup(job.home, str(store))
    first = backup.copy().bytes
    assert backup.copy().bytes == 0
    again = Backup(job.home, str(store))
    assert again.copy().bytes == 0
    job.run_to(10)
    assert 0 < again.copy().bytes < first


def test_any_file_system_will_do(job: Job) -> None:
    url = f"memory://{job.home.root.name}-{id(job)}"
    job.run_to(5)
    backup = Backup(job.home, url)
    for last in range(6, 12):
        backup.copy()
        job.run_to(last)
    again = restored(job, url)
    again.run_to(15)
    again.check(15)


@pytest.mark.parametrize("url", ["nonsense://place", "s3://bucket/without/s3fs"])
def test_a_place_that_cannot_be_is_named(job: Job, url: str) -> None:
    with pytest.raises(PipelineError, match="cannot hold a backup"):
        Backup(job.home, url)


# -- readers ahead of writers


def test_a_reader_of_what_is_not_committed_is_copied_one_batch_earlier(job: Job, store: Path) -> None:
    job.run_to(3)
    job.step("words", commit=False)
    job.run("counts")
    assert Backup(job.home, str(store)).copy().copied == {"words": 3, "counts": 3, "report": 3}
    again = restored(job, store)
    assert again.log("words").ranges()[-1].last == 3, "what nobody has committed is made again"
    again.run_to(9)
    again.check(9)


def test_a_reader_that_moves_on_while_it_is_copied_does_no_harm(
    job: Job, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All segments move on during the pass, and clean up."""
    job.run_to(RETAINED)
    upload, uploads = BackupStore.upload, itertools.count()

    def busy(self: BackupStore, name: str, source: Path) -> None:
        upload(self, name, source)
        if next(uploads) % 5 == 0:
            job.run_to(job.position("words") + 1)

    monkeypatch.setattr(BackupStore, "upload", busy)
    copied = Backup(job.home, str(store)).copy().copied
    monkeypatch.undo()
    assert copied["report"] < copied["counts"] < copied["words"]
    again = restored(job, store)
    assert {s: again.position(s) for s in copied} == copied
    last = copied["words"] + 9
    again.run_to(last)
    again.check(last)


# -- what Spark does meanwhile


def test_a_file_that_is_cleaned_up_while_copying_is_not_missed(
    job: Job, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.run_to(5)
    victim = Path(job.home.checkpoint("counts")) / "state/0/0/1.delta"
    upload = BackupStore.upload

    def cleaning(self: BackupStore, name: str, source: Path) -> None:
        upload(self, name, source)
        victim.unlink(missing_ok=True)

    monkeypatch.setattr(BackupStore, "upload", cleaning)
    Backup(job.home, str(store)).copy()
    again = restored(job, store)
    again.run_to(9)
    again.check(9)


def test_a_file_that_changes_while_copying_is_copied_again(
    job: Job, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.run_to(5)
    file = Path(job.home.checkpoint("words")) / "sources/0/5"
    upload = BackupStore.upload

    def growing(self: BackupStore, name: str, source: Path) -> None:
        if source == file and file.read_text() == "a file":
            file.write_text("a file that grew")
        upload(self, name, source)

    monkeypatch.setattr(BackupStore, "upload", growing)
    Backup(job.home, str(store)).copy()
    (copy,) = stored(store, "files/sources/0/5@*")
    assert copy.read_text() == "a file that grew"
    restored(job, store)


def test_clean_up_that_never_ends_is_told(job: Job, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job.run_to(5)

    def gone(self: CheckpointCopy, path: str, source: Path) -> None:
        raise FileNotFoundError(path)

    monkeypatch.setattr(CheckpointCopy, "_store_file", gone)
    with pytest.raises(BackendUnavailable, match="minBatchesToRetain"):
        Backup(job.home, str(store)).copy()


# -- what is kept


def test_files_that_were_cleaned_up_are_not_remembered(job: Job, store: Path) -> None:
    copy = CheckpointCopy(BackupStore(str(store)), "counts", job.home.checkpoint("counts"))
    for last in range(0, 60, 5):
        job.run_to(last)
        copied = copy.copy_files(last)
        assert copy._copied.keys() == copied.keys()
    assert f"offsets/{last}" in copied and "offsets/0" not in copied


def test_old_snapshots_go_with_their_files_and_entries(job: Job, store: Path) -> None:
    backup = Backup(job.home, str(store))
    for last in range(0, 60, 5):
        job.run_to(last)
        backup.copy()
    assert len(stored(store, "segments/counts/snapshots/*")) == 3
    held = job.log("words").ranges()
    assert names(stored(store, "logs/words/entries/*"))[0] == f"{held[0].first:012}-{held[0].last:012}.json"
    assert len(stored(store, "logs/words/parts/*")) == len(stored(store, "logs/words/entries/*"))
    assert len(stored(store, "segments/counts/files/offsets/*")) <= RETAINED + 2 * 5 + 1
    assert job.log("words").cursor(CURSOR) == 45
    assert held[0].first == 41, "truncated by the last publish, when the cursor was at 40"


def test_nothing_is_truncated_before_it_is_copied(job: Job, store: Path) -> None:
    job.run_to(4)
    backup = Backup(job.home, str(store))
    backup.copy()
    job.run_to(20)
    held = job.log("words").ranges()
    assert (held[0].first, held[-1].last) == (4, 20)
    backup.copy()


def test_a_log_that_no_segment_reads_gets_no_cursor(job: Job, store: Path) -> None:
    record = job.home.known()
    words = dataclasses.replace(record.segments[0])
    job.home.remember(dataclasses.replace(record, segments=(words,)))
    job.run(*["words"] * 4)
    Backup(job.home, str(store)).copy()
    assert job.log("words").cursors() == {}
    assert len(stored(store, "logs/words/entries/*")) == 4


def test_logs_stop_waiting_for_a_backup_that_was_given_up(job: Job, store: Path) -> None:
    job.run_to(4)
    Backup(job.home, str(store)).copy()
    release(job.home)
    job.run_to(9)
    job.run("words")
    assert CURSOR not in job.log("words").cursors()
    assert job.log("words").ranges()[0].first == 9


# -- histories


def test_a_restored_home_begins_a_new_generation(job: Job, store: Path) -> None:
    job.run_to(5)
    job.step("words")
    job.step("words", commit=False)
    Backup(job.home, str(store)).copy()
    old = [folder.name for folder in store.iterdir() if folder.is_dir()]
    second = restored(job, store, "second")
    second.run_to(9)
    progress = Backup(second.home, str(store)).copy()
    assert [progress.generation] == [folder.name for folder in store.iterdir() if folder.is_dir()] != old
    third = restored(second, store, "third")
    assert third.position("words") == 9
    third.run_to(20)
    third.check(20)


def test_a_home_that_was_put_back_begins_a_new_generation(job: Job, store: Path, tmp_path: Path) -> None:
    job.run_to(5)
    shutil.copytree(job.home.root, tmp_path / "older")
    backup = Backup(job.home, str(store))
    first = backup.copy().generation
    job.run_to(9)
    assert backup.copy().generation == first
    shutil.rmtree(job.home.root)
    (tmp_path / "older").rename(job.home.root)
    job.run_to(7)
    assert backup.copy().generation != first
    job.run_to(8)
    again = restored(job, store)
    assert again.position("words") == 7
    again.run_to(12)
    again.check(12)


def test_a_copy_goes_on_after_a_long_pause(job: Job, store: Path) -> None:
    job.run_to(5)
    backup = Backup(job.home, str(store))
    first = backup.copy().generation
    job.run_to(5 + 3 * RETAINED)
    assert backup.copy().generation == first
    restored(job, store).run_to(50)


def test_the_copy_of_another_home_is_not_touched(job: Job, store: Path, tmp_path: Path) -> None:
    job.run_to(5)
    Backup(job.home, str(store)).copy()
    (store / "photos").mkdir()
    before = sorted(store.rglob("*"))
    other = Job(Home(tmp_path / "other"))
    other.run_to(5)
    with pytest.raises(PipelineError, match="the copy of another home"):
        Backup(other.home, str(store)).copy()
    assert sorted(store.rglob("*")) == before


# -- what is told


def test_the_freshness_gap(job: Job, store: Path) -> None:
    now = [1000.0]
    job.run_to(5)
    Backup(job.home, str(store), clock=lambda: now[0]).copy()
    now[0] = 1030.0
    job.run("words", "words", "counts")
    told = status(job.home, clock=lambda: now[0])
    assert told["url"] == str(store)
    assert told["error"] is None
    assert told["segments"]["words"] == {"copied": 5, "taken_at": 1000.0, "live": 7, "behind": 2, "age": 30.0}
    assert told["segments"]["report"] == {"copied": 5, "taken_at": 1000.0, "live": 5, "behind": 0, "age": 0.0}


def test_a_home_without_backup_says_so(job: Job) -> None:
    with pytest.raises(PipelineError, match="has no backup"):
        status(job.home)


def test_a_target_that_fails_is_tried_again(job: Job, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job.run_to(5)
    stop, errors = threading.Event(), []
    write = BackupStore.write

    def full(self: BackupStore, name: str, data: bytes) -> None:
        raise BackendUnavailable("no room")

    def repair(error: Exception) -> None:
        errors.append((str(error), status(job.home)["error"]))
        monkeypatch.setattr(BackupStore, "write", write if len(errors) == 2 else full)

    def stop_when_copied(self: Home, name: str, fields: dict[str, object]) -> None:
        put(self, name, fields)
        if fields["error"] is None:
            stop.set()

    put = Home.put_document
    monkeypatch.setattr(BackupStore, "write", full)
    monkeypatch.setattr(Home, "put_document", stop_when_copied)
    Backup(job.home, str(store)).run_until(stop, 0.0, repair)
    assert errors == [("no room", "BackendUnavailable: no room")] * 2
    assert status(job.home)["error"] is None
    restored(job, store).run_to(9)


def test_what_a_file_system_raises_becomes_one_error(job: Job, tmp_path: Path) -> None:
    (tmp_path / "a file").write_text("")
    job.run_to(1)
    with pytest.raises(BackendUnavailable, match="does not work"):
        Backup(job.home, str(tmp_path / "a file")).copy()


# -- dead letters, records


def test_what_was_set_aside_stays_aside(job: Job, store: Path) -> None:
    job.run(*["words"] * 6)
    covers = job.log("words").ranges()[2]
    job.log("words").set_aside("counts", job.log("words").manifest(covers))
    letters = EpochLog.create(job.home.dead("counts", "words"), job.log("words").header.schema, name="dead")
    writer = letters.take_over("test")
    manifest = job.log("words").manifest(covers)
    data = job.log("words").store.read_part(manifest.parts[0].file)
    letters.store.write_part(manifest.parts[0].file, lambda file: file.write(data))
    writer.publish(dataclasses.replace(manifest, log=letters.header.id))
    Backup(job.home, str(store)).copy()
    again = restored(job, store)
    assert again.log("words").is_set_aside("counts", again.log("words").manifest(covers))
    brought = EpochLog.open(again.home.dead("counts", "words"))
    assert [covers for covers, found in brought.verify() if found.covers == covers] == [covers]


def test_the_record_tells_where_the_logs_are_now(job: Job, store: Path, tmp_path: Path) -> None:
    job.run_to(2)
    Backup(job.home, str(store)).copy()
    shutil.rmtree(job.home.root)
    home = Home(tmp_path / "elsewhere", logs=f"file:{tmp_path}/logs")
    report = restore(str(store), home)
    record: Record = home.known()
    assert [segment.log for segment in record.segments] == [
        f"file:{tmp_path}/logs/words",
        f"file:{tmp_path}/logs/counts",
        None,
    ]
    assert record.subjects == {"public.counts": f"file:{tmp_path}/logs/counts"}
    assert EpochLog.open(f"file:{tmp_path}/logs/words").ranges()[-1].last == 2
    assert json.loads(json.dumps(dataclasses.asdict(report)))["sinks"] == {"report": 2}
