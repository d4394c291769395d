"""Looking at the cached state of an operator, while its pipeline runs or not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidelock.cache.cells import Cells
from tidelock.cache.operator import StateShape, ended, without_ends
from tidelock.cache.snapshots import Snapshots
from tidelock.cache.store import CellStore, open_cells
from tidelock.caching.caches import cached_shape
from tidelock.epochs import BEFORE_FIRST, Epoch
from tidelock.errors import PipelineError
from tidelock.home.home import Home


def cached_state(home: str | Path, operator: str) -> CachedState:
    """The state that an operator of the pipeline in ``home`` keeps in a cache.

    Raises:
        PipelineError: nothing has run there, the operator keeps nothing in a cache, or the cache has lost it.
        BackendUnavailable: the cache does not answer.
    """
    place = Home(home).as_recorded()
    record = place.known()
    cached = [segment.cached for segment in record.segments if segment.cached is not None]
    if operator not in cached:
        raise PipelineError(
            f"{operator} keeps no state in a cache; in {place.root} these do: {', '.join(cached) or 'none'}"
        )
    store = open_cells(place.state(operator))
    shape = cached_shape(store, place)
    if shape is None:
        raise PipelineError(
            f"{store.shown} does not have the state of {operator}: run the pipeline to bring it back"
        )
    return CachedState(store, shape, Snapshots(place.snapshots(operator)))


class CachedState:
    """The state of one operator. Made by `cached_state`; reading disturbs nobody."""

    def __init__(self, store: CellStore, shape: StateShape, snapshots: Snapshots) -> None:
        self._store = store
        self._shape = shape
        self._snapshots = snapshots

    def lookup(self, keys: Sequence[Mapping[str, Any]]) -> tuple[Epoch, pa.Table]:
        """The state of some keys, and the epoch at whose end it is; nulls for a key that has none.

        Raises:
            PipelineError: the keys do not have the key's columns.
            BackendUnavailable: the cache does not answer.
        """
        try:
            asked = pa.Table.from_pylist([dict(key) for key in keys], schema=self._shape.keys)
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise PipelineError(f"these are not keys of this state: {error}") from error
        epoch, cells = self._store.find(self._shape.key_codec().encode(asked))
        versions, _ = Cells(cells).at(epoch)
        fence = self._store.fence()
        over = ended(self._shape, versions.values, 0 if fence is None else fence.watermark)
        values = pc.if_else(pa.array(over), pa.scalar(None, pa.binary()), versions.values)
        return epoch, self._table(asked, values)

    def snapshot(self) -> tuple[Epoch, pa.Table]:
        """All keys with their state as the newest snapshot has them, and the epoch at whose end that is.

        Raises:
            LogCorrupt: the snapshot is damaged.
        """
        epoch = max(self._snapshots.epochs(), default=BEFORE_FIRST)
        codec = self._shape.key_codec()
        tables = [
            self._table(codec.decode(keys.fields), versions.values)
            for keys, versions in (self._snapshots.read(epoch) if epoch > BEFORE_FIRST else ())
        ]
        empty = self._table(self._shape.keys.empty_table(), pa.array([], pa.binary()))
        return epoch, pa.concat_tables([empty, *tables])

    def _table(self, keys: pa.Table, values: pa.BinaryArray) -> pa.Table:
        table = without_ends(self._shape, values)
        return pa.Table.from_arrays(
            [*keys.columns, *table.columns], names=[*keys.column_names, *table.column_names]
        )
