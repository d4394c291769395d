"""Event time across a cut: the query that reads a log has the watermark of the query that wrote it.

Writing. When the rows of a batch are written, Spark's tracker already has the event times of the batch; asked
through the JVM it gives the watermark of the next batch, before Spark itself gets there. What leaves a query is
not always that watermark: a stream-stream join holds rows back, so its output is older. The watermark is
therefore carried up the plan as Spark does between the stateful operators of one query: from the watermark
nodes, through every stateful operator's own rule, the smallest where streams meet.

Reading. `TidelockSource` ends every batch with a marker row that holds the watermark after the batch's last
epoch in a column of its own, which is null in all other rows. A watermark node on that column (delay 0) makes
Spark's watermark of the next batch exactly that. A filter above it drops the marker. Nothing may drop it earlier:
Spark does not push a filter on the event-time column below its node, but the user's own filters are on other
columns and would go down to the source. A condition that is not deterministic stops them, because no filter is
moved past one. The event-time columns get their mark back by their metadata.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructField

from tidelock.spark.schema import WATERMARK_DELAY, quoted

MARKER = "__tidelock_watermark"
"""The column of the marker rows; it never leaves `restore`."""

_WATERMARK_NODE = "EventTimeWatermarkExec"


def after_batch(spark: SparkSession, query_id: str) -> int:
    """The watermark, in milliseconds, of what the query writes after its current batch.

    To be asked inside `foreachBatch`, when the batch's rows have been computed. Idempotent.
    """
    query: Any = spark.streams.get(query_id)
    execution = query._jsq.streamingQuery()
    plan = execution.lastExecution().executedPlan()
    tracker = execution.watermarkTracker()
    tracker.updateWatermark(plan)
    carried = _carried(plan, tracker.currentWatermark())
    return max(0, carried or 0)


def _carried(node: Any, watermark: int) -> int | None:
    """The watermark that leaves a node of the physical plan; None where there is no event time below."""
    if node.getClass().getSimpleName() == _WATERMARK_NODE:
        return watermark
    children = node.children()
    below = [_carried(children.apply(i), watermark) for i in range(children.size())]
    arriving = [w for w in below if w is not None]
    if not arriving:
        return None
    if not _is_stateful(node):
        return min(arriving)
    leaving = node.produceOutputWatermark(min(arriving))
    return int(leaving.get()) if leaving.isDefined() else None


def _is_stateful(node: Any) -> bool:
    jvm: Any = SparkSession.active().sparkContext._jvm
    stateful = jvm.java.lang.Class.forName(
        "org.apache.spark.sql.execution.streaming.operators.stateful.StateStoreWriter"
    )
    return bool(stateful.isInstance(node))


def restore(stream: DataFrame, columns: Mapping[str, int]) -> DataFrame:
    """The stream of a log read with the marker column, with the watermark of its writer."""
    marked = stream.withWatermark(MARKER, "0 seconds").where(F.col(MARKER).isNull() & _always())
    fields = [field for field in stream.schema if field.name != MARKER]
    return marked.select([_with_delay(field, columns.get(field.name)) for field in fields])


def unmoved(stream: DataFrame) -> DataFrame:
    """The same stream; Spark moves no condition of what comes later below this point."""
    return stream.where(_always())


def _always() -> Column:
    return F.spark_partition_id() >= 0  # always true, and not deterministic in Spark's terms


def _with_delay(field: StructField, delay_ms: int | None) -> Column:
    column = F.col(quoted(field.name))
    if delay_ms is None:
        return column
    return column.alias(field.name, metadata={**field.metadata, WATERMARK_DELAY: delay_ms})
