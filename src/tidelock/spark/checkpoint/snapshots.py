"""Snapshots: what of a checkpoint was copied together. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from tidelock.epochs import Epoch
from tidelock.log.sealed import seal, unseal
from tidelock.spark.checkpoint.versions import safe_batches
from tidelock.stored_names import relative_name

_DIGITS = 12


@dataclass(frozen=True)
class StoredFile:
    """A file as it was copied; the checksum in its stored name makes the copy immutable."""

    name: str
    size: int
    crc32: int


@dataclass(frozen=True)
class Snapshot:
    """The copy of a segment's checkpoint at one batch.

    ``batch`` is None for a segment that had committed nothing: its ``epoch`` is `BEFORE_FIRST` and it has no
    files.
    ``committed`` has every batch that Spark could still go back to, with the epoch at which it ends.
    """

    number: int
    batch: int | None
    epoch: Epoch
    taken_at: float
    committed: Mapping[int, Epoch]
    files: Mapping[str, StoredFile]

    @property
    def name(self) -> str:
        """Its file's name; names sort by age."""
        return f"{self.number:0{_DIGITS}}.json"

    def encode(self) -> bytes:
        """The bytes that `decode` reads."""
        return seal(
            {
                "number": self.number,
                "batch": self.batch,
                "epoch": self.epoch,
                "taken_at": self.taken_at,
                "committed": {str(batch): epoch for batch, epoch in self.committed.items()},
                "files": {path: [f.name, f.size, f.crc32] for path, f in self.files.items()},
            }
        )

    @classmethod
    def decode(cls, data: bytes, where: str) -> Snapshot:
        """Read a snapshot.

        Raises:
            LogCorrupt: the bytes are torn or damaged.
            UnsupportedFormat: a newer release wrote them.
        """
        return unseal(data, where, cls._from_fields)

    @classmethod
    def _from_fields(cls, fields: dict[str, Any]) -> Snapshot:
        return cls(
            number=fields["number"],
            batch=fields["batch"],
            epoch=Epoch(fields["epoch"]),
            taken_at=fields["taken_at"],
            committed={int(batch): Epoch(epoch) for batch, epoch in fields["committed"].items()},
            files={relative_name(path): _stored(*stored) for path, stored in fields["files"].items()},
        )

    def safe(self, intact: Collection[str]) -> dict[Epoch, int | None]:
        """The epochs that can be gone on from with these of its files, each with the batch to restart after.

        Raises:
            UnsupportedFormat: a file of state has a name that is not known, so that nobody can say.
        """
        if self.batch is None:
            return {self.epoch: None}
        return {**safe_batches(self.committed, self.files, intact, f"the checkpoint at epoch {self.epoch}")}


def _stored(name: str, size: int, crc32: int) -> StoredFile:
    return StoredFile(relative_name(name), size, crc32)
