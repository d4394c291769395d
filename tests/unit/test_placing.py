"""Folders that survive a loss of power, with all that is above them, whoever has made them."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from tests.power_cut import Disk

from tidelock.placing import make_folder, put_file, remove_tree


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "disk"
    root.mkdir()
    return root


@pytest.fixture
def disk(root: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(root, monkeypatch)


def left(disk: Disk, root: Path, name: str) -> bool:
    return (disk.after_power_cut(root.parent / "left") / name).exists()


@pytest.mark.parametrize("there", ["", "a", "a/b", "a/b/c"])
def test_all_that_is_above_is_kept_whoever_has_made_how_much_of_it(root: Path, disk: Disk, there: str) -> None:
    (root / there).mkdir(parents=True, exist_ok=True)
    make_folder(root / "a" / "b" / "c")
    put_file(root / "a" / "b" / "c" / "file", b"", durable=True)
    assert left(disk, root, "a/b/c/file")


def test_a_folder_is_not_believed_to_be_kept_after_it_was_removed(root: Path, disk: Disk) -> None:
    put_file(root / "a" / "b" / "file", b"", durable=True)
    remove_tree(root / "a", durable=True)
    (root / "a" / "b").mkdir(parents=True)  # by somebody else
    put_file(root / "a" / "b" / "file", b"", durable=True)
    assert left(disk, root, "a/b/file")


def test_a_folder_that_is_missing_again_is_kept_again(root: Path, disk: Disk) -> None:
    make_folder(root / "a" / "b")
    (root / "a" / "b").rmdir()
    (root / "a").rmdir()
    put_file(root / "a" / "b" / "c" / "file", b"", durable=True)
    assert left(disk, root, "a/b/c/file")


def test_a_folder_is_kept_by_any_path_to_it(root: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "a" / "b").mkdir(parents=True)
    monkeypatch.chdir(root / "a" / "b")
    put_file(Path("c") / "file", b"", durable=True)
    assert left(disk, root, "a/b/c/file")


def test_what_cannot_be_synced_belongs_to_others(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "theirs" / "ours").mkdir(parents=True)
    really, asked = os.open, []

    def refused(path: Path, *args: int, **more: int) -> int:
        if Path(path) in (root, root / "theirs"):
            asked.append(Path(path))
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return really(path, *args, **more)

    monkeypatch.setattr(os, "open", refused)
    for _ in range(2):
        make_folder(root / "theirs" / "ours" / "log")
    assert asked == [root / "theirs", root], "once for each"
    with pytest.raises(PermissionError):
        make_folder(root / "theirs" / "new")
