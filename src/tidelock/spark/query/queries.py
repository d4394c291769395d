"""Starting a query whose batches are epochs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tidelock.spark.checkpoint.checkpoint import Checkpoint
from tidelock.spark.checkpoint.formats import check_settings
from tidelock.spark.plans.plans import has_watermark
from tidelock.spark.query.batches import Gate, Work

_FOR_QUERIES = {
    # Every batch is an epoch: none without new input.
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    # How long a query without news waits before it asks its logs again, in milliseconds. Spark's 10 would keep a
    # core busy as soon as some segments wait for each other.
    "spark.sql.streaming.pollingDelay": "30",
}
_FOR_EVENT_TIME = {
    # Adaptive execution drops parts of a plan that have no rows in a batch, and the watermark nodes below them:
    # event times seen there do not count. Spark has it off for queries with state, and a cut must not turn it on.
    "spark.sql.adaptive.streaming.stateless.enabled": "false",
}
_KEEP_BATCHES = "spark.sql.streaming.minBatchesToRetain"
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
    check_settings(stream.sparkSession.conf.get)
    Checkpoint(stream.sparkSession, checkpoint).check_newest()
    writer = stream.writeStream.outputMode(mode).foreachBatch(sink)
    writer = writer.option("checkpointLocation", checkpoint)
    if name is not None:
        writer = writer.queryName(name)
    if trigger is not None:
        writer = writer.trigger(**trigger)
    remembering = {} if keep_batches is None else {_KEEP_BATCHES: str(keep_batches)}
    timing = _FOR_EVENT_TIME if has_watermark(stream) else {}
    with LENDING.lent(stream.sparkSession, {**_FOR_QUERIES, **remembering, **timing}):
        return writer.start()


def wait_until_ready(query: StreamingQuery) -> None:
    """Return when the query has its sources up, or has ended."""
    while query.isActive and query.status["message"] == _INITIALIZING:
        time.sleep(_LOOK_EVERY)


def came_too_late(query: StreamingQuery) -> bool:
    """Whether the query has ended because the machine was too busy to start Python in time for Spark."""
    return not query.isActive and _TOO_LATE in str(query.exception())


class StartWaiting(Protocol):
    """Who waits for what a thread starts, and may lose patience."""

    def turn(self, turns: threading.Semaphore) -> AbstractContextManager[object]:
        """Have a turn inside, which is given back when the block ends or nobody waits for it any more."""


_waiting = threading.local()


@contextmanager
def waited_for_by(waiting: StartWaiting) -> Iterator[None]:
    """Inside, this thread starts queries for somebody who may lose patience: then it hinders no other one."""
    before = getattr(_waiting, "one", None)
    _waiting.one = waiting
    try:
        yield
    finally:
        _waiting.one = before


@dataclass(frozen=True, eq=False)
class _Loan:
    """Settings of a session that somebody else uses, as they were before."""

    spark: SparkSession
    before: dict[str, str]


class Lending:
    """Lends the settings of sessions to one start after the other; the user's own are put back afterwards.

    A query copies its session's settings somewhere in the middle of its start, and Spark calls code of the user in
    there: a listener of queries, the file system of the checkpoint. So a start can hang with what it was lent. It
    then keeps its turn for as long as somebody waits for it, and what it leaves is put back by whoever comes next.
    When it wakes up it may find the user's settings, which does not matter any more: its query is stopped before
    its first batch.

    Thread-safe: a lock guards what is lent. It is held only while settings are set, where Spark calls nobody.
    """

    def __init__(self) -> None:
        self._turns = threading.Semaphore(1)
        self._lock = threading.Lock()
        self._loan: _Loan | None = None

    @contextmanager
    def lent(self, spark: SparkSession, settings: dict[str, str]) -> Iterator[None]:
        """Inside, the session has these settings."""
        waiting: StartWaiting | None = getattr(_waiting, "one", None)
        with self._turns if waiting is None else waiting.turn(self._turns):
            self._clear()
            loan = _Loan(spark, {name: str(spark.conf.get(name)) for name in settings})
            try:
                self._lend(loan, settings)
                yield
            finally:
                self._put_back(loan)

    def clear(self) -> None:
        """Put back what a start has left for which nobody waits any more."""
        if self._turns.acquire(blocking=False):
            try:
                self._clear()
            finally:
                self._turns.release()

    def _clear(self) -> None:
        with suppress(Exception):  # the session of that start may be gone
            self._put_back(self._loan)

    def _lend(self, loan: _Loan, settings: dict[str, str]) -> None:
        with self._lock:
            self._loan = loan
            _set(loan.spark, settings)

    def _put_back(self, loan: _Loan | None) -> None:
        with self._lock:
            if loan is not None and loan is self._loan:
                self._loan = None
                _set(loan.spark, loan.before)


LENDING = Lending()
"""That of this process."""


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
