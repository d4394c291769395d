"""Bringing back a segment's checkpoint: every copied file is verified, then one version is put together."""

from __future__ import annotations

from pathlib import Path

from tidelock.backup.checkpoints import load_snapshots
from tidelock.backup.store import BackupStore
from tidelock.epochs import BEFORE_FIRST, Epoch
from tidelock.inside import inside
from tidelock.spark.checkpoint.checkpoint import Checkpoint
from tidelock.spark.checkpoint.snapshots import Snapshot, StoredFile


class CheckpointRestore:
    """What is left of a segment's checkpoint in a copy, downloaded to ``staging``.

    A damaged file takes with it the versions that need it, and no others: versions of all snapshots count.
    """

    def __init__(self, store: BackupStore, segment: str, staging: Path) -> None:
        self._store = store
        self._folder = f"segments/{segment}/files"
        self._staging = staging / segment
        snapshots, self.damaged = load_snapshots(store, segment)
        self.copied = max((snapshot.epoch for snapshot in snapshots), default=BEFORE_FIRST)
        self._intact = self._download(snapshots)
        self._safe: dict[Epoch, tuple[Snapshot, int | None]] = {}
        for snapshot in reversed(snapshots):  # the oldest that has a version has the least that is newer
            self._safe.update({e: (snapshot, batch) for e, batch in self._versions(snapshot).items()})

    def _download(self, snapshots: list[Snapshot]) -> set[str]:
        files = {file.name: file for snapshot in snapshots for file in snapshot.files.values()}
        intact = {name for name, file in files.items() if self._is_intact(file)}
        self.damaged += [f"{self._folder}/{name}" for name in sorted(files.keys() - intact)]
        return intact

    def _is_intact(self, file: StoredFile) -> bool:
        came = self._store.download(f"{self._folder}/{file.name}", inside(self._staging, file.name))
        return came == (file.size, file.crc32)

    def _versions(self, snapshot: Snapshot) -> dict[Epoch, int | None]:
        return snapshot.safe({path for path, file in snapshot.files.items() if file.name in self._intact})

    def safe(self) -> tuple[Epoch, ...]:
        """The epochs that the segment can be put back to, oldest first."""
        return tuple(sorted(self._safe))

    def place(self, version: Epoch, location: Path) -> None:
        """Make the checkpoint of ``version``, one of the safe ones, at ``location``."""
        snapshot, batch = self._safe[version]
        for path, file in snapshot.files.items():
            if file.name in self._intact:
                target = inside(location, path)
                target.parent.mkdir(parents=True, exist_ok=True)
                inside(self._staging, file.name).replace(target)
        if batch is not None:
            Checkpoint(None, str(location)).roll_back(batch)
