"""Disks that can be full: a real small file system where one may be mounted, and what it would do where not."""

from __future__ import annotations

import errno
import itertools
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

import pytest

import tidelock.placing
from tidelock.home.home import Home

_SIZE = "32m"
_FILES = 4000
_BLOCK = b"\0" * 4096


class Disk(Protocol):
    """A folder whose room can be taken and given back."""

    folder: Path

    def fill(self) -> None:
        """Leave no room."""

    def free(self) -> None:
        """Give all of it back."""


class MountedDisk:
    """A file system of its own, with a file that takes all the room."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._filler = folder / "filler"

    def fill(self) -> None:
        # What others give back is taken too: whoever writes meets a full disk until it is freed.
        with self._filler.open("ab", buffering=0) as file, suppress(OSError):
            while True:
                file.write(_BLOCK)

    def free(self) -> None:
        self._filler.unlink(missing_ok=True)


class DiskOfFewFiles(MountedDisk):
    """A file system of its own that may have so many files, with others that are all of them."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._names = itertools.count()

    def fill(self) -> None:
        with suppress(OSError):
            self._filler.mkdir(exist_ok=True)
            for number in self._names:
                (self._filler / str(number)).touch()

    def free(self) -> None:
        shutil.rmtree(self._filler, ignore_errors=True)


class PretendedDisk:
    """A folder in which the driver's own writes fail as they do on a full disk."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self._full = False
        for where, name in ((Home, "add_event"), (tidelock.placing, "write_aside")):
            patch.setattr(where, name, self._guarded(getattr(where, name)))

    def _guarded(self, write: Any) -> Any:
        def guarded(*args: Any, **more: Any) -> Any:
            if self._full:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return write(*args, **more)

        return guarded

    def fill(self) -> None:
        self._full = True

    def free(self) -> None:
        self._full = False


@contextmanager
def small_disk(folder: Path, patch: pytest.MonkeyPatch, *, few_files: bool = False) -> Iterator[Disk]:
    """A disk at ``folder`` that can be full, with ``few_files`` of files and not of bytes."""
    folder.mkdir()
    limits = f"size={_SIZE},nr_inodes={_FILES}" if few_files else f"size={_SIZE}"
    mount = ["mount", "-t", "tmpfs", "-o", limits, "tmpfs", str(folder)]
    try:
        mounted = subprocess.run(mount, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        mounted = False
    if not mounted:
        yield PretendedDisk(folder, patch)
        return
    try:
        yield DiskOfFewFiles(folder) if few_files else MountedDisk(folder)
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
