"""Several runs that copy to one place: a zombie, siblings, and copies that the first release has made."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.backup.backup_job import Job

from tidelock.backup import restore as restoring
from tidelock.backup.backup import CURSOR, Backup, status
from tidelock.backup.restore import restore
from tidelock.backup.store import BackupStore
from tidelock.errors import Fenced, PipelineError
from tidelock.home.home import Home
from tidelock.log.sealed import seal


@pytest.fixture(autouse=True)
def _no_power_cuts(monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests kill nothing: without waiting for the disk they take a tenth of the time."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture(params=["directory", "memory"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "backup") if request.param == "directory" else f"memory://{tmp_path.name}-{id(request)}"


@pytest.fixture
def first(tmp_path: Path) -> Job:
    job = Job(Home(tmp_path / "first"))
    job.run_to(5)
    return job


def restored(url: str, folder: Path) -> Job:
    home = Home(folder)
    restore(url, home)
    return Job(home)


def generations(url: str) -> list[str]:
    return BackupStore(url).folders()


def goes_on(url: str, folder: Path, epoch: int) -> None:
    """A restore from the place finds this epoch, and the job goes on there."""
    job = restored(url, folder)
    assert job.position("words") == epoch
    job.run_to(epoch + 3)
    job.check(epoch + 3)


def in_the_middle(patched: pytest.MonkeyPatch, happens: Callable[[], object]) -> None:
    """Let something happen once, when the next pass has claimed its place and uploads its first file."""
    upload = BackupStore.upload

    def uploading(store: BackupStore, name: str, source: Path) -> None:
        patched.setattr(BackupStore, "upload", upload)
        happens()
        upload(store, name, source)

    patched.setattr(BackupStore, "upload", uploading)


def lost_in_the_middle(job: Job, url: str) -> None:
    """The job's machine is lost in the middle of a pass."""

    def lost() -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patched, pytest.raises(KeyboardInterrupt):
        in_the_middle(patched, lost)
        Backup(job.home, url).copy()


# -- a zombie


def test_a_zombie_leaves_the_copy_of_the_live_job_alone(first: Job, url: str, tmp_path: Path) -> None:
    zombie = Backup(first.home, url)
    zombie.copy()
    live = restored(url, tmp_path / "second")
    live.run_to(9)
    of_live = Backup(live.home, url).copy().generation
    first.run_to(7)
    with pytest.raises(Fenced, match="no longer count"):
        zombie.copy()
    assert generations(url) == [of_live]
    goes_on(url, tmp_path / "third", 9)


def test_a_zombie_that_is_started_again_is_refused_too(first: Job, url: str, tmp_path: Path) -> None:
    Backup(first.home, url).copy()
    live = restored(url, tmp_path / "second")
    Backup(live.home, url).copy()
    with pytest.raises(Fenced, match="give another place"):
        Backup(first.home, url).copy()
    live.run_to(8)
    Backup(live.home, url).copy()
    goes_on(url, tmp_path / "third", 8)


def test_a_displaced_run_stops_copying_and_says_so_once(first: Job, url: str, tmp_path: Path) -> None:
    Backup(first.home, url).copy()
    Backup(restored(url, tmp_path / "second").home, url).copy()
    told: list[Exception] = []
    Backup(first.home, url).run_until(threading.Event(), 0.0, told.append)
    assert [type(error) for error in told] == [Fenced]
    assert "Fenced" in status(first.home)["error"]
    assert first.log("words").cursor(CURSOR) is None, "the logs wait for no copy any more"
    first.run_to(9)


# -- siblings, and copies that were never complete


def test_of_two_restored_from_one_copy_the_second_is_refused(first: Job, url: str, tmp_path: Path) -> None:
    Backup(first.home, url).copy()
    second, third = (restored(url, tmp_path / name) for name in ("second", "third"))
    second.run_to(8)
    kept = Backup(second.home, url).copy().generation
    third.run_to(9)
    with pytest.raises(Fenced, match="no longer count"):
        Backup(third.home, url).copy()
    assert generations(url) == [kept]
    goes_on(url, tmp_path / "fourth", 8)


def test_a_machine_that_was_lost_before_its_copy_was_complete_is_succeeded(
    first: Job, url: str, tmp_path: Path
) -> None:
    Backup(first.home, url).copy()
    second = restored(url, tmp_path / "second")
    lost_in_the_middle(second, url)
    assert len(generations(url)) == 2
    third = restored(url, tmp_path / "third")
    third.run_to(7)
    kept = Backup(third.home, url).copy().generation
    assert generations(url) == [kept], "what the lost machine had begun went with its copy"
    with pytest.raises(Fenced):
        Backup(second.home, url).copy()
    goes_on(url, tmp_path / "fourth", 7)


def test_who_is_lost_while_it_comes_second_does_not_displace_the_first(
    first: Job, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one claims the place while the first one makes its first copy, and then it is gone."""
    Backup(first.home, url).copy()
    second, third = (restored(url, tmp_path / name) for name in ("second", "third"))
    second.run_to(7)
    of_second = Backup(second.home, url)
    with monkeypatch.context() as patched:
        in_the_middle(patched, lambda: lost_in_the_middle(third, url))
        kept = of_second.copy().generation
    second.run_to(8)
    of_second.copy()
    assert kept in generations(url)
    goes_on(url, tmp_path / "fourth", 8)


def test_of_two_in_their_first_pass_the_first_that_is_through_owns_the_place(
    first: Job, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Backup(first.home, url).copy()
    second, third = (restored(url, tmp_path / name) for name in ("second", "third"))
    third.run_to(7)
    kept: list[str] = []
    BackupStore(url).write("current.json", b"a run of 0.1.0 has left this, and it is torn")
    with monkeypatch.context() as patched:
        in_the_middle(patched, lambda: kept.append(Backup(third.home, url).copy().generation))
        with pytest.raises(Fenced, match="no longer count"):
            Backup(second.home, url).copy()
    assert generations(url) == kept
    goes_on(url, tmp_path / "fourth", 7)


def test_a_home_is_restored_at_the_path_that_it_had(first: Job, url: str, tmp_path: Path) -> None:
    """Then everything looks as if the old copy were its own; it is not, and the zombie still writes there."""
    zombie = Backup(first.home, url)
    before = zombie.copy().generation
    first.home.root.rename(tmp_path / "cut off")
    live = restored(url, tmp_path / "first")
    live.run_to(7)
    assert Backup(live.home, url).copy().generation != before


def test_an_old_run_replaces_its_copy_at_the_end_of_a_restore(
    first: Job, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was cut off, and is put back and copied once more just when the new home is complete: it is a zombie."""
    Backup(first.home, url).copy()
    sync = restoring.sync_tree

    def late(root: Path) -> None:
        first.home.remember(replace(first.home.known(), plan={"put": "back"}))
        Backup(first.home, url).copy()
        sync(root)

    with monkeypatch.context() as patched:
        patched.setattr(restoring, "sync_tree", late)
        live = restored(url, tmp_path / "second")
    live.run_to(8)
    kept = Backup(live.home, url).copy().generation
    assert generations(url) == [kept]
    with pytest.raises(Fenced):
        Backup(first.home, url).copy()


# -- a copy without batches, and a home that was started anew


@pytest.fixture
def idle(url: str, tmp_path: Path) -> Job:
    """A job that is copied before it has done anything."""
    job = Job(Home(tmp_path / "idle"))
    Backup(job.home, url).copy()
    return job


def test_a_job_that_is_started_anew_takes_the_place_of_a_copy_without_batches(
    idle: Job, first: Job, url: str, tmp_path: Path
) -> None:
    kept = Backup(first.home, url).copy().generation
    assert generations(url) == [kept]
    idle.run_to(3)
    for _ in range(2):
        with pytest.raises(Fenced, match="was restored from there, or started anew"):
            Backup(idle.home, url).copy()
    goes_on(url, tmp_path / "second", 5)


def test_a_job_that_is_started_anew_goes_on_with_what_it_has_claimed(
    idle: Job, first: Job, url: str, tmp_path: Path
) -> None:
    """Also if the copy that it replaces has got batches meanwhile: who made them is displaced."""
    idle.run_to(2)
    with pytest.MonkeyPatch.context() as patched, pytest.raises(Fenced):
        in_the_middle(patched, lambda: lost_in_the_middle(first, url))
        Backup(idle.home, url).copy()
    Backup(first.home, url).copy()
    goes_on(url, tmp_path / "second", 5)


def test_a_copy_with_batches_is_not_replaced_by_a_job_that_is_started_anew(
    first: Job, url: str, tmp_path: Path
) -> None:
    kept = Backup(first.home, url).copy().generation
    with pytest.raises(PipelineError, match="the copy of another home"):
        Backup(Job(Home(tmp_path / "anew")).home, url).copy()
    assert generations(url) == [kept]


# -- one home, two processes


def test_two_processes_do_not_copy_one_home_at_once(first: Job, url: str) -> None:
    with Backup(first.home, url).alone(), pytest.raises(PipelineError, match="already copies"):  # noqa: SIM117
        with Backup(first.home, url).alone():
            pass


# -- copies of 0.1.0


def as_0_1_0(store: Path) -> str:
    """Make the one copy at ``store`` look as if 0.1.0 had made it."""
    (folder,) = (folder for folder in store.iterdir() if folder.is_dir())
    (folder / "owner.json").unlink()
    (folder / "complete.json").unlink()
    old = folder.rename(store / "20260101T120000-0123abcd")
    (store / "current.json").write_bytes(seal({"generation": old.name}))
    return old.name


@pytest.fixture
def old(first: Job, tmp_path: Path) -> str:
    Backup(first.home, str(tmp_path / "backup")).copy()
    return as_0_1_0(tmp_path / "backup")


def test_a_copy_of_0_1_0_is_restored_and_then_succeeded(first: Job, old: str, tmp_path: Path) -> None:
    store = tmp_path / "backup"
    live = restored(str(store), tmp_path / "second")
    live.run_to(8)
    assert [Backup(live.home, str(store)).copy().generation] == [f.name for f in store.iterdir() if f.is_dir()]
    with pytest.raises(Fenced):
        Backup(first.home, str(store)).copy()
    (store / "current.json").write_bytes(seal({"generation": old}))  # as a zombie of 0.1.0 would leave it
    goes_on(str(store), tmp_path / "third", 8)


def test_a_copy_of_0_1_0_is_continued(first: Job, old: str, tmp_path: Path) -> None:
    store = tmp_path / "backup"
    first.run_to(8)
    assert Backup(first.home, str(store)).copy().generation == old
    live = restored(str(store), tmp_path / "second")
    assert live.position("words") == 8
    Backup(live.home, str(store)).copy()
    with pytest.raises(Fenced):
        Backup(first.home, str(store)).copy()


def test_a_copy_that_is_continued_does_not_need_what_0_1_0_wrote(first: Job, old: str, tmp_path: Path) -> None:
    store = tmp_path / "backup"
    Backup(first.home, str(store)).copy()
    (store / "current.json").write_bytes(b"torn")
    first.run_to(8)
    assert Backup(first.home, str(store)).copy().generation == old
    goes_on(str(store), tmp_path / "second", 8)


def test_a_home_that_0_1_0_has_restored_replaces_the_copy(first: Job, old: str, tmp_path: Path) -> None:
    store = tmp_path / "backup"
    live = restored(str(store), tmp_path / "second")
    (live.home.root / "ancestry.json").unlink()
    live.run_to(6)
    kept = Backup(live.home, str(store)).copy().generation
    assert [kept] == [f.name for f in store.iterdir() if f.is_dir()]
    goes_on(str(store), tmp_path / "third", 6)
