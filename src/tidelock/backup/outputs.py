"""Copying what file sinks have written: one directory for each epoch, and a document that says what is in it.

Theory of operation
-------------------
What is copied up to the newest snapshot is settled: the home follows that snapshot, so it never makes these epochs
again. Of later ones there may be a copy too, of a pass that did not live to add its snapshot, or of a moment ago.
The home may have gone back meanwhile, and made them again with other rows, or cut otherwise. So they are compared
with the home, and dropped where they differ: by their files when this process meets them first, and then by
whether the directory is still the one that was looked at, because a sink replaces directories and nothing in them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidelock.backup.store import BackupStore, checksum
from tidelock.epochs import Epoch
from tidelock.errors import BackendUnavailable, LogCorrupt
from tidelock.log.sealed import seal, unseal
from tidelock.stored_names import relative_name

_EPOCH = re.compile(r"epoch=(\d+)")

Checksums = dict[str, tuple[int, int]]
"""The files of an epoch, with their sizes and CRC-32s."""


@dataclass(frozen=True)
class _Look:
    """Which directory it is; a sink that writes an epoch again puts another one in its place."""

    inode: int
    modified: int


class OutputCopy:
    """The copy of what a file sink has written below the home: one directory for each epoch.

    Beside it, and after it, goes a document with the sizes and checksums of its files.
    """

    def __init__(self, store: BackupStore, sink: str, location: str) -> None:
        self._store = store
        self._folder = f"out/{sink}"
        self._location = Path(location)
        names = store.sizes(self._folder)
        self._copied = stored_epochs(name for name in names if "/" not in name)
        self._begun = stored_epochs(names) - self._copied
        self._looks: dict[Epoch, _Look] = {}

    def copy(self, last: Epoch, settled: Epoch) -> None:
        """Copy the directories of the epochs up to ``last``; those up to ``settled`` never change once copied.

        Raises:
            BackendUnavailable: the target does not work, or an epoch was written again while it was copied.
        """
        found = self._found()
        self._looks = {epoch: look for epoch, look in self._looks.items() if epoch > settled}
        for epoch in sorted(epoch for epoch in self._copied if epoch > settled):
            if epoch not in found or not self._is_same(epoch, found[epoch]):
                self._drop(epoch)
        for epoch in sorted(found.keys() - self._copied):
            if epoch <= last:
                self._copy_epoch(epoch, found[epoch])

    def _found(self) -> dict[Epoch, Path]:
        """The epochs that the sink has written."""
        folders = self._location.glob("epoch=*")
        return {epoch: folder for folder in folders for epoch in stored_epochs([folder.name])}

    def _is_same(self, epoch: Epoch, folder: Path) -> bool:
        """Whether what was copied of an epoch is still what the home has."""
        try:
            look = _look(folder)
            if self._looks.get(epoch) == look:
                return True
            if epoch in self._looks or self._stored(epoch) != _checksums(folder):
                return False
        except FileNotFoundError:
            return False
        self._looks[epoch] = look
        return True

    def _stored(self, epoch: Epoch) -> Checksums | None:
        """What the copy of an epoch has, if that can be read."""
        name = f"{self._folder}/epoch={epoch}.json"
        try:
            return unseal(self._store.read(name) or b"", name, stored_checksums)
        except LogCorrupt:
            return None

    def _copy_epoch(self, epoch: Epoch, folder: Path) -> None:
        if epoch in self._begun:
            self._drop(epoch)  # nobody else would ever remove what an earlier pass has left of it
        try:
            look = _look(folder)
            files = _checksums(folder)
            for name in files:
                self._store.upload(f"{self._folder}/{folder.name}/{name}", folder / name)
            is_same = _look(folder) == look
        except FileNotFoundError:
            is_same = False
        self._begun.add(epoch)
        if not is_same:
            raise BackendUnavailable(f"{folder} was written again while it was copied; the next pass copies it")
        self._store.write(f"{self._folder}/{folder.name}.json", seal({"files": files}))
        self._begun.remove(epoch)
        self._copied.add(epoch)
        self._looks[epoch] = look

    def _drop(self, epoch: Epoch) -> None:
        """Remove what there is of an epoch: first what makes it count."""
        folder = f"{self._folder}/epoch={epoch}"
        self._store.remove([f"{folder}.json", *(f"{folder}/{name}" for name in self._store.sizes(folder))])
        self._copied.discard(epoch)
        self._begun.discard(epoch)
        self._looks.pop(epoch, None)


def stored_epochs(names: Iterable[str]) -> set[Epoch]:
    """The epochs that these files of a file sink belong to."""
    firsts = (name.partition("/")[0].removesuffix(".json") for name in names)
    return {Epoch(int(m[1])) for m in map(_EPOCH.fullmatch, firsts) if m}


def stored_checksums(fields: dict[str, Any]) -> Checksums:
    """What the document of an epoch says of its files."""
    return {relative_name(name): (size, crc32) for name, (size, crc32) in fields["files"].items()}


def _checksums(folder: Path) -> Checksums:
    files = sorted(f for f in folder.rglob("*") if f.is_file() and not f.name.startswith("."))
    return {file.relative_to(folder).as_posix(): checksum(file) for file in files}


def _look(folder: Path) -> _Look:
    facts = folder.stat()
    return _Look(facts.st_ino, facts.st_mtime_ns)
