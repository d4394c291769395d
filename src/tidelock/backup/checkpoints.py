"""Copying a checkpoint while its query runs.

Spark adds files, and removes old ones, at any time; it writes each aside and renames it. So a listing is not a
snapshot, but what it names of a committed batch does not change. Files that a RocksDB archive refers to are older
than the archive and outlive it: archives are listed before them, and looked for again afterwards.

A file that is gone when it is to be copied was cleaned up. What replaces it (a newer archive, a compacted log) is
there by then, so the listing is made again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tidelock.backup.store import BackupStore, checksum
from tidelock.epochs import Epoch
from tidelock.errors import BackendUnavailable, LogCorrupt
from tidelock.spark.checkpoint.checkpoint import Checkpoint
from tidelock.spark.checkpoint.layout import METADATA, offsets_file
from tidelock.spark.checkpoint.snapshots import Snapshot, StoredFile

_ATTEMPTS = 5


@dataclass(frozen=True)
class _Look:
    """How a file looks from outside; when that changes, so may have the content."""

    size: int
    modified: int


class CheckpointCopy:
    """The copies of one segment's checkpoint: files, and the snapshots that name them."""

    def __init__(self, store: BackupStore, segment: str, location: str) -> None:
        self._store = store
        self._folder = f"segments/{segment}"
        self._location = Path(location)
        self._copied: dict[str, tuple[_Look, StoredFile]] = {}
        """What the checkpoint had when it was copied last."""
        self._stored = store.sizes(f"{self._folder}/files")
        self.snapshots, _ = load_snapshots(store, segment)

    @property
    def newest(self) -> Snapshot | None:
        """The newest snapshot."""
        return self.snapshots[-1] if self.snapshots else None

    # -- files

    def copy_files(self, batch: int) -> dict[str, StoredFile]:
        """Copy what belongs to the batches up to ``batch``; the files that the copy is made of.

        Raises:
            BackendUnavailable: the target does not work, or Spark cleans up faster than files can be copied.
        """
        for _ in range(_ATTEMPTS):
            found = {path: self._copy_file(path) for path in Checkpoint(None, str(self._location)).files(batch)}
            copied = {path: file for path, file in found.items() if file is not None}
            if len(copied) == len(found):
                self._copied = {path: self._copied[path] for path in copied}  # the others were cleaned up
                return copied
        raise BackendUnavailable(
            f"{self._location}: Spark cleans up faster than the checkpoint can be copied; raise "
            "spark.sql.streaming.minBatchesToRetain, or copy to a nearer place"
        )

    def _copy_file(self, path: str) -> StoredFile | None:
        """The copy of a file; None if it was cleaned up, or changed, while it was copied."""
        source = self._location / path
        try:
            look = _look(source)
            known = self._copied.get(path)
            if known is None or known[0] != look:
                stored = self._store_file(path, source)
                if _look(source) != look:
                    self._remove_file(stored.name)
                    return None
                self._copied[path] = known = look, stored
            return known[1]
        except FileNotFoundError:
            return None

    def _store_file(self, path: str, source: Path) -> StoredFile:
        size, crc32 = checksum(source)
        file = StoredFile(f"{path}@{crc32:08x}", size, crc32)
        if self._stored.get(file.name) != size:
            self._store.upload(f"{self._folder}/files/{file.name}", source)
            self._stored[file.name] = size
        return file

    def _remove_file(self, name: str) -> None:
        self._store.remove([f"{self._folder}/files/{name}"])
        del self._stored[name]

    # -- snapshots

    def add(self, snapshot: Snapshot) -> None:
        """Make the copy of a batch valid. Its files have to be there; first they are made to survive."""
        self._store.sync()
        self._store.write(f"{self._folder}/snapshots/{snapshot.name}", snapshot.encode())
        self.snapshots.append(snapshot)

    def keep(self, number: int) -> None:
        """Remove all but the newest snapshots, then the files that none of those names."""
        dropped, self.snapshots = self.snapshots[:-number], self.snapshots[-number:]
        self._store.remove(f"{self._folder}/snapshots/{snapshot.name}" for snapshot in dropped)
        named = {file.name for snapshot in self.snapshots for file in snapshot.files.values()}
        for name in [name for name in self._stored if name not in named]:
            self._remove_file(name)

    def is_continued(self) -> bool:
        """Whether the checkpoint still has the very batch of the newest snapshot, so that it has to follow it."""
        if self.newest is None or self.newest.batch is None:
            return True
        return self._is_same(offsets_file(self.newest.batch), self.newest.files)

    def has_gone_back(self) -> bool:
        """Whether the checkpoint surely does not follow the newest snapshot."""
        return self.newest is not None and self.has_left(self.newest)

    def has_left(self, snapshot: Snapshot) -> bool:
        """Whether the checkpoint surely does not follow a snapshot; one that is far ahead may do so."""
        if snapshot.batch is None or self._is_same(offsets_file(snapshot.batch), snapshot.files):
            return False
        batches = committed(str(self._location))
        return snapshot.batch in batches or max(batches, default=-1) < snapshot.batch

    def is_related(self) -> bool:
        """Whether the checkpoint is of the query whose copy this is."""
        return self.newest is not None and self._is_same(METADATA, self.newest.files)

    def _is_same(self, path: str, files: Mapping[str, StoredFile]) -> bool:
        try:
            size, crc32 = checksum(self._location / path)
        except FileNotFoundError:
            return False
        return path in files and (files[path].size, files[path].crc32) == (size, crc32)


def load_snapshots(store: BackupStore, segment: str) -> tuple[list[Snapshot], list[str]]:
    """The snapshots of a segment, oldest first, and the names of those that cannot be read."""
    found, damaged = [], []
    for name in sorted(store.sizes(f"segments/{segment}/snapshots")):
        path = f"segments/{segment}/snapshots/{name}"
        try:
            found.append(Snapshot.decode(store.read(path) or b"", f"{store.url}/{path}"))
        except LogCorrupt:
            damaged.append(path)
    return found, damaged


def committed(location: str) -> dict[int, Epoch]:
    """The committed batches of a checkpoint whose query may be running, oldest first, with their epochs."""
    for _ in range(_ATTEMPTS):
        try:
            return Checkpoint(None, location).committed()
        except FileNotFoundError:  # cleaned up between listing and reading
            continue
    raise BackendUnavailable(f"{location}: Spark cleans up faster than the offset log can be read")


def _look(file: Path) -> _Look:
    facts = file.stat()
    return _Look(facts.st_size, facts.st_mtime_ns)
