"""What a loss of power leaves of a directory: what was synced, and nothing else.

Syncing a file makes its bytes durable, syncing a folder the names in it. After a power cut a file is found only if
its name was synced in its folder, the name of that in the one above, and so on; it has the bytes of its last sync.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest


class Disk:
    """Watches what is synced below ``root``, which is there from the beginning."""

    def __init__(self, root: Path, patch: pytest.MonkeyPatch) -> None:
        self._root = root
        self._names: dict[int, dict[str, int]] = {}
        self._bytes: dict[int, bytes] = {}
        really = os.fsync

        def fsync(file: Any) -> None:
            really(file)
            self._synced(file if isinstance(file, int) else file.fileno())

        patch.setattr(os, "fsync", fsync)

    def _synced(self, descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        found = os.fstat(descriptor)
        if stat.S_ISDIR(found.st_mode):
            with os.scandir(path) as entries:
                self._names[found.st_ino] = {entry.name: entry.inode() for entry in entries}
        else:
            self._bytes[found.st_ino] = path.read_bytes()

    def after_power_cut(self, target: Path) -> Path:
        """Everything that is left now, as a copy below ``target``."""
        self._rebuild(self._root.stat().st_ino, target)
        return target

    def _rebuild(self, inode: int, target: Path) -> None:
        target.mkdir(parents=True)
        for name, below in self._names.get(inode, {}).items():
            if below in self._bytes:
                (target / name).write_bytes(self._bytes[below])
            elif below in self._names:
                self._rebuild(below, target / name)
            else:  # a file or a folder of which nothing but the name is left
                (target / name).touch()
