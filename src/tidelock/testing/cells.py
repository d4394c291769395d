"""An operator that counts by key, on a store of cells: its driver and its tasks, step by step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from zlib import crc32

import numpy as np
import pyarrow as pa

from tidelock.cache.cells import Cells, Versions, single, written
from tidelock.cache.fence import Fence, WriteClaim
from tidelock.cache.operator import StateShape
from tidelock.cache.rows import RowCodec
from tidelock.cache.store import BUCKETS, CellStore, Keys, Writes, open_cells
from tidelock.epochs import BEFORE_FIRST, Epoch

SHAPE = StateShape(pa.schema([("k", pa.string())]), pa.schema([("n", pa.int64())]))
HEADER = b"counts"


def bucket(key: str) -> int:
    """The bucket of a key."""
    return crc32(key.encode()) % BUCKETS


def keys_of(names: list[str]) -> Keys:
    """Keys as a store knows them."""
    fields = RowCodec(SHAPE.keys, "the keys").encode(pa.table({"k": pa.array(names, pa.string())}))
    return Keys(fields, np.array([bucket(name) for name in names], np.int64))


class Counts:
    """One run of the operator, which has taken the state over."""

    def __init__(
        self, url: str, done: int = BEFORE_FIRST, *, create: bool = True, before: Fence | None = None
    ) -> None:
        self.store = open_cells(url)
        if create:
            self.store.create(HEADER, Epoch(done))
        self.done = done
        self.fence: Fence = self.store.take_over("a run", before)
        self.server = ""

    def begin(self, epoch: int, pinned: int | None = None, batch: int | None = None) -> None:
        """Let the tasks of the batch that takes this epoch write."""
        number = epoch if batch is None else batch
        self.fence = replace(self.fence, batch=number, begun=epoch, pinned=pinned)
        self.server = self.store.begin(self.fence, Epoch(self.done))

    def add(self, amounts: Mapping[str, int | None], *, batch: int | None = None) -> dict[str, int | None]:
        """A task: add to the counts of these keys, or forget them; what they are then."""
        number = self.fence.batch if batch is None else batch
        return Adding(self.store, self.fence.claim, number, amounts).run()

    def end(self) -> None:
        """Say that all of them are through."""
        self.store.end(self.fence, self.server)
        self.done = self.fence.begun

    def run(self, epoch: int, amounts: Mapping[str, int | None], pinned: int | None = None) -> None:
        """A whole batch."""
        self.begin(epoch, pinned)
        self.add(amounts)
        self.end()

    def cells(self, names: list[str]) -> pa.BinaryArray:
        """The cells of these keys as they are now."""
        found: dict[bytes, bytes] = {}
        for number in sorted({bucket(name) for name in names}):
            cells, _ = self.store.bucket(number)
            found |= dict(zip(cells.fields.to_pylist(), cells.cells.to_pylist(), strict=True))
        return pa.array([found.get(field) for field in keys_of(names).fields.to_pylist()], pa.binary())

    def counts(self, names: list[str]) -> dict[str, int]:
        """The newest counts of the keys that have one."""
        found = decoded(Cells(self.cells(names)).newest().values)
        return {name: count for name, count in zip(names, found, strict=True) if count is not None}


class Adding:
    """A task. What happens between its reading and its writing can be said with ``meanwhile``."""

    def __init__(
        self,
        store: CellStore,
        claim: WriteClaim,
        batch: int,
        amounts: Mapping[str, int | None],
        meanwhile: object = None,
    ) -> None:
        self._store, self._claim, self._batch = store, claim, batch
        self._names = sorted(amounts, key=bucket)
        self._amounts = amounts
        self._meanwhile = meanwhile

    def run(self) -> dict[str, int | None]:
        """Read, add and write; what the counts are then."""
        return self._store.change(self._claim, self._batch, keys_of(self._names), self._compute)

    def _compute(self, fence: Fence, stored: pa.BinaryArray) -> tuple[Writes, dict[str, int | None]]:
        cells = Cells(stored)
        before = cells.before(fence.begun)
        old = dict(zip(self._names, decoded(before.values), strict=True))
        new = {n: None if (more := self._amounts[n]) is None else (old[n] or 0) + more for n in self._names}
        doomed = np.empty(0, np.int64)
        saved = pa.array([], pa.binary())
        if fence.pinned is not None:
            lost, versions = cells.doomed(fence.begun, fence.pinned)
            doomed = np.flatnonzero(lost)
            saved = single(Versions(versions.epochs[doomed], versions.values.take(pa.array(doomed))))
        if callable(self._meanwhile):
            self._meanwhile()
        return Writes(written(fence.begun, encoded(list(new.values())), before), doomed, saved), new


def encoded(counts: list[int | None]) -> pa.BinaryArray:
    """Counts as the values of cells."""
    rows = RowCodec(SHAPE.values, "the state").encode(pa.table({"n": pa.array(counts, pa.int64())})).to_pylist()
    return pa.array([r if n is not None else None for r, n in zip(rows, counts, strict=True)], pa.binary())


def decoded(values: pa.BinaryArray) -> list[int | None]:
    """The counts that are in values of cells."""
    found: list[int | None] = RowCodec(SHAPE.values, "the state").decode(values).column("n").to_pylist()
    return found
