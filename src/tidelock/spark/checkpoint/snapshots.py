"""Snapshots: what of a checkpoint was copied together, and which batches can be gone on from. Pure.

Spark's files, relative to the checkpoint:

    metadata                                     the query's identity
    offsets/<batch>, commits/<batch>             a batch is committed when it has both
    sources/...                                  what sources remember
    state/<operator>/<partition>/[<store>/]      <version>.delta, .changelog: what one batch changed
                                                 <version>.snapshot, .zip: all of it
                                                 SSTs/, logs/: what a .zip refers to
    state/<operator>/_metadata/...               how to read it

Batch *b* leaves state version *b* + 1. A version can be loaded from a full file, which is not newer, and all
changes since; without a full file, from all changes since the first.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tidelock.epochs import Epoch
from tidelock.inside import relative_name
from tidelock.log.sealed import seal, unseal
from tidelock.spark.checkpoint.formats import check_state_files

_DIGITS = 12
_NUMBERED_STATE = re.compile(r"(state/.+)/(\d+)\.(delta|changelog|snapshot|zip)")
_BATCH = re.compile(r"(?:offsets|commits)/(\d+)")


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
        check_state_files(self.files, f"the checkpoint at epoch {self.epoch}")
        if any(path not in intact for path in self.files if not is_numbered(path)):
            return {}
        stores = _stores(self.files, intact)
        batches = [batch for batch in sorted(self.committed) if _is_logged(batch, intact)]
        return {self.committed[batch]: batch for batch in batches if all(s.reaches(batch + 1) for s in stores)}


def _stored(name: str, size: int, crc32: int) -> StoredFile:
    return StoredFile(relative_name(name), size, crc32)


def belongs(path: str, batch: int) -> bool:
    """Whether a file of a checkpoint belongs to its batches up to ``batch``.

    >>> [belongs(path, 7) for path in ("offsets/7", "commits/8", "state/0/0/8.delta", "state/0/0/9.delta")]
    [True, False, True, False]
    >>> [belongs(path, 7) for path in ("metadata", "sources/0/12", "state/0/0/.8.delta.crc", "offsets/.8.tmp")]
    [True, True, False, False]
    """
    if any(part.startswith(".") for part in path.split("/")):
        return False
    if state := _NUMBERED_STATE.fullmatch(path):
        return int(state[2]) <= batch + 1
    if logged := _BATCH.fullmatch(path):
        return int(logged[1]) <= batch
    return path == "metadata" or path.startswith(("sources/", "state/"))


def is_numbered(path: str) -> bool:
    """Whether a file belongs to one batch, so that others can do without it."""
    return bool(_NUMBERED_STATE.fullmatch(path) or _BATCH.fullmatch(path))


@dataclass(frozen=True)
class StateStore:
    """The versions of one state store: those with a full file, and those whose changes are there.

    >>> StateStore({2}, {3}).reaches(3), StateStore({1}, {3}).reaches(3), StateStore(set(), {1, 2, 3}).reaches(3)
    (True, False, True)
    """

    full: set[int] = field(default_factory=set)
    changes: set[int] = field(default_factory=set)

    def reaches(self, version: int) -> bool:
        """Whether ``version`` can be loaded."""
        start = max((one for one in self.full if one <= version), default=0)
        return all(one in self.changes for one in range(start + 1, version + 1))


def _stores(known: Iterable[str], intact: Collection[str]) -> list[StateStore]:
    """The state stores of a checkpoint, with what is intact of them; one that lost everything is among them."""
    stores: dict[str, StateStore] = defaultdict(StateStore)
    for path in known:
        if state := _NUMBERED_STATE.fullmatch(path):
            store = stores[state[1]]
            if path in intact:
                (store.changes if state[3] in ("delta", "changelog") else store.full).add(int(state[2]))
    return list(stores.values())


def _is_logged(batch: int, intact: Collection[str]) -> bool:
    return f"offsets/{batch}" in intact and f"commits/{batch}" in intact
