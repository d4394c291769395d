"""What Spark tells about its queries and its executors while they run.

Spark hands its events to a listener one after another, and while the listener has one, the others wait in Java
with the plans of the batches that they are about. PySpark's own listener asks Java for each figure of an event by
itself, some hundred calls in all. Several queries with short batches, on a busy machine, make events faster than
that, so the memory of Java grows, and in the end Spark drops events. Here an event is two calls: Spark writes it
down as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener
from pyspark.sql.streaming.query import StreamingQuery


@dataclass(frozen=True)
class BatchProgress:
    """A batch that Spark has committed."""

    run: str
    batch: int
    rows: int
    rows_per_second: float
    seconds: float
    state_rows: int
    state_bytes: int


def recent(query: StreamingQuery) -> list[BatchProgress]:
    """The last batches that a query has committed, the oldest first; Spark keeps a hundred."""
    asked: Any = query
    return [_progress(found.json()) for found in asked._jsq.recentProgress()]


def _progress(document: str) -> BatchProgress:
    found = json.loads(document)
    states = found["stateOperators"]
    return BatchProgress(
        run=found["runId"],
        batch=found["batchId"],
        rows=found["numInputRows"],
        # Spark leaves out what is not a number, as the rate of a batch that took no time.
        rows_per_second=found.get("processedRowsPerSecond", 0.0),
        seconds=found["batchDuration"] / 1000,
        state_rows=sum(state["numRowsTotal"] for state in states),
        state_bytes=sum(state["memoryUsedBytes"] for state in states),
    )


class Listener(StreamingQueryListener):
    """Hands on what is worth knowing, from threads of Spark. Immutable; whoever it tells must be thread-safe.

    For `spark.streams.addListener`. The events that it gets are Java's, not PySpark's.
    """

    def __init__(self, progressed: Callable[[BatchProgress], None], ended: Callable[[str], None]) -> None:
        self._progressed = progressed
        self._ended = ended

    @cached_property
    def _jlistener(self) -> Any:
        """What PySpark hands to Spark: without its own translation of events in between."""
        context: Any = SparkContext
        return context._jvm.PythonStreamingQueryListenerWrapper(self)

    def onQueryStarted(self, event: Any) -> None:
        """Not of interest: whoever starts a query knows it."""

    def onQueryProgress(self, event: Any) -> None:
        """A batch is in the commit log."""
        self._progressed(_progress(event.progress().json()))

    def onQueryIdle(self, event: Any) -> None:
        """Not of interest."""

    def onQueryTerminated(self, event: Any) -> None:
        """A query has ended, for whatever reason."""
        self._ended(str(event.runId().toString()))

    class Java:
        """What py4j takes it for in Java."""

        implements = ("org.apache.spark.sql.streaming.PythonStreamingQueryListener",)


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
