"""An operator whose state is in a cache: from the rows of one partition and epoch to its output.

What a task does, once per partition and batch: find the different keys among its rows, read their cells, let the
operator's function change the state of exactly those keys, write their cells. Rows come and go as Arrow tables.

Expiry. An operator may give its state an end in event time: the newest event time of the key's rows plus a span.
State whose end the watermark has passed does not exist any more, from the batch on that has this watermark, and
rows that are as late as that are dropped. Both depend on nothing but the rows and the watermark of the batch, so
they come out the same when a batch is run again. The cells themselves are removed later, when a snapshot is taken.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelock.cache.aggregates import Groups
from tidelock.cache.bytes import Numbers, whole
from tidelock.cache.cells import Cells, Flags, Versions, single, written
from tidelock.cache.changes import StateChange
from tidelock.cache.fence import Fence, WriteClaim
from tidelock.cache.rows import RowCodec
from tidelock.cache.store import BUCKETS, Keys, Writes, open_cells

BUCKET = "#bucket"
"""The column of the rows that says which bucket their key belongs to."""

_ENDS = "#ends"
_MICROSECONDS = 1000
"""In a millisecond. Event times are in microseconds, as Spark has them; watermarks in milliseconds."""


@dataclass(frozen=True)
class Expiry:
    """State ends ``after`` microseconds after the newest value of the ``column`` of its key's rows."""

    column: str
    after: int


@dataclass(frozen=True)
class StateShape:
    """What an operator's state looks like."""

    keys: pa.Schema
    values: pa.Schema
    expiry: Expiry | None = None

    def encode(self) -> dict[str, Any]:
        """Fields that `decode` reads."""
        expiry = self.expiry and [self.expiry.column, self.expiry.after]
        return {"keys": _text(self.keys), "values": _text(self.values), "expiry": expiry, "buckets": BUCKETS}

    @classmethod
    def decode(cls, fields: Mapping[str, Any]) -> StateShape:
        """Read a shape.

        Raises:
            ValueError: it is of a state with another number of buckets.
        """
        if fields["buckets"] != BUCKETS:
            raise ValueError(f"{fields['buckets']} buckets, not {BUCKETS}")
        expiry = fields["expiry"] and Expiry(*fields["expiry"])
        return cls(_schema(fields["keys"]), _schema(fields["values"]), expiry)

    def key_codec(self) -> RowCodec:
        """How keys are written."""
        return RowCodec(self.keys, "the keys")

    def value_codec(self) -> RowCodec:
        """How values are written: with their end in front, if they have one."""
        ends = [pa.field(_ENDS, pa.int64())] if self.expiry else []
        return RowCodec(pa.schema([*ends, *self.values]), "the state")


def _text(schema: pa.Schema) -> str:
    return b64encode(schema.remove_metadata().serialize().to_pybytes()).decode()


def _schema(text: str) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(b64decode(text)))


class CachedOperator:
    """The work of a task. Made once in each task; ``where`` is the URL of the state."""

    def __init__(self, where: str, claim: WriteClaim, shape: StateShape, change: StateChange) -> None:
        self._store = open_cells(where)
        self._claim = claim
        self._shape = shape
        self._keys = shape.key_codec()
        self._values = shape.value_codec()
        self._change = change

    def process(self, batch: int, rows: pa.Table) -> pa.Table | None:
        """The output for ``rows``, all that batch ``batch`` has for some keys; their state is changed.

        None if there is no row that counts.

        Raises:
            Fenced: the batch is over, or a newer run has taken over; nothing was written.
            BackendUnavailable: the cache does not work.
        """
        if self._shape.expiry is not None:
            rows = self._on_time(rows, batch, self._shape.expiry)
        if not rows.num_rows:
            return None
        keys, groups, first = self._grouped(rows)

        def compute(fence: Fence, stored: pa.BinaryArray) -> tuple[Writes | None, pa.Table]:
            return self._computed(fence, Cells(stored), rows, groups, first)

        return self._store.change(self._claim, batch, keys, compute)

    def _grouped(self, rows: pa.Table) -> tuple[Keys, Groups, Numbers]:
        """The different keys, bucket by bucket; which of them each row has; where each of them first occurs."""
        encoded = self._keys.encode(rows).dictionary_encode()
        codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        size = len(encoded.dictionary)
        first = np.empty(size, np.int64)
        first[codes[::-1]] = np.arange(len(codes))[::-1]
        buckets = whole(rows.column(BUCKET)).to_numpy(zero_copy_only=False).astype(np.int64)[first]
        order = np.argsort(buckets, kind="stable")
        place = np.empty(size, np.int64)
        place[order] = np.arange(size)
        keys = Keys(encoded.dictionary.take(pa.array(order)), buckets[order])
        return keys, Groups(place[codes], size), first[order]

    def _computed(
        self, fence: Fence, cells: Cells, rows: pa.Table, groups: Groups, first: Numbers
    ) -> tuple[Writes | None, pa.Table]:
        before = cells.before(fence.begun)
        table = self._values.decode(before.values)
        table, ends = self._without_expired(table, fence.watermark)
        if self._shape.expiry:
            ends = self._ends(rows, groups, ends, self._shape.expiry)
        keys = rows.select(self._shape.keys.names).take(pa.array(first))
        state = pa.table({**_columns(keys), **_columns(table)})
        output, changed, kept = self._change(rows.drop_columns([BUCKET]), groups, state)
        values = self._encoded(changed, ends, kept)
        doomed, saved = _saved(cells, fence)
        return Writes(written(fence.begun, values, before), doomed, saved), output

    def _encoded(self, changed: pa.Table, ends: Numbers | None, kept: Flags) -> pa.BinaryArray:
        if ends is not None:
            changed = changed.append_column(_ENDS, pa.array(ends))
        values = self._values.encode(changed)
        return values if kept.all() else pc.if_else(pa.array(kept), values, pa.scalar(None, pa.binary()))

    # -- event time

    def _on_time(self, rows: pa.Table, batch: int, expiry: Expiry) -> pa.Table:
        """The rows that are not too late for the batch."""
        watermark = self._store.held(self._claim, batch).watermark * _MICROSECONDS
        if watermark <= 0:
            return rows
        return rows.filter(pc.fill_null(pc.greater(_micros(rows, expiry.column), watermark), False))

    def _without_expired(self, state: pa.Table, watermark_ms: int) -> tuple[pa.Table, Numbers | None]:
        """The state without what has ended, and the ends of the rest."""
        if self._shape.expiry is None:
            return state, None
        ends = state.column(_ENDS).fill_null(0).to_numpy()
        live = ends > watermark_ms * _MICROSECONDS
        state = state.drop_columns([_ENDS])
        if not live.all():
            kept = pa.array(live)
            columns = {n: pc.if_else(kept, c, pa.scalar(None, c.type)) for n, c in _columns(state).items()}
            state = pa.table(columns, schema=self._shape.values)
        return state, np.where(live, ends, 0)

    @staticmethod
    def _ends(rows: pa.Table, groups: Groups, ends: Numbers | None, expiry: Expiry) -> Numbers:
        times = pc.fill_null(_micros(rows, expiry.column), 0)
        newest: Numbers = groups.aggregate(times, "max").to_numpy(zero_copy_only=False) + expiry.after
        return newest if ends is None else np.maximum(newest, ends)


def ended(shape: StateShape, values: pa.BinaryArray, watermark_ms: int) -> Flags:
    """Which values have ended when the watermark stands there; a null has."""
    there: Flags = pc.is_valid(values).to_numpy(zero_copy_only=False)
    if shape.expiry is None:
        return ~there
    ends = shape.value_codec().decode(values).column(_ENDS).fill_null(0).to_numpy()
    over: Flags = ends <= watermark_ms * _MICROSECONDS
    return ~there | over


def without_ends(shape: StateShape, values: pa.BinaryArray) -> pa.Table:
    """The columns of state that the operator knows of."""
    table = shape.value_codec().decode(values)
    return table.drop_columns([_ENDS]) if shape.expiry else table


def _saved(cells: Cells, fence: Fence) -> tuple[Numbers, pa.BinaryArray]:
    """What the snapshot under way would lose."""
    if fence.pinned is None:
        return np.empty(0, np.int64), pa.array([], pa.binary())
    doomed, versions = cells.doomed(fence.begun, fence.pinned)
    places = np.flatnonzero(doomed)
    return places, single(Versions(versions.epochs[places], versions.values.take(pa.array(places))))


def _columns(table: pa.Table) -> dict[str, pa.Array]:
    return {name: whole(table.column(name)) for name in table.column_names}


def _micros(rows: pa.Table, column: str) -> pa.Array:
    return whole(rows.column(column)).cast(pa.int64())
