"""How the state of some keys changes with the rows of an epoch: by aggregations, or by a function of the user."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelock.cache.aggregates import Aggregation, Groups
from tidelock.cache.bytes import Numbers, whole
from tidelock.cache.cells import Flags
from tidelock.cache.rows import RowCodec
from tidelock.errors import SchemaMismatch


class StateChange(Protocol):
    """How an operator changes the state of some keys."""

    def __call__(self, rows: pa.Table, groups: Groups, state: pa.Table) -> tuple[pa.Table, pa.Table, Flags]:
        """From rows, the number of each row's key, and a row of state per key (nulls if it has none).

        Returns the output, a row of new state per key, and for which keys there is any.
        """


class Aggregate:
    """The change that aggregations make: one row of output for every key, with its new values."""

    def __init__(self, keys: Sequence[str], aggregations: dict[str, Aggregation]) -> None:
        self._keys = tuple(keys)
        self._aggregations = aggregations

    def state(self, rows: pa.Schema) -> pa.Schema:
        """The columns of state of all aggregations."""
        return pa.schema(
            [
                (f"{name}.{part}", kind)
                for name, one in self._aggregations.items()
                for part, kind in one.state(rows).items()
            ]
        )

    def output(self, rows: pa.Schema) -> pa.Schema:
        """The columns of the output: the keys, and what is told of each aggregation."""
        empty = self.state(rows).empty_table()
        results = [(n, a.result(self._part(n, a, rows, empty)).type) for n, a in self._aggregations.items()]
        return pa.schema([*(rows.field(key) for key in self._keys), *results])

    def __call__(self, rows: pa.Table, groups: Groups, state: pa.Table) -> tuple[pa.Table, pa.Table, Flags]:
        """Merge the rows into the state."""
        both = Groups(np.concatenate([np.arange(groups.size), groups.codes]), groups.size)
        changed: dict[str, pa.Array] = {}
        output = {key: state.column(key) for key in self._keys}
        for name, aggregation in self._aggregations.items():
            old = self._part(name, aggregation, rows.schema, state)
            new = aggregation.lift(rows)
            parts = {part: pa.concat_arrays([old[part], whole(new[part]).cast(old[part].type)]) for part in old}
            merged = aggregation.merge(both, parts)
            changed |= {f"{name}.{part}": column for part, column in merged.items()}
            output[name] = aggregation.result(merged)
        return pa.table(output), pa.table(changed), np.ones(groups.size, np.bool_)

    @staticmethod
    def _part(name: str, aggregation: Aggregation, rows: pa.Schema, state: pa.Table) -> dict[str, pa.Array]:
        return {part: whole(state.column(f"{name}.{part}")) for part in aggregation.state(rows)}


class Custom:
    """The change that a user's function makes, over Arrow tables or pandas frames.

    The function gets the rows and the state (the keys, and the columns of state: null for a new key) and returns
    the output and the new state. A key whose state it does not return has none from then on.

    Raises:
        SchemaMismatch: the state has no columns.
    """

    def __init__(
        self, function: Any, keys: pa.Schema, values: pa.Schema, output: pa.Schema, *, pandas: bool
    ) -> None:
        if not len(values):
            raise SchemaMismatch("the state has no columns: declare at least one, as in state='seen boolean'")
        self._function = function
        self._keys = keys
        self._values = values
        self._output = output
        self._pandas = pandas

    def __call__(self, rows: pa.Table, groups: Groups, state: pa.Table) -> tuple[pa.Table, pa.Table, Flags]:
        """Call the function, and find the keys of what it returns."""
        answer = self._function(*(self._given(table) for table in (rows, state)))
        if not isinstance(answer, tuple) or len(answer) != 2:
            raise SchemaMismatch("the function has to return two tables: the output and the new state")
        output = _fitted(answer[0], self._output, "output")
        changed = _fitted(answer[1], pa.schema([*self._keys, *self._values]), "new state")
        places = self._places(state, changed)
        kept = np.zeros(groups.size, np.bool_)
        kept[places] = True
        source = np.zeros(groups.size, np.int64)
        source[places] = np.arange(len(places))
        values = changed.select(self._values.names)
        spread = values.take(pa.array(source)) if len(places) else _nothing(self._values, groups.size)
        return output, spread, kept

    def _given(self, table: pa.Table) -> Any:
        return table.to_pandas() if self._pandas else table

    def _places(self, state: pa.Table, changed: pa.Table) -> Numbers:
        """Where, among the keys of ``state``, each of those of ``changed`` is."""
        names = self._keys.names
        if changed.select(names).equals(state.select(names)):  # a function mostly keeps the keys as they are
            return np.arange(state.num_rows)
        codec = RowCodec(self._keys, "the keys")
        known, returned = codec.encode(state), codec.encode(changed)
        places = pc.index_in(returned, known)
        if places.null_count:
            raise SchemaMismatch("the function returned state of keys that it was not given")
        found: Numbers = places.to_numpy(zero_copy_only=False).astype(np.int64)
        if len(np.unique(found)) != len(found):
            raise SchemaMismatch("the function returned state of a key twice")
        return found


def _fitted(given: Any, schema: pa.Schema, what: str) -> pa.Table:
    """What a function returned, with exactly these columns."""
    try:
        table = _table(given, what)
        missing = [name for name in schema.names if name not in table.column_names]
        if missing:
            raise SchemaMismatch(
                f"the {what} lacks {', '.join(missing)}; the function returned "
                f"{', '.join(table.column_names) or 'no columns'}"
            )
        return table.select(schema.names).cast(schema)
    except (pa.ArrowException, KeyError, ValueError) as error:
        raise SchemaMismatch(f"the {what} does not have the declared types: {error}") from error


def _table(given: Any, what: str) -> pa.Table:
    if isinstance(given, pa.Table):
        return given
    import pandas as pd  # a task that does not use it does not wait for it

    if not isinstance(given, pd.DataFrame):
        raise SchemaMismatch(
            f"the {what} is of the type {type(given).__name__}: return an Arrow table or a pandas frame"
        )
    return pa.Table.from_pandas(given, preserve_index=False)


def _nothing(schema: pa.Schema, rows: int) -> pa.Table:
    return pa.table({field.name: pa.nulls(rows, field.type) for field in schema}, schema=schema)
