"""Writing a stream to an epoch log: from `foreachBatch`, exactly once.

One batch, one entry. Inside `foreachBatch` Spark has already put the batch's offsets on disk, and they say which
input epochs it takes: a query whose sources are all logs gives its entry their epochs; any other query is the
head of a chain and numbers its epochs by its batches. The executors write the parts in parallel, the driver
publishes the manifest. A batch that is run again after a crash finds its entry and only computes, so that Spark
gets its state and its watermark, and nothing is published twice.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tidelock.epochs import Epoch, EpochRange
from tidelock.errors import InternalError, PipelineError
from tidelock.log import EpochLog, LogWriter, Retention
from tidelock.log.entry import Manifest, Part, Watermark
from tidelock.log.parts import PART_BYTES, write_batches
from tidelock.log.store import open_store
from tidelock.log.window import InputRange
from tidelock.spark.checkpoint import BatchOffsets, Checkpoint
from tidelock.spark.failures import told_shortly
from tidelock.spark.schema import (
    arrow_schema,
    check_fits,
    describe,
    event_time_columns,
    quoted,
    readable,
)
from tidelock.spark.watermark import after_batch

_NO_DATA_BATCHES = "spark.sql.streaming.noDataMicroBatches.enabled"
_starting = threading.Lock()


def write_log(
    stream: DataFrame,
    log: str,
    *,
    checkpoint: str,
    mode: str = "append",
    name: str | None = None,
    trigger: dict[str, Any] | None = None,
    retention: Retention | None = None,
) -> StreamingQuery:
    """Start a query that writes ``stream`` to the epoch log at the URL ``log``.

    The log is made if it is not there. This run becomes its only writer: an earlier run of the same query that
    is still alive fails with `Fenced` at its next epoch. Batches without new input are off, so that every batch
    is an epoch.

    Args:
        stream: any streaming DataFrame.
        log: where to write: `file:/path`.
        checkpoint: the query's checkpoint directory; it belongs to this log for ever.
        mode: Spark's output mode: `append`, `update` or `complete`.
        name: the query's name in Spark's own displays.
        trigger: the arguments of Spark's `trigger`, for example ``{"availableNow": True}``.
        retention: what a new log keeps although all have read it.

    Raises:
        PipelineError: ``stream`` is not a stream.
        SchemaMismatch: its columns cannot be stored, or are not those of the log.
    """
    if not stream.isStreaming:
        raise PipelineError("write_log takes a streaming DataFrame, and this one is a batch")
    created = EpochLog.create(log, describe(stream.schema), retention=retention)
    check_fits(stream.schema, created.header.schema, log)
    sink = LogSink(stream.sparkSession, created, checkpoint)
    writer = stream.writeStream.outputMode(mode).foreachBatch(sink)
    writer = writer.option("checkpointLocation", checkpoint)
    if name is not None:
        writer = writer.queryName(name)
    if trigger is not None:
        writer = writer.trigger(**trigger)
    return _start_without_empty_batches(stream.sparkSession, writer.start)


def _start_without_empty_batches(spark: SparkSession, start: Callable[[], StreamingQuery]) -> StreamingQuery:
    # A query copies its session's settings when it starts, so the user's own setting is only lent.
    with _starting:
        before = spark.conf.get(_NO_DATA_BATCHES)
        spark.conf.set(_NO_DATA_BATCHES, "false")
        try:
            return start()
        finally:
            spark.conf.set(_NO_DATA_BATCHES, str(before))


class LogSink:
    """The function for `foreachBatch`. Made on the driver, once per run of a query."""

    def __init__(self, spark: SparkSession, log: EpochLog, checkpoint: str) -> None:
        self._spark = spark
        self._log = log
        self._checkpoint = Checkpoint(spark, checkpoint)
        self._writer: LogWriter = log.take_over(owner=f"run {uuid.uuid4().hex[:8]} on {checkpoint}")
        self._schema = readable(log.header.schema)
        self._event_time = event_time_columns(log.header.schema)

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        """Publish ``rows`` as the entry of batch ``batch_id``, unless that has been done."""
        with told_shortly(f"{self._log.url}: batch {batch_id}"):
            self._process(rows, batch_id)

    def _process(self, rows: DataFrame, batch_id: int) -> None:
        manifest = self._describe(batch_id)
        if manifest is None or self._writer.is_published(manifest.entry):
            rows.write.format("noop").mode("overwrite").save()
            return
        parts = self._write_parts(rows, manifest.covers.last)
        watermark = self._watermark(batch_id)
        self._writer.publish(replace(manifest, parts=parts, watermark=watermark))
        self._writer.truncate()

    def _describe(self, batch_id: int) -> Manifest | None:
        """The manifest of a batch, before its rows are known; None if it takes no epoch."""
        offsets = self._checkpoint.offsets(batch_id)
        inputs = offsets.inputs(self._checkpoint.offsets(batch_id - 1) if batch_id else None)
        if offsets.follows_logs and not inputs:
            return None
        epochs = self._common(inputs, offsets) if offsets.follows_logs else EpochRange.single(Epoch(batch_id))
        return Manifest(
            log=self._log.header.id,
            covers=epochs,
            schema=self._log.header.schema,
            parts=(),
            inputs=inputs,
            offsets=offsets.sources,
            query=self._checkpoint.query_id(),
            batch=batch_id,
        )

    def _common(self, inputs: tuple[InputRange, ...], offsets: BatchOffsets) -> EpochRange:
        if not offsets.advance_together:
            raise PipelineError(
                f"{self._log.url}: this query reads several logs one by one: read them with one call of "
                "tidelock.read_logs and use a new checkpoint, so that they take the same epochs"
            )
        covers = {i.covers for i in inputs}
        if len(covers) != 1 or len(inputs) != len(offsets.sources):
            taken = ", ".join(f"{i.name} {i.covers}" for i in inputs)
            raise InternalError(f"{self._log.url}: a batch took different epochs: {taken}")
        return covers.pop()

    def _write_parts(self, rows: DataFrame, last: Epoch) -> tuple[Part, ...]:
        write = _part_writer(self._log.url, self._writer.part_prefix(last), arrow_schema(self._schema))
        # Plain names, because `mapInArrow` looks columns up by name and stumbles over dots and ticks.
        names = self._schema.names
        ordered = rows.selectExpr(*(f"{quoted(name)} AS c{i}" for i, name in enumerate(names)))
        described = "file string, rows long, bytes long, crc32 long"
        written = ordered.mapInArrow(write, described).collect()
        return tuple(Part(**row.asDict()) for row in written)

    def _watermark(self, batch_id: int) -> Watermark | None:
        if not self._event_time:
            return None
        before = self._checkpoint.offsets(batch_id).watermark_ms
        return Watermark(before, after_batch(self._spark, self._checkpoint.query_id()), self._event_time)


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
            yield pa.RecordBatch.from_pylist([vars(part)])

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
