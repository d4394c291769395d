"""What Spark tells about its queries and its executors while they run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)
from pyspark.sql.streaming.query import StreamingQuery


@dataclass(frozen=True)
class Progress:
    """A batch that Spark has committed."""

    run: str
    batch: int
    rows: int
    rows_per_second: float
    seconds: float
    state_rows: int
    state_bytes: int


def recent(query: StreamingQuery) -> list[Progress]:
    """The last batches that a query has committed, the oldest first; Spark keeps a hundred."""
    return [_progress(found) for found in query.recentProgress]


def _progress(found: StreamingQueryProgress) -> Progress:
    return Progress(
        run=str(found.runId),
        batch=found.batchId,
        rows=found.numInputRows,
        rows_per_second=found.processedRowsPerSecond or 0.0,
        seconds=found.batchDuration / 1000,
        state_rows=sum(state.numRowsTotal for state in found.stateOperators),
        state_bytes=sum(state.memoryUsedBytes for state in found.stateOperators),
    )


class Listener(StreamingQueryListener):
    """Hands on what is worth knowing; called from threads of Spark."""

    def __init__(self, progressed: Callable[[Progress], None], ended: Callable[[str], None]) -> None:
        self._progressed = progressed
        self._ended = ended

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Not of interest: whoever starts a query knows it."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """A batch is in the commit log."""
        self._progressed(_progress(event.progress))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Not of interest."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """A query has ended, for whatever reason."""
        self._ended(str(event.runId))


@dataclass(frozen=True)
class Losses:
    """What Spark has coped with by itself since the application began."""

    failed_tasks: int
    lost_executors: tuple[str, ...]


def losses(spark: SparkSession) -> Losses:
    """Ask Spark for the tasks that failed and the executors that went away."""
    jsc: Any = spark.sparkContext._jsc
    found = jsc.sc().statusStore().executorList(False)
    executors = [found.apply(i) for i in range(found.size())]
    lost = [f"{e.id()} on {e.hostPort()}" for e in executors if not e.isActive() and e.id() != "driver"]
    return Losses(sum(int(e.failedTasks()) for e in executors), tuple(lost))
