"""Event time across a cut: the query that reads a log has the watermark of the query that wrote it.

Writing. When the rows of a batch are written, Spark's tracker already has the event times of the batch; asked
through the JVM it gives the watermark of the next batch, before Spark itself gets there. What leaves a query is
not always that watermark: a stream-stream join holds rows back, so its output is older. The watermark is
therefore carried up the plan as Spark does between the stateful operators of one query: from the watermark
nodes, through every stateful operator's own rule, the smallest where streams meet. Every watermark that the query
declares has to be met on the way. If one is not, the batch fails: a guess would be a watermark that stands still,
which shows only much later, as windows that never close. Adaptive execution, which would leave out of the plan
what had no rows in a batch together with the watermark node below it, is off for these queries (`queries`).

Reading. `TidelockSource` ends every batch with a marker row that holds the watermark after the batch's last
epoch in a column of its own, which is null in all other rows. A watermark node on that column (delay 0) makes
Spark's watermark of the next batch exactly that. A filter above it drops the marker. Nothing may drop it earlier:
Spark does not push a filter on the event-time column below its node, but the user's own filters are on other
columns and would go down to the source. A condition that is not deterministic stops them, because no filter is
moved past one. The event-time columns get their mark back by their metadata.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructField

from tidelock.errors import PipelineError
from tidelock.spark.schema import WATERMARK_DELAY, quoted

MARKER = "__tidelock_watermark"
"""The column of the marker rows; it never leaves `restore`."""

_EXECUTION = "org.apache.spark.sql.execution"
_WATERMARK_NODE = f"{_EXECUTION}.streaming.operators.stateful.EventTimeWatermarkExec"
_STATEFUL_NODE = f"{_EXECUTION}.streaming.operators.stateful.StateStoreWriter"
_WRAPPERS: Mapping[str, Callable[[Any], Any]] = {
    f"{_EXECUTION}.adaptive.AdaptiveSparkPlanExec": lambda node: node.executedPlan(),
    f"{_EXECUTION}.adaptive.QueryStageExec": lambda node: node.plan(),
    f"{_EXECUTION}.exchange.ReusedExchangeExec": lambda node: node.child(),
    f"{_EXECUTION}.columnar.InMemoryTableScanExec": lambda node: node.relation().cachedPlan(),
}
"""Nodes that show no children, although a plan is inside; and how to get at it."""


def after_batch(spark: SparkSession, query_id: str, where: str) -> int:
    """The watermark, in milliseconds, of what the query writes after its current batch.

    To be asked inside `foreachBatch`, when the batch's rows have been computed. Idempotent. ``where`` begins the
    message of an error.

    Raises:
        PipelineError: the plan of the batch does not show all watermarks that the query declares, or lets none
            out, so that nobody can say what leaves it.
    """
    query: Any = spark.streams.get(query_id)
    execution = query._jsq.streamingQuery()
    plan = execution.lastExecution().executedPlan()
    tracker = execution.watermarkTracker()
    tracker.updateWatermark(plan)
    declared = _declared(tracker)
    walk = _Walk(spark, tracker.currentWatermark())
    carried = walk.leaving(plan)
    if hidden := len(declared - walk.seen):
        raise PipelineError(
            f"{where}: the watermark of its rows cannot be told, because Spark's plan of the batch does not show "
            f"{hidden} of the {len(declared)} watermarks that the query declares; the plan ends at "
            f"{', '.join(sorted(walk.leaves)) or 'nothing'}. If a condition is never true, so that Spark has left "
            "out a stream, leave it out yourself; otherwise read the operator that declares the watermark from a "
            "log of its own, with anchor=True at the operators after it"
        )
    if carried is None:
        raise PipelineError(
            f"{where}: this log is for rows with event time, and no watermark gets through Spark's plan of the "
            "batch. Declare one on what the query gives, with withWatermark"
        )
    return max(0, carried)


def _declared(tracker: Any) -> set[str]:
    """The identities of the watermark nodes that the query started with."""
    ids = tracker.watermarkMap().keys().toSeq()
    return {str(ids.apply(i).toString()) for i in range(ids.size())}


class _Walk:
    """One way through an executed plan, with the rules by which Spark itself carries a watermark up.

    Attributes:
        seen: the identities of the watermark nodes that were met.
        leaves: what the nodes are called at which the plan ends.
    """

    def __init__(self, spark: SparkSession, watermark: int) -> None:
        jvm: Any = spark.sparkContext._jvm
        self._class = jvm.java.lang.Class.forName
        self._watermark = watermark
        self._wrappers = [(self._class(name), inside) for name, inside in _WRAPPERS.items()]
        self._watermark_node = self._class(_WATERMARK_NODE)
        self._stateful_node = self._class(_STATEFUL_NODE)
        self.seen: set[str] = set()
        self.leaves: set[str] = set()

    def leaving(self, node: Any) -> int | None:
        """The watermark that leaves a node; None where there is no event time below, or none gets through."""
        below = [self.leaving(child) for child in self._below(node)]
        if self._watermark_node.isInstance(node):
            self.seen.add(str(node.nodeId().toString()))
            return self._watermark
        arriving = [watermark for watermark in below if watermark is not None]
        if not arriving:
            return None
        if not self._stateful_node.isInstance(node):
            return min(arriving)
        leaving = node.produceOutputWatermark(min(arriving))
        return int(leaving.get()) if leaving.isDefined() else None

    def _below(self, node: Any) -> list[Any]:
        children = node.children()
        if children.size():
            return [children.apply(i) for i in range(children.size())]
        for wrapper, inside in self._wrappers:
            if wrapper.isInstance(node):
                return [inside(node)]
        self.leaves.add(str(node.nodeName()))
        return []


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
