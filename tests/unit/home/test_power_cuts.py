"""A home and all above it are there after a loss of power, however it came to be."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.power_cut import Disk
from tests.unit.backup.backup_job import Job

from tidelock.backup.backup import Backup
from tidelock.backup.restore import restore
from tidelock.home.home import Home


def test_a_home_in_folders_that_were_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "disk"
    root.mkdir()
    disk = Disk(root, monkeypatch)
    home = Home(root / "a" / "b" / "home")
    with home.held():
        Job(home).run("words", "words")
    left = Home(disk.after_power_cut(tmp_path / "left") / "a" / "b" / "home")
    assert left.known() == home.known()
    for part in ("entries", "parts"):
        assert len(list((left.root / "logs" / "words" / part).iterdir())) == 2


def test_a_home_that_was_restored_into_folders_that_were_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "disk"
    root.mkdir()
    job = Job(Home(tmp_path / "home"))
    job.run_to(2)
    Backup(job.home, str(tmp_path / "backup")).copy()
    disk = Disk(root, monkeypatch)
    restored = Home(root / "x" / "home")
    restore(str(tmp_path / "backup"), restored)
    left = disk.after_power_cut(tmp_path / "left") / "x" / "home"
    assert files(left) == files(restored.root)
    assert files(left)


def files(folder: Path) -> dict[str, bytes]:
    return {str(f.relative_to(folder)): f.read_bytes() for f in folder.rglob("*") if f.is_file()}
