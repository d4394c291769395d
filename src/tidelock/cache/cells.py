"""Cells: the value of a key, the epoch that wrote it, and the value before. Pure but for arrays.

Theory of operation
-------------------
An epoch may be computed again: after a failure, by a second attempt of a task, because somebody looked at its rows
twice. So a cell keeps two versions. Whoever computes epoch *n* starts from the newest version that is older than
*n* (`before`), and what it writes has that as its older version (`written`). The same rows then lead to the same
cell, however often they are computed and whatever was written in between by an attempt that died.

Two versions are enough, because an epoch is computed again only as long as it is the newest one that has begun;
the fence of the store sees to that. A cell that has only newer versions than asked for is not from this history,
and `before` says so.

A snapshot at epoch *e* is read while later epochs go on. A version up to *e* that would be lost when a cell is
written is set aside first (`doomed`); what is left of a cell and what was set aside of it give its value at *e*
(`at`).

    cell = newest epoch, older epoch (int64 each; none: -1), sizes of both values (int32 each; absent: -1), values
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidelock.cache.bytes import Numbers, Octets, content, cut, strings, table
from tidelock.errors import InternalError

Flags = npt.NDArray[np.bool_]

_HEAD = np.dtype([("newest", "<i8"), ("older", "<i8"), ("newest_size", "<i4"), ("older_size", "<i4")])
_NEVER = -1
_ABSENT = -1


@dataclass(frozen=True)
class Versions:
    """One version of each of some keys: when it was written, and its value (null: the key has none)."""

    epochs: Numbers
    values: pa.BinaryArray

    @property
    def there(self) -> Flags:
        """Which keys have a value."""
        flags: Flags = pc.is_valid(self.values).to_numpy(zero_copy_only=False)
        return flags


class Cells:
    """The cells of some keys, as they are stored; null where a key has none."""

    def __init__(self, stored: pa.BinaryArray) -> None:
        self._data, starts, lengths = content(stored)
        self._known: Flags = lengths > 0
        head = np.zeros(len(stored), _HEAD)
        head["newest"] = head["older"] = _NEVER
        head["newest_size"] = head["older_size"] = _ABSENT
        read = table(self._data, starts[self._known], _HEAD.itemsize)
        head[self._known] = read.view(_HEAD).reshape(-1)
        self._head = head
        self._values = starts + _HEAD.itemsize

    def before(self, epoch: int) -> Versions:
        """The versions from which ``epoch`` is computed.

        Raises:
            InternalError: a cell has no version that is old enough.
        """
        again = self._head["newest"] >= epoch
        if (self._head["newest"] > epoch).any() or (self._head["older"] >= epoch).any():
            newest = int(self._head["newest"].max())
            raise InternalError(f"state of epoch {newest} was found while epoch {epoch} is computed")
        return self._picked(again)

    def at(self, epoch: int) -> tuple[Versions, Flags]:
        """The versions at the end of ``epoch``; the flags say where a cell no longer tells."""
        lost = self._head["older"] > epoch
        return self._picked(self._head["newest"] > epoch), lost

    def newest(self) -> Versions:
        """The newest versions."""
        return self._picked(np.zeros(len(self._head), np.bool_))

    def _picked(self, older: Flags) -> Versions:
        """The older version where the flag is set, the newest elsewhere."""
        sizes = np.where(older, self._head["older_size"], self._head["newest_size"])
        skipped = np.where(older, np.maximum(self._head["newest_size"], 0), 0)
        values = cut(self._data, self._values + skipped, np.maximum(sizes, 0).astype(np.int64))
        epochs = np.where(older, self._head["older"], self._head["newest"])
        return Versions(epochs, _with_nulls(values, sizes != _ABSENT))

    def doomed(self, epoch: int, pinned: int) -> tuple[Flags, Versions]:
        """Which cells lose their version of ``pinned`` when ``epoch`` is written, and the versions themselves."""
        before, (at, lost) = self.before(epoch), self.at(pinned)
        falls_out = self._known & ~lost & (before.epochs > pinned) & at.there
        return falls_out, at


def written(epoch: int, values: pa.BinaryArray, before: Versions) -> pa.BinaryArray:
    """Cells with the versions of ``epoch`` (null: the key has no value from now on) and those before."""
    head = np.empty(len(values), _HEAD)
    head["newest"], head["older"] = epoch, before.epochs
    head["newest_size"], head["older_size"] = _sizes(values), _sizes(before.values)
    return _joined(head, values, before.values)


def single(versions: Versions) -> pa.BinaryArray:
    """Cells that know one version only."""
    head = np.empty(len(versions.values), _HEAD)
    head["newest"], head["older"] = versions.epochs, _NEVER
    head["newest_size"], head["older_size"] = _sizes(versions.values), _ABSENT
    return _joined(head, versions.values, pa.array([b""] * len(head), pa.binary()))


def _joined(head: Any, newest: pa.BinaryArray, older: pa.BinaryArray) -> pa.BinaryArray:
    octets: Octets = head.view(np.uint8).reshape(len(head), _HEAD.itemsize)
    return pc.binary_join_element_wise(
        strings(octets), pc.fill_null(newest, b""), pc.fill_null(older, b""), pa.scalar(b"")
    )


def _sizes(values: pa.BinaryArray) -> Any:
    return pc.fill_null(pc.binary_length(values), _ABSENT).to_numpy(zero_copy_only=False)


def _with_nulls(values: pa.BinaryArray, there: Flags) -> pa.BinaryArray:
    return values if there.all() else pc.if_else(pa.array(there), values, pa.scalar(None, pa.binary()))
