"""Ready-made aggregations for state in a cache: `tidelock.aggregates`.

    tidelock.keyed(orders, "customer").aggregate(orders=count(), total=sum("amount"), best=top_k("amount", 3))

An aggregation keeps some columns of state for every key. `lift` turns rows into such columns, one row of state per
row; `merge` makes one row per key out of several. The state of before and the lifted rows of an epoch are merged
in one go, for all keys together: no loop over keys or rows.

Nulls do not count, as in SQL. A NaN makes sums and means NaN; among what is compared it comes after all numbers:
it is told only where there are too few of them. Results do not depend on the order of the rows, but for the last
digits of sums of floating numbers.
"""

from __future__ import annotations

import builtins
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelock.cache.sketches import estimates, lifted, merged
from tidelock.errors import PipelineError, SchemaMismatch

__all__ = ["Aggregation", "approx_distinct", "count", "last", "max", "mean", "min", "sum", "top_k"]

Columns = dict[str, pa.Array]

_CODE = "code"


class Aggregation(ABC):
    """What is kept and told of the rows of a key."""

    inputs: tuple[str, ...]
    """The columns of the rows that it looks at."""
    hashed: tuple[str, ...] = ()
    """Those of them that it wants as 64-bit hashes."""

    @abstractmethod
    def state(self, rows: pa.Schema) -> dict[str, Any]:
        """The columns of its state, with their Arrow types.

        Raises:
            SchemaMismatch: a column of the rows has a type that it cannot take.
        """

    @abstractmethod
    def lift(self, rows: pa.Table) -> Columns:
        """The state that each single row is."""

    @abstractmethod
    def merge(self, groups: Groups, state: Columns) -> Columns:
        """One row of state for each group."""

    @abstractmethod
    def result(self, state: Columns) -> pa.Array:
        """What is told of the state."""


class Groups:
    """Which rows belong together: a number from 0 to ``size`` - 1 for each of them; every number occurs."""

    def __init__(self, codes: Any, size: int) -> None:
        self.codes = codes
        self.size = size

    def aggregate(self, column: pa.Array, function: str) -> pa.Array:
        """One value per group, by one of Arrow's functions."""
        # In one thread, so in order: a batch that is run again adds up doubles to the very same sums.
        rows = pa.table({_CODE: pa.array(self.codes), "v": column})
        found = rows.group_by(_CODE, use_threads=False).aggregate([("v", function)])
        order = np.empty(self.size, np.int64)
        order[found.column(_CODE).to_numpy()] = np.arange(self.size)
        return found.column(f"v_{function}").combine_chunks().take(pa.array(order))

    def last_places(self, order: Any) -> Any:
        """Where each group has its last row when the rows stand in ``order``, in which groups are together."""
        codes = self.codes[order]
        ends = np.flatnonzero(np.append(np.diff(codes) != 0, True))
        return order[ends]


@dataclass(frozen=True)
class _Simple(Aggregation):
    """A column that one of Arrow's functions both makes and merges."""

    column: str
    function: str

    @property
    def inputs(self) -> tuple[str, ...]:  # type: ignore[override]
        return (self.column,)

    def state(self, rows: pa.Schema) -> dict[str, Any]:
        return {"v": _summed(rows, self.column) if self.function == "sum" else _ordered(rows, self.column)}

    def lift(self, rows: pa.Table) -> Columns:
        kind = self.state(rows.schema)["v"]
        return {"v": _column(rows, self.column).cast(kind)}

    def merge(self, groups: Groups, state: Columns) -> Columns:
        return {"v": groups.aggregate(state["v"], self.function)}

    def result(self, state: Columns) -> pa.Array:
        return state["v"]


@dataclass(frozen=True)
class _Count(Aggregation):
    column: str | None

    @property
    def inputs(self) -> tuple[str, ...]:  # type: ignore[override]
        return () if self.column is None else (self.column,)

    def state(self, rows: pa.Schema) -> dict[str, Any]:
        return {"n": pa.int64()}

    def lift(self, rows: pa.Table) -> Columns:
        if self.column is None:
            return {"n": pa.repeat(pa.scalar(1, pa.int64()), rows.num_rows)}
        return {"n": pc.is_valid(_column(rows, self.column)).cast(pa.int64())}

    def merge(self, groups: Groups, state: Columns) -> Columns:
        return {"n": groups.aggregate(state["n"], "sum")}

    def result(self, state: Columns) -> pa.Array:
        return state["n"]


@dataclass(frozen=True)
class _Mean(Aggregation):
    column: str

    @property
    def inputs(self) -> tuple[str, ...]:  # type: ignore[override]
        return (self.column,)

    def state(self, rows: pa.Schema) -> dict[str, Any]:
        _summed(rows, self.column)
        return {"s": pa.float64(), "n": pa.int64()}

    def lift(self, rows: pa.Table) -> Columns:
        values = _column(rows, self.column)
        return {"s": values.cast(pa.float64(), safe=False), "n": pc.is_valid(values).cast(pa.int64())}

    def merge(self, groups: Groups, state: Columns) -> Columns:
        return {name: groups.aggregate(state[name], "sum") for name in ("s", "n")}

    def result(self, state: Columns) -> pa.Array:
        counts = pc.if_else(pc.greater(state["n"], 0), state["n"], pa.scalar(None, pa.int64()))
        return pc.divide(state["s"], counts.cast(pa.float64()))


@dataclass(frozen=True)
class _Last(Aggregation):
    column: str
    by: str

    @property
    def inputs(self) -> tuple[str, ...]:  # type: ignore[override]
        return tuple(dict.fromkeys((self.column, self.by)))

    def state(self, rows: pa.Schema) -> dict[str, Any]:
        return {"at": _ordered(rows, self.by), "v": _ordered(rows, self.column)}

    def lift(self, rows: pa.Table) -> Columns:
        columns = {"at": _column(rows, self.by), "v": _column(rows, self.column)}
        both = pc.and_(*map(pc.is_valid, columns.values()))
        return {name: pc.if_else(both, column, pa.scalar(None, column.type)) for name, column in columns.items()}

    def merge(self, groups: Groups, state: Columns) -> Columns:
        # Of several rows at the same moment the largest value is taken, so that the order of rows does not matter.
        table = pa.table({_CODE: pa.array(groups.codes), **state})
        keys = [(name, "ascending", "at_start") for name in (_CODE, "at", "v")]
        places = groups.last_places(pc.sort_indices(table, sort_keys=keys).to_numpy())
        return {name: column.take(pa.array(places)) for name, column in state.items()}

    def result(self, state: Columns) -> pa.Array:
        return state["v"]


@dataclass(frozen=True)
class _TopK(Aggregation):
    column: str
    k: int

    @property
    def inputs(self) -> tuple[str, ...]:  # type: ignore[override]
        return (self.column,)

    def state(self, rows: pa.Schema) -> dict[str, Any]:
        return {"v": pa.list_(_summed(rows, self.column))}

    def lift(self, rows: pa.Table) -> Columns:
        kind = self.state(rows.schema)["v"]
        values = _column(rows, self.column).cast(kind.value_type)
        there = pc.is_valid(values).to_numpy(zero_copy_only=False)
        offsets = np.concatenate([[0], np.cumsum(there)]).astype(np.int32)
        return {"v": pa.ListArray.from_arrays(pa.array(offsets), values.drop_null(), type=kind)}

    def merge(self, groups: Groups, state: Columns) -> Columns:
        lists = state["v"]
        sizes = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
        codes, values = np.repeat(groups.codes, sizes), pc.list_flatten(lists)
        table = pa.table({_CODE: pa.array(codes), "v": values})
        order = pc.sort_indices(table, sort_keys=[(_CODE, "ascending"), ("v", "descending")]).to_numpy()
        codes = codes[order]
        starts = np.searchsorted(codes, np.arange(groups.size))
        kept = np.arange(len(codes)) - starts[codes] < self.k
        counts = np.bincount(codes[kept], minlength=groups.size)
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        best = values.take(pa.array(order[kept]))
        return {"v": pa.ListArray.from_arrays(pa.array(offsets), best, type=lists.type)}

    def result(self, state: Columns) -> pa.Array:
        return state["v"]


@dataclass(frozen=True)
class _ApproxDistinct(Aggregation):
    column: str

    @property
    def inputs(self) -> tuple[str, ...]:  # type: ignore[override]
        return ()

    @property
    def hashed(self) -> tuple[str, ...]:  # type: ignore[override]
        return (self.column,)

    def state(self, rows: pa.Schema) -> dict[str, Any]:
        return {"r": pa.binary()}

    def lift(self, rows: pa.Table) -> Columns:
        return {"r": lifted(_column(rows, hash_name(self.column)))}

    def merge(self, groups: Groups, state: Columns) -> Columns:
        return {"r": merged(groups.codes, groups.size, state["r"])}

    def result(self, state: Columns) -> pa.Array:
        return estimates(state["r"])


def count(column: str | None = None) -> Aggregation:
    """How many rows; with a column, how many in which it is not null."""
    return _Count(column)


def sum(column: str) -> Aggregation:
    """The sum of a column of numbers: whole numbers as long, others as double. Null if there are none."""
    return _Simple(column, "sum")


def min(column: str) -> Aggregation:
    """The smallest value of a column."""
    return _Simple(column, "min")


def max(column: str) -> Aggregation:
    """The largest value of a column."""
    return _Simple(column, "max")


def mean(column: str) -> Aggregation:
    """The mean of a column of numbers, as double."""
    return _Mean(column)


def last(column: str, *, by: str) -> Aggregation:
    """The value of a column in the row whose ``by`` is largest; of several such rows, the largest value."""
    return _Last(column, by)


def top_k(column: str, k: int) -> Aggregation:
    """The ``k`` largest values of a column of numbers, largest first, as an array."""
    if k < 1:
        raise PipelineError(f"top_k wants the {k} largest values: ask for 1 or more")
    return _TopK(column, k)


def approx_distinct(column: str) -> Aggregation:
    """About how many different values a column has, with a standard error of 3 %."""
    return _ApproxDistinct(column)


def hash_name(column: str) -> str:
    """The name under which the hashes of a column come with the rows."""
    return f"{column}#hash"


def _column(rows: pa.Table, name: str) -> pa.Array:
    column = rows.column(name)
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _summed(rows: pa.Schema, name: str) -> Any:
    kind = rows.field(name).type
    if pa.types.is_integer(kind):
        return pa.int64()
    if pa.types.is_floating(kind):
        return pa.float64()
    raise SchemaMismatch(
        f"{name} has the type {kind}: this aggregation takes whole and floating numbers, so cast it"
    )


def _ordered(rows: pa.Schema, name: str) -> Any:
    kind = rows.field(name).type
    if builtins.any(test(kind) for test in (pa.types.is_nested, pa.types.is_null, pa.types.is_interval)):
        raise SchemaMismatch(f"{name} has the type {kind}, which has no order: cast it")
    return kind
