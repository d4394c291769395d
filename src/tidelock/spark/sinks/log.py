"""Writing a stream to an epoch log: from `foreachBatch`, exactly once.

One batch, one entry, for the epochs of the batch. The executors write the parts in parallel, the driver
publishes the manifest. A batch that is run again after a crash finds its entry and only computes, so that Spark
gets its state and its watermark, and nothing is published twice.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from tidelock.epochs import Epoch
from tidelock.errors import PipelineError
from tidelock.log import EpochLog, LogWriter, Retention
from tidelock.log.entry import Manifest, Part, Watermark
from tidelock.log.parts import PART_BYTES, write_batches
from tidelock.log.store import open_store
from tidelock.spark.connector.watermark import after_batch
from tidelock.spark.plans.plans import gives_watermark
from tidelock.spark.processes.worker_environment import tell_workers
from tidelock.spark.query.batches import Batches, Gate, OpenGate, Work
from tidelock.spark.query.failures import told_shortly
from tidelock.spark.query.queries import compute, passing, start_query
from tidelock.spark.schema import (
    arrow_schema,
    check_fits,
    describe,
    event_time_columns,
    quoted,
    readable,
)


def write_log(
    stream: DataFrame,
    log: str,
    *,
    checkpoint: str,
    mode: str = "append",
    name: str | None = None,
    trigger: dict[str, Any] | None = None,
    retention: Retention | None = None,
    outputMode: str | None = None,
) -> StreamingQuery:
    """Start a query that writes ``stream`` to the epoch log at the URL ``log``.

    The log is made if it is not there. This run becomes its only writer: an earlier run of the same query that
    is still alive fails with `Fenced` at its next epoch. Batches without new input are off, so that every batch
    is an epoch.

    Args:
        stream: any streaming DataFrame.
        log: where to write: `file:/path` or `redis://host/0/name`.
        checkpoint: the query's checkpoint directory; it belongs to this log for ever.
        mode: Spark's output mode: `append`, `update` or `complete`.
        name: the query's name in Spark's own displays.
        trigger: the arguments of Spark's `trigger`, for example ``{"availableNow": True}``.
        retention: what a new log keeps although all have read it.
        outputMode: the same as ``mode``, as Spark spells it.

    Raises:
        PipelineError: ``stream`` is not a stream.
        SchemaMismatch: its columns cannot be stored, or are not those of the log.
    """
    if not stream.isStreaming:
        raise PipelineError("write_log takes a streaming DataFrame, and this one is a batch")
    created = make_log(log, stream.schema, event_time=gives_watermark(stream), retention=retention)
    sink = LogSink(stream.sparkSession, created, checkpoint)
    return start_query(stream, sink, checkpoint=checkpoint, mode=outputMode or mode, name=name, trigger=trigger)


def make_log(
    url: str,
    schema: StructType,
    *,
    event_time: bool,
    name: str | None = None,
    retention: Retention | None = None,
    identity: str | None = None,
) -> EpochLog:
    """The log at ``url`` for rows of this schema, made if it is not there, with ``identity`` if it was there once.

    Raises:
        SchemaMismatch: the columns cannot be stored, or are not those of the log.
        PipelineError: the log is for rows with event time, and these have none, or the other way round.
    """
    log = EpochLog.create(
        url, describe(schema), name=name, retention=retention, event_time=event_time, identity=identity
    )
    check_fits(schema, log.header.schema, log.shown)
    if log.header.event_time != event_time:
        raise PipelineError(f"{log.shown}: {_NO_WATERMARK if log.header.event_time else _A_WATERMARK}")
    return log


_NO_WATERMARK = (
    "this log is for rows with event time, and no watermark leaves the query that writes it: use the inputs that "
    "have one, declare it with withWatermark (after a function with state, which lets none through), or write to "
    "a new log, in a pipeline with a new home"
)
_A_WATERMARK = (
    "this log is for rows without event time, and the query that writes it now declares a watermark, which would "
    "not reach its readers: write to a new log, in a pipeline with a new home"
)


class LogSink:
    """The function for `foreachBatch`. Made on the driver, once per run of a query."""

    def __init__(self, spark: SparkSession, log: EpochLog, checkpoint: str, gate: Gate | None = None) -> None:
        self._spark = spark
        tell_workers(spark)
        self._log = log
        self._batches = Batches(spark, checkpoint, log.shown)
        self._gate = gate or OpenGate()
        self._writer: LogWriter = log.take_over(owner=f"run {uuid.uuid4().hex[:8]} on {checkpoint}")
        self._schema = readable(log.header.schema)

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        """Publish ``rows`` as the entry of batch ``batch_id``, unless that has been done."""
        with told_shortly(f"{self._log.shown}: batch {batch_id}"):
            work = self._batches.work(batch_id)
            if work is None:
                compute(rows)
                return
            with passing(self._gate, work, self._writer.truncate):
                self._process(rows, work)

    def _process(self, rows: DataFrame, work: Work) -> None:
        manifest = self._manifest(work)
        if self._writer.is_published(manifest.entry):
            compute(rows)
            return
        parts = self._write_parts(rows, work.covers.last)
        self._writer.publish(replace(manifest, parts=parts, watermark=self._watermark(work)))
        self._writer.truncate()

    def _manifest(self, work: Work) -> Manifest:
        """The manifest of a batch, before its rows are known."""
        return Manifest(
            log=self._log.header.id,
            covers=work.covers,
            schema=self._log.header.schema,
            parts=(),
            inputs=work.inputs,
            offsets=work.offsets,
            query=work.query,
            batch=work.batch,
        )

    def _write_parts(self, rows: DataFrame, last: Epoch) -> tuple[Part, ...]:
        write = _part_writer(self._log.url, self._writer.part_prefix(last), arrow_schema(self._schema))
        # Plain names, because `mapInArrow` looks columns up by name and stumbles over dots and ticks.
        names = self._schema.names
        ordered = rows.selectExpr(*(f"{quoted(name)} AS c{i}" for i, name in enumerate(names)))
        described = "file string, rows long, bytes long, crc32 long"
        written = ordered.mapInArrow(write, described).collect()
        return tuple(Part(**row.asDict()) for row in written)

    def _watermark(self, work: Work) -> Watermark | None:
        if not self._log.header.event_time:
            return None
        before = self._batches.checkpoint.offsets(work.batch).watermark_ms
        columns = event_time_columns(self._log.header.schema)
        return Watermark(before, after_batch(self._spark, work.query, self._log.shown), columns)


def _part_writer(
    url: str, prefix: str, schema: pa.Schema
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function that writes a partition's rows as parts and yields their descriptions."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        store = open_store(url)
        fitting = (_fitted(batch, schema) for batch in batches if batch.num_rows)
        for first in fitting:
            name = f"{prefix}{uuid.uuid4().hex}.arrow"
            content = _until_full(first, fitting)
            part = store.write_part(name, partial(write_batches, name=name, schema=schema, batches=content))
            yield pa.RecordBatch.from_pylist([part.to_fields()])

    return write


def _fitted(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with the log's types: the same values, under another time zone's name or nullability."""
    columns = [
        column if column.type.equals(field.type) else column.cast(field.type)
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _until_full(first: pa.RecordBatch, rest: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """``first`` and what follows, until there is enough for one part."""
    size = first.nbytes
    yield first
    while size < PART_BYTES:
        batch = next(rest, None)
        if batch is None:
            return
        size += batch.nbytes
        yield batch
