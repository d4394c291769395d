"""Starting a query whose batches are epochs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tidelock.spark.batches import Gate, Work
from tidelock.spark.checkpoint import Checkpoint
from tidelock.spark.formats import check_settings
from tidelock.spark.plans import has_watermark

_FOR_QUERIES = {
    # Every batch is an epoch: none without new input.
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    # How long a query without news waits before it asks its logs again, in milliseconds. Spark's 10 would keep a
    # core busy as soon as some segments wait for each other.
    "spark.sql.streaming.pollingDelay": "30",
    # Code that cannot be interrupted must not keep whoever stops the query waiting for ever.
    "spark.sql.streaming.stopTimeout": "60s",
}
_FOR_EVENT_TIME = {
    # Adaptive execution drops parts of a plan that have no rows in a batch, and the watermark nodes below them:
    # event times seen there do not count. Spark has it off for queries with state, and a cut must not turn it on.
    "spark.sql.adaptive.streaming.stateless.enabled": "false",
}
_KEEP_BATCHES = "spark.sql.streaming.minBatchesToRetain"
_starting = threading.Lock()
_INITIALIZING = "Initializing sources"
_TOO_LATE = "Python worker failed to connect back"
_LOOK_EVERY = 0.02


def start_query(
    stream: DataFrame,
    sink: Callable[[DataFrame, int], None],
    *,
    checkpoint: str,
    mode: str,
    name: str | None,
    trigger: dict[str, Any] | None,
    keep_batches: int | None = None,
) -> StreamingQuery:
    """Start a query that hands every batch to ``sink``, with the settings that epochs need.

    ``keep_batches``: how many batches its checkpoint remembers, if it is not Spark's usual number.

    Raises:
        PipelineError: the session, or an earlier run on this checkpoint, writes a format that is not known.
        LogCorrupt: a file of the checkpoint is torn.
    """
    check_settings(stream.sparkSession)
    Checkpoint(stream.sparkSession, checkpoint).check_newest()
    writer = stream.writeStream.outputMode(mode).foreachBatch(sink)
    writer = writer.option("checkpointLocation", checkpoint)
    if name is not None:
        writer = writer.queryName(name)
    if trigger is not None:
        writer = writer.trigger(**trigger)
    remembering = {} if keep_batches is None else {_KEEP_BATCHES: str(keep_batches)}
    timing = _FOR_EVENT_TIME if has_watermark(stream) else {}
    with _lent_settings(stream.sparkSession, {**_FOR_QUERIES, **remembering, **timing}):
        return writer.start()


def wait_until_ready(query: StreamingQuery) -> None:
    """Return when the query has its sources up, or has ended."""
    while query.isActive and query.status["message"] == _INITIALIZING:
        time.sleep(_LOOK_EVERY)


def came_too_late(query: StreamingQuery) -> bool:
    """Whether the query has ended because the machine was too busy to start Python in time for Spark."""
    return not query.isActive and _TOO_LATE in str(query.exception())


@contextmanager
def _lent_settings(spark: SparkSession, settings: dict[str, str]) -> Iterator[None]:
    # A query copies its session's settings when it starts, so the user's own settings are only lent.
    with _starting:
        before = {name: str(spark.conf.get(name)) for name in settings}
        _set(spark, settings)
        try:
            yield
        finally:
            _set(spark, before)


def _set(spark: SparkSession, settings: dict[str, str]) -> None:
    for name, value in settings.items():
        spark.conf.set(name, value)


@contextmanager
def passing(gate: Gate, work: Work, tidy: Callable[[], object] = lambda: None) -> Iterator[None]:
    """Enter the gate, and leave it when the block ends, however it does; ``tidy`` makes room for the batch."""
    gate.enter(work, tidy)
    try:
        yield
    except BaseException as failure:
        gate.leave(failure)
        raise
    gate.leave(None)


def compute(rows: DataFrame) -> None:
    """Compute a batch for what it does inside Spark, its state and its watermark."""
    rows.write.format("noop").mode("overwrite").save()
