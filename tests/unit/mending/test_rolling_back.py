"""A roll-back is on disk before it is told, and is never told if it did not happen."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.unit.backup.backup_job import Job

from tidelock.epochs import BEFORE_FIRST, Epoch
from tidelock.errors import BackendUnavailable
from tidelock.home.home import Home
from tidelock.mending.mending import mend
from tidelock.mending.rolling_back import finish_rolling_back, roll_back
from tidelock.placing import remove_tree
from tidelock.spark.checkpoint.replay import Replay, read_replay


@pytest.fixture
def job(tmp_path: Path) -> Job:
    job = Job(Home(tmp_path / "home"))
    job.run_to(4)
    return job


@pytest.mark.parametrize("version", [BEFORE_FIRST, Epoch(2)])
def test_what_was_removed_is_on_disk_before_it_is_told(
    job: Job, version: Epoch, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    told: list[set[Path]] = []
    write = Replay.write
    before = folders(job)

    def tell(replay: Replay, path: str) -> None:
        told.append(set(synced))
        write(replay, path)

    monkeypatch.setattr(
        os, "fsync", lambda descriptor: synced.append(Path(f"/proc/self/fd/{descriptor}").resolve())
    )
    monkeypatch.setattr(Replay, "write", tell)
    roll_back(job.home, "counts", version)
    after = folders(job)
    changed = {folder for folder, names in before.items() if folder in after and after[folder] != names}
    assert changed
    assert changed <= told[1], "what is done is told at last"
    assert job.position("counts") == version


def folders(job: Job) -> dict[Path, set[str]]:
    """What the folders of a checkpoint hold."""
    root = Path(job.home.checkpoint("counts"))
    return {f: {file.name for file in f.iterdir()} for f in (root, *root.rglob("*")) if f.is_dir()}


@pytest.mark.parametrize("version", [BEFORE_FIRST, Epoch(2)])
def test_a_roll_back_that_fails_is_told_and_done_again(
    job: Job, version: Epoch, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_to_roll_back(job, version, monkeypatch)
    finish_rolling_back(job.home, ["counts"])
    assert job.position("counts") == version
    assert not list(Path(job.home.checkpoint("counts")).rglob("4.delta"))


def fail_to_roll_back(job: Job, version: Epoch, monkeypatch: pytest.MonkeyPatch) -> None:
    """Roll `counts` back where one of its files cannot be removed."""
    unlink = os.unlink

    def refused(path: str | Path, *, dir_fd: int | None = None) -> None:
        if Path(path).name == "4.delta":
            raise PermissionError(13, "Permission denied", str(path))
        unlink(path, dir_fd=dir_fd)

    with monkeypatch.context() as patched:
        patched.setattr(os, "unlink", refused)
        with pytest.raises(BackendUnavailable, match=r"could not be rolled back .*Permission denied"):
            roll_back(job.home, "counts", version)
    assert not is_rolled_back(job)


def is_rolled_back(job: Job) -> bool:
    replay = read_replay(job.home.replay("counts"))
    assert replay is not None
    return replay.rolled_back


@pytest.mark.parametrize("last", [6, 15])
def test_a_segment_that_has_run_on_is_not_taken_back_to_where_it_was_long_ago(
    job: Job, last: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the end its checkpoint still knows the batch to which it was to go back, or has forgotten that."""
    fail_to_roll_back(job, Epoch(2), monkeypatch)
    job.run("counts", "counts")
    job.run_to(last)
    job.run("words")  # and its log drops what it has read
    assert mend(job.home, job.home.known()) is None
    assert is_rolled_back(job), "nothing of it is left to be done"
    job.run_to(last + 2)
    job.check(last + 2)


def test_torn_offsets_are_no_reason_to_stay(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    fail_to_roll_back(job, Epoch(2), monkeypatch)
    (Path(job.home.checkpoint("counts")) / "offsets" / "4").write_text("")
    finish_rolling_back(job.home, ["counts"])
    assert (job.position("counts"), is_rolled_back(job)) == (2, True)


def test_a_folder_that_is_not_there_is_not_missed(tmp_path: Path) -> None:
    remove_tree(tmp_path / "nothing", durable=True)
    remove_tree(tmp_path / "nothing/below", durable=True)
