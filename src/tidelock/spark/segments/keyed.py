"""`tidelock.keyed`: operators whose state lives in a cache and not in Spark.

For Spark such an operator is a shuffle by key and a function over Arrow batches, without state. Each task reads
the state of its keys from the cache and writes it back, so a query that is started again has nothing to load.

Where the state is, is known only when a query is built (`building`); a pipeline that is only looked at has none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from tidelock.cache.aggregates import Aggregation, hash_name
from tidelock.cache.changes import Aggregate, Custom, StateChange
from tidelock.cache.fence import WriteClaim
from tidelock.cache.operator import BUCKET, CachedOperator, Expiry, StateShape
from tidelock.cache.store import BUCKETS
from tidelock.errors import PipelineError, SchemaMismatch
from tidelock.intervals import interval_seconds
from tidelock.spark.processes.worker_environment import tell_workers
from tidelock.spark.schema import WATERMARK_DELAY, arrow_schema, quoted

_BATCH_ID = "streaming.sql.batchId"
_OUTPUT_ROWS = 65536


@dataclass(frozen=True)
class StatePlace:
    """Where the state of an operator is, and the right of the run that may write it."""

    url: str
    claim: WriteClaim


@dataclass
class Building:
    """An operator that is being built: where its state is, and what it turns out to keep."""

    place: StatePlace | None = None
    shape: StateShape | None = None
    calls_function: bool = False
    settings: object = None
    """How its state changes: what tells two operators with the same plan apart."""


_building: ContextVar[Building | None] = ContextVar("building", default=None)


@contextmanager
def building(place: StatePlace | None) -> Iterator[Building]:
    """Build an operator inside; afterwards the answer says what it keeps in the cache."""
    made = Building(place)
    reset = _building.set(made)
    try:
        yield made
    finally:
        _building.reset(reset)


def keyed(stream: DataFrame, *keys: str, expire_after: str | None = None, event_time: str | None = None) -> Keyed:
    """The rows of a stream by key, for an operator of a pipeline whose state is kept in a cache.

    Args:
        stream: an input of the operator.
        keys: the columns that make the key.
        expire_after: how long after the newest event time of its rows the state of a key ends, such as `1 hour`:
            it is forgotten when the watermark has passed that. Rows that are later than the watermark are dropped.
            Without it state stays for ever.
        event_time: the column with the event time; the one that has a watermark, if nothing is said.

    Raises:
        PipelineError: it is called outside of a pipeline's operator, or twice in one, or an argument is wrong.
    """
    operator = _building.get()
    if operator is None:
        raise PipelineError(
            "tidelock.keyed is called outside of a pipeline: use it in a function under @pipeline.operator"
        )
    if operator.shape is not None:
        raise PipelineError("tidelock.keyed is called twice in one operator: make two operators of it")
    if not keys:
        raise PipelineError("tidelock.keyed needs the columns that make the key: tidelock.keyed(rows, 'user')")
    for name in (*keys, *filter(None, [event_time])):
        _check_column(stream, name)
    return Keyed(stream, keys, _expiry(stream, expire_after, event_time), operator)


class Keyed:
    """Rows by key. Made by `keyed`; each of its methods is a whole operator."""

    def __init__(
        self, stream: DataFrame, keys: tuple[str, ...], expiry: Expiry | None, operator: Building
    ) -> None:
        self._stream = stream
        self._keys = keys
        self._expiry = expiry
        self._operator = operator

    def aggregate(self, **aggregations: Aggregation) -> DataFrame:
        """Ready-made aggregations, by the names that their columns are to have.

        The output has one row for each key that has rows in an epoch: the key and its new values.

        Raises:
            PipelineError: there are none, or a name is taken.
            SchemaMismatch: a column is unknown, or has a type that an aggregation cannot take.
        """
        if not aggregations:
            raise PipelineError("aggregate needs aggregations: .aggregate(n=tidelock.aggregates.count())")
        taken = sorted(aggregations.keys() & set(self._keys))
        if taken:
            raise PipelineError(f"{', '.join(taken)} is a key and cannot be the name of an aggregation, too")
        hashed = sorted({name for one in aggregations.values() for name in one.hashed})
        inputs = {name for one in aggregations.values() for name in one.inputs}
        for name in (*inputs, *hashed):
            _check_column(self._stream, name)
        ends = [self._expiry.column] if self._expiry else []
        columns = [*dict.fromkeys((*self._keys, *sorted(inputs), *ends))]
        rows = self._stream.select(
            *(F.col(quoted(name)) for name in columns),
            *(_hash(name).alias(hash_name(name)) for name in hashed),
        )
        schema = arrow_schema(rows.schema)
        change = Aggregate(self._keys, aggregations)
        self._operator.settings = (self._keys, aggregations, self._expiry)
        return self._built(rows, change, change.state(schema), change.output(schema))

    def apply(
        self, function: Callable[[Any, Any], tuple[Any, Any]], *, state: str, output: str, pandas: bool = False
    ) -> DataFrame:
        """A function of the user over whole batches.

        It is called with the rows that a task has for an epoch, and with the state of exactly their keys: the
        key columns and the columns of ``state``, which are null for a new key. It returns the output and the new
        state, in the same form; a key that it leaves out has no state any more. For the same rows it has to
        return the same, whatever their order, because an epoch may be computed again.

        Args:
            function: takes and returns two Arrow tables, or two pandas frames.
            state: the columns of the state, as in `total long, seen timestamp`.
            output: the columns of the output.
            pandas: call it with pandas frames. A column of whole numbers with nulls in it is one of floating
                numbers there, which are exact up to 2**53 only.

        Raises:
            SchemaMismatch: a schema cannot be read, or has a type that cannot be kept.
            PipelineError: a column of the state is one of the keys.
        """
        values, given = _schema(state, "state"), _schema(output, "output")
        taken = sorted(set(values.names) & set(self._keys))
        if taken:
            raise PipelineError(
                f"{', '.join(taken)} is a key: it is with the state anyway, so leave it out of `state`"
            )
        key_types = self._key_types(arrow_schema(self._stream.schema))
        change = Custom(function, key_types, values, given, pandas=pandas)
        self._operator.calls_function = True
        self._operator.settings = (self._keys, function, pandas, self._expiry)
        return self._built(self._stream, change, values, given)

    def _key_types(self, rows: pa.Schema) -> pa.Schema:
        return pa.schema([rows.field(key) for key in self._keys])

    def _built(self, rows: DataFrame, change: StateChange, values: pa.Schema, output: pa.Schema) -> DataFrame:
        rows = rows.withColumn(BUCKET, F.pmod(F.hash(*(F.col(quoted(k)) for k in self._keys)), F.lit(BUCKETS)))
        schema = arrow_schema(rows.schema)
        shape = StateShape(self._key_types(schema), values, self._expiry)
        shape.key_codec()
        shape.value_codec()
        self._operator.shape = shape
        partitions = int(str(rows.sparkSession.conf.get("spark.sql.shuffle.partitions")))
        apart = rows.repartitionById(partitions, F.col(quoted(BUCKET)))
        tell_workers(rows.sparkSession)
        work = partial(_work, self._operator.place, shape, change, schema, output)
        # Plain names, because `mapInArrow` looks columns up by name and stumbles over dots and ticks.
        plain = apart.toDF(*(f"c{i}" for i in range(len(schema))))
        made = plain.mapInArrow(_batches(work), _plain(from_arrow_schema(output)))
        return made.select([self._named(f"c{i}", name) for i, name in enumerate(output.names)])

    def _named(self, column: str, name: str) -> Column:
        """An output column; one that has a watermark in the input keeps it."""
        known = {field.name: field.metadata for field in self._stream.schema}
        delay = known.get(name, {}).get(WATERMARK_DELAY)
        return F.col(column).alias(name, metadata={WATERMARK_DELAY: delay}) if delay else F.col(column).alias(name)


def _work(
    place: StatePlace | None,
    shape: StateShape,
    change: StateChange,
    rows: pa.Schema,
    output: pa.Schema,
    given: pa.Table,
) -> pa.Table | None:
    """What a task does with its rows."""
    if place is None:
        raise PipelineError("this operator was built to be looked at, not to run")
    context: Any = TaskContext.get()
    batch = int(context.getLocalProperty(_BATCH_ID))
    operator = CachedOperator(place.url, place.claim, shape, change)
    made = operator.process(batch, given.rename_columns(rows.names).cast(rows))
    return None if made is None else made.select(output.names).cast(output)


def _batches(
    work: Callable[[pa.Table], pa.Table | None],
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function for `mapInArrow`: all rows of the task at once."""

    def process(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        given = [batch for batch in batches if batch.num_rows]
        made = work(pa.Table.from_batches(given)) if given else None
        if made is not None:
            plain = made.rename_columns([f"c{i}" for i in range(made.num_columns)])
            yield from plain.combine_chunks().to_batches(_OUTPUT_ROWS)

    return process


def _plain(schema: StructType) -> StructType:
    plain = StructType()
    for number, field in enumerate(schema):
        plain = plain.add(f"c{number}", field.dataType)
    return plain


def _hash(column: str) -> Column:
    """The hash of a value; null for a null."""
    value = F.col(quoted(column))
    return F.when(value.isNotNull(), F.xxhash64(value))


def _expiry(stream: DataFrame, after: str | None, event_time: str | None) -> Expiry | None:
    if after is None:
        if event_time is not None:
            raise PipelineError("event_time says by which time state ends: say also when, expire_after='1 hour'")
        return None
    watermarked = [field.name for field in stream.schema if WATERMARK_DELAY in field.metadata]
    if not watermarked:
        raise PipelineError(
            "expire_after needs a watermark, which says how far event time has come: declare one before with "
            "withWatermark"
        )
    column = event_time or watermarked[0]
    kind = stream.schema[column].dataType.typeName()
    if not kind.startswith("timestamp"):
        raise PipelineError(f"the event time {column} is of the type {kind}: it has to be a timestamp")
    return Expiry(column, round(interval_seconds(after, "expire_after") * 1e6))


def _check_column(stream: DataFrame, name: str) -> None:
    if name not in stream.columns:
        raise SchemaMismatch(f"there is no column {name}: the rows have {', '.join(stream.columns)}")


def _schema(declared: str, what: str) -> pa.Schema:
    try:
        parsed: Any = StructType.fromDDL(declared)
    except PySparkException:
        parsed = None
    if not isinstance(parsed, StructType):
        raise SchemaMismatch(
            f"the {what} is declared as {declared!r}, which Spark cannot read as columns: write it like 'total "
            "long, seen timestamp'"
        )
    return arrow_schema(parsed)
