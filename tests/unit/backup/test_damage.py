"""Disasters in the middle of a copy, and copies that are damaged."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.unit.backup.backup_job import INPUTS, Job, stored

from tidelock.backup.backup import Backup
from tidelock.backup.restore import Restored, restore
from tidelock.backup.store import BackupStore
from tidelock.epochs import Epoch
from tidelock.errors import BackendUnavailable, LogCorrupt, PipelineError
from tidelock.home.home import Home
from tidelock.recovery import Unrecoverable

CHANGES = ("write", "upload", "remove", "remove_folder")


@pytest.fixture(autouse=True)
def _no_power_cuts(monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests kill nothing: without waiting for the disk they take a tenth of the time."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "backup"


class Disaster(Exception):
    """The end of the process, and of its machine."""


class Doom:
    """Lets so many changes of a backup happen, then ends everything in the middle of the next one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, changes: int) -> None:
        self._left = changes
        for name in CHANGES:
            monkeypatch.setattr(BackupStore, name, self._counted(name, getattr(BackupStore, name)))

    def _counted(self, name: str, change: Callable[..., None]) -> Callable[..., None]:
        def counted(store: BackupStore, what: Any, *more: Any) -> None:
            if self._left == 0:
                if name == "write":
                    change(store, what, more[0][: len(more[0]) // 2])  # a target that is not atomic
                raise Disaster
            self._left -= 1
            change(store, what, *more)

        return counted


def copied_job(root: Path, store: Path) -> Job:
    """A job that was copied several times, its segments at different epochs."""
    job, backup = Job(Home(root)), Backup(Home(root), str(store))
    for last in range(2, 11, 2):
        job.run_to(last)
        job.run("words", "words", "counts")
        backup.copy()
    return job


def goes_on(store: Path, home: Home, last: int) -> Restored:
    """Restore, and check that the job ends as if nothing had happened but what the report tells."""
    report = restore(str(store), home)
    job = Job(home)
    lost = [epoch for epoch in range(report.sinks["report"] + 1) if f"out/report/epoch={epoch}" in report.damaged]
    assert {name: segment.restored for name, segment in report.segments.items()} == {
        segment: job.position(segment) for segment in INPUTS
    }
    job.run_to(last)
    job.check(last, lost)
    return report


# -- a disaster at any moment


@pytest.mark.chaos
def test_a_copy_can_be_restored_wherever_a_pass_ends(tmp_path: Path, store: Path) -> None:
    job = copied_job(tmp_path / "home", store)
    safe = {segment: job.position(segment) for segment in INPUTS}
    shutil.copytree(store, tmp_path / "before")
    job.run_to(13)
    for changes in range(1000):
        shutil.rmtree(store)
        shutil.copytree(tmp_path / "before", store)
        with pytest.MonkeyPatch.context() as patched:
            Doom(patched, changes)
            try:
                Backup(job.home, str(store)).copy()
                break
            except Disaster:
                pass
        report = goes_on(store, Home(tmp_path / f"after {changes}"), 15)
        assert all(report.segments[s].restored >= safe[s] for s in INPUTS), "not older than the last pass"
        shutil.rmtree(tmp_path / f"after {changes}")
    assert changes > 30


@pytest.mark.chaos
def test_a_new_generation_takes_over_only_when_it_is_complete(tmp_path: Path, store: Path) -> None:
    copied_job(tmp_path / "home", store)
    restore(str(store), Home(tmp_path / "second"))
    job = Job(Home(tmp_path / "second"))
    job.run_to(13)
    shutil.copytree(store, tmp_path / "before")
    for changes in range(0, 1000, 7):
        shutil.rmtree(store)
        shutil.copytree(tmp_path / "before", store)
        with pytest.MonkeyPatch.context() as patched:
            Doom(patched, changes)
            try:
                Backup(job.home, str(store)).copy()
                break
            except Disaster:
                pass
        goes_on(store, Home(tmp_path / f"after {changes}"), 15)
    assert changes > 30


@pytest.mark.parametrize("seed", range(12))
def test_disasters_at_random_moments(tmp_path: Path, store: Path, seed: int) -> None:
    """Five machines after each other; the job is lost on each of them while it is copied."""
    chance = random.Random(seed)
    home = Home(tmp_path / "0")
    Backup(Job(home).home, str(store)).copy()
    for machine in range(1, 6):
        job, backup = Job(home), Backup(home, str(store))
        for _ in range(chance.randrange(1, 6)):
            for _ in range(chance.randrange(25)):
                job.step(chance.choice(tuple(INPUTS)), commit=chance.random() < 0.9)
            with pytest.MonkeyPatch.context() as patched:
                Doom(patched, chance.randrange(150))
                try:
                    backup.copy()
                except Disaster:
                    if chance.random() < 0.7:
                        break
        shutil.rmtree(home.root)
        home = Home(tmp_path / str(machine))
        restore(str(store), home)
    last = max(Job(home).position(segment) for segment in INPUTS) + 3
    Job(home).run_to(last)
    Job(home).check(last)


# -- damage


def spoil(file: Path, how: str) -> None:
    data = file.read_bytes()
    if how == "torn":
        file.write_bytes(data[: len(data) // 2])
    elif how == "changed":
        file.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    else:
        file.unlink()


@pytest.mark.parametrize("how", ["torn", "changed", "missing"])
@pytest.mark.parametrize(
    "what",
    [
        "segments/words/snapshots/*",
        "segments/counts/snapshots/*",
        "segments/report/snapshots/*",
        "segments/words/files/offsets/*",
        "segments/counts/files/commits/*",
        "segments/counts/files/state/0/0/*.delta@*",
        "segments/words/files/sources/0/*",
        "logs/words/entries/*",
        "logs/counts/entries/*",
        "logs/words/parts/*",
        "logs/counts/parts/*",
    ],
)
def test_newest_damaged_files_cost_epochs_and_nothing_else(
    tmp_path: Path, store: Path, what: str, how: str
) -> None:
    copied_job(tmp_path / "home", store)
    newest = max(stored(store, what), key=lambda file: file.stat().st_mtime_ns)
    spoil(newest, how)
    report = goes_on(store, Home(tmp_path / "elsewhere"), 15)
    if not (how == "missing" and newest.suffix == ".json"):  # a document that never was is not missed
        assert any(newest.name in line for line in report.damaged) or "entries" in what, report.damaged


@pytest.mark.parametrize("seed", range(20))
def test_any_damaged_file_is_survived_or_told(tmp_path: Path, store: Path, seed: int) -> None:
    copied_job(tmp_path / "home", store)
    chance = random.Random(seed)
    files = [
        f for f in stored(store, "*") if f.name not in ("home.json", "log.json", "owner.json", "complete.json")
    ]
    for file in chance.sample(files, 3):
        spoil(file, chance.choice(["torn", "changed", "missing"]))
    home = Home(tmp_path / "elsewhere")
    try:
        goes_on(store, home, 15)
    except Unrecoverable:
        assert not list(home.root.glob("*")), "a restore that fails leaves nothing"


def test_a_gap_in_a_log_is_bridged_by_the_segment_before_it(tmp_path: Path, store: Path) -> None:
    """The slow reader needs what is damaged: its upstream goes back and makes it again."""
    job = Job(Home(tmp_path / "home"))
    job.run_to(2)
    job.run(*["words"] * 7, *["counts"] * 6)
    Backup(job.home, str(store)).copy()
    spoil(stored(store, "logs/words/entries/*")[5], "torn")
    report = goes_on(store, Home(tmp_path / "elsewhere"), 20)
    assert report.segments["report"].restored == 2
    assert report.segments["words"].restored < 9
    assert report.segments["words"].rolled_back == 9 - report.segments["words"].restored


def test_damaged_output_is_written_again(tmp_path: Path, store: Path) -> None:
    copied_job(tmp_path / "home", store)
    spoil(stored(store, "out/report/epoch=9/part.parquet")[0], "torn")
    report = goes_on(store, Home(tmp_path / "elsewhere"), 15)
    assert report.sinks["report"] == 8
    assert report.damaged == ("out/report/epoch=9",)


def test_old_output_that_is_lost_is_told(tmp_path: Path, store: Path) -> None:
    copied_job(tmp_path / "home", store)
    spoil(stored(store, "out/report/epoch=0/_manifest.json")[0], "missing")
    report = goes_on(store, Home(tmp_path / "elsewhere"), 15)
    assert report.sinks["report"] == 10, "too old to be made again"
    assert report.damaged == ("out/report/epoch=0",)


def test_output_behind_the_restored_epoch_goes(tmp_path: Path, store: Path) -> None:
    copied_job(tmp_path / "home", store)
    for file in stored(store, "segments/words/snapshots/*")[1:]:
        file.unlink()
    report = restore(str(store), Home(tmp_path / "elsewhere"))
    left = {int(f.name.partition("=")[2]) for f in (tmp_path / "elsewhere/out/report").glob("epoch=*")}
    assert left == set(range(report.sinks["report"] + 1))
    assert report.segments["report"].rolled_back > 0


def test_a_copy_that_cannot_be_glued_is_refused(tmp_path: Path, store: Path) -> None:
    copied_job(tmp_path / "home", store)
    for file in stored(store, "segments/words/snapshots/*"):
        spoil(file, "torn")
    home = Home(tmp_path / "elsewhere")
    with pytest.raises(Unrecoverable, match="'words' has no version left"):
        restore(str(store), home)
    assert not list(home.root.glob("*"))


# -- a home that has lost a log, before a start has mended it


@pytest.mark.parametrize("log", ["words", "counts"])
@pytest.mark.parametrize("made_anew", [False, True])
@pytest.mark.parametrize("remembers", [False, True], ids=["another process", "the same process"])
def test_a_home_that_has_lost_a_log_does_not_replace_its_copy(
    tmp_path: Path, store: Path, log: str, made_anew: bool, remembers: bool
) -> None:
    job = copied_job(tmp_path / "home", store)
    job.run_to(12)
    backup = Backup(job.home, str(store))
    if remembers:
        backup.copy()
    shutil.rmtree(tmp_path / "home" / "logs" / log)
    if made_anew:
        Job(job.home)
    for _ in range(2):
        with suppress(LogCorrupt):
            backup.copy()
    report = goes_on(store, Home(tmp_path / "elsewhere"), 15)
    assert report.segments["report"].copied >= 10


def test_why_there_is_no_copy_of_it_is_told(tmp_path: Path, store: Path) -> None:
    job = copied_job(tmp_path / "home", store)
    shutil.rmtree(tmp_path / "home" / "logs" / "words")
    with pytest.raises(LogCorrupt, match=r"the last whole copy stays.*'words'.*its log ends at epoch -1.*mends"):
        Backup(job.home, str(store)).copy()


# -- refusals


def test_a_home_that_is_not_empty_is_refused(tmp_path: Path, store: Path) -> None:
    copied_job(tmp_path / "home", store)
    with pytest.raises(PipelineError, match="is not empty"):
        restore(str(store), Home(tmp_path / "home"))


def test_a_place_without_copy_is_refused(tmp_path: Path, store: Path) -> None:
    with pytest.raises(PipelineError, match="no complete copy"):
        restore(str(store), Home(tmp_path / "elsewhere"))


def test_a_first_copy_that_is_not_complete_is_refused(tmp_path: Path, store: Path) -> None:
    job = Job(Home(tmp_path / "home"))
    job.run_to(3)
    with pytest.MonkeyPatch.context() as patched:
        Doom(patched, 20)
        with pytest.raises(Disaster):
            Backup(job.home, str(store)).copy()
    with pytest.raises(PipelineError, match="before its first copy was complete"):
        restore(str(store), Home(tmp_path / "elsewhere"))
    Backup(job.home, str(store)).copy()
    goes_on(store, Home(tmp_path / "elsewhere"), 6)


def test_a_log_that_is_there_already_is_not_overwritten(tmp_path: Path, store: Path) -> None:
    copied_job(tmp_path / "home", store)
    home = Home(tmp_path / "elsewhere", logs=f"file:{tmp_path}/home/logs")
    with pytest.raises(PipelineError, match="there is a log at"):
        restore(str(store), home)
    assert Job(Home(tmp_path / "home")).log("words").ranges(), "it is as it was"


def test_a_target_that_does_not_answer_is_told(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied_job(tmp_path / "home", store)

    def broken(self: BackupStore, name: str, target: Path) -> None:
        raise BackendUnavailable("no connection")

    monkeypatch.setattr(BackupStore, "download", broken)
    with pytest.raises(BackendUnavailable):
        restore(str(store), Home(tmp_path / "elsewhere"))
    assert not list((tmp_path / "elsewhere").glob("*"))


def test_positions_are_those_of_the_readers(tmp_path: Path, store: Path) -> None:
    copied_job(tmp_path / "home", store)
    restore(str(store), Home(tmp_path / "elsewhere"))
    job = Job(Home(tmp_path / "elsewhere"))
    assert job.log("words").cursors() == {s: Epoch(job.position(s)) for s in ("counts", "report")}
