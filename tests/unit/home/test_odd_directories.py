"""Directories with letters that mean something in a URL: a job lives in one as in any other, and in no other."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.backup.backup_job import INPUTS, Job

from tidelock.backup.backup import Backup
from tidelock.backup.restore import restore
from tidelock.errors import PipelineError
from tidelock.home.home import Home
from tidelock.log import EpochLog, open_store

ODD = ["job#1", "a%41b", "a%2fb", "what?", "a b", "jos\u00e9;x=1", "[x]", "a:b@c", "new\nline", "50%"]


@pytest.fixture(autouse=True)
def _no_power_cuts(monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests kill nothing: without waiting for the disk they take a tenth of the time."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def run(job: Job, epochs: int) -> None:
    for _ in range(epochs):
        job.run(*INPUTS)


@pytest.mark.parametrize("name", ODD)
def test_a_whole_life(tmp_path: Path, name: str) -> None:
    """It runs, is copied, restored, goes on, and leaves nothing anywhere else."""
    job = Job(Home(tmp_path / name / "home"))
    run(job, 4)
    backup = f"{tmp_path}/{name}/backup"
    Backup(job.home, backup).copy()
    again = Home(tmp_path / name / "again")
    assert restore(backup, again).damaged == ()
    restored = Job(again.as_recorded())
    run(restored, 3)
    restored.check(6)
    assert [found.name for found in tmp_path.iterdir()] == [name]
    assert {found.name for found in (tmp_path / name).iterdir()} == {"home", "backup", "again"}
    for home in (job.home, again):
        assert EpochLog.open(home.log("words")).url == home.log("words")
        assert (home.root / "logs/words/log.json").exists()


def test_neighbours_share_nothing(tmp_path: Path) -> None:
    """Before, everything behind the # was cut off, and both had their logs in one directory."""
    one, two = Job(Home(tmp_path / "job#1")), Job(Home(tmp_path / "job#2"))
    run(one, 3)
    run(two, 5)
    one.check(2)
    two.check(4)


@pytest.mark.parametrize("name", ODD)
def test_what_else_a_home_keeps_in_logs(tmp_path: Path, name: str) -> None:
    home = Home(tmp_path / name)
    for url, where in ((home.dead("a", "b"), "dead/a.b"), (home.snapshots("sums"), "snapshots/sums")):
        EpochLog.create(url, {"type": "struct", "fields": []}, name="it")
        assert (tmp_path / name / where / "log.json").exists()


@pytest.mark.parametrize("name", ODD)
def test_a_plain_path_is_the_directory_of_that_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for path in (f"{tmp_path}/{name}/logs", f"./{name}/logs"):
        home = Home("home", path)
        assert open_store(home.log("words")).url == open_store(f"{path}/words").url
        log = EpochLog.create(home.log("words"), {"type": "struct", "fields": []}, name="words")
        assert EpochLog.open(log.url).header.id == log.header.id
    assert (tmp_path / name / "logs/words/log.json").exists()


@pytest.mark.parametrize("url", ["file:/data/job#1", "file:/data/job?replicas=1"])
def test_a_url_of_a_directory_has_no_options(url: str) -> None:
    """They were cut off, so that several jobs had their logs in one directory."""
    with pytest.raises(PipelineError, match=r"%23 for # and %3F for \?"):
        Home("home", url)


def test_homes_of_0_1_0_find_their_logs(tmp_path: Path) -> None:
    """Their paths stand in records as they are, in URLs as on the command line."""
    root = tmp_path / "jos\u00e9 b"
    for prefix in ("file:", ""):
        home = Home(root / prefix.strip(":"))
        plain = f"{prefix}{home.root}/logs"
        job = Job(home)
        run(job, 3)
        record = home.known()
        segments = tuple(replace(s, log=s.log and f"{plain}/{s.name}") for s in record.segments)
        home.remember(replace(record, segments=segments))
        old = Job(Home(home.root).as_recorded())
        assert old.home.log("words") == f"{plain}/words"
        run(old, 2)
        old.check(4)
