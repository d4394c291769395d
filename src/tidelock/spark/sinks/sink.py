"""What takes the rows of a pipeline out of it, and what it is promised.

For every batch that takes an epoch, in the order of epochs, `deliver` is called: once, and again after a failure,
with the same rows and the same work. What is behind an epoch may be taken back first: a home that was put back to
an older epoch makes the later ones anew, perhaps with other rows in them. So a sink whose effect is idempotent for
a work, or that stores the work together with its effect, has every epoch exactly once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidelock.epochs import BEFORE_FIRST, Epoch
from tidelock.spark.checkpoint.replay import Replay
from tidelock.spark.query.batches import Batches, Gate, Work
from tidelock.spark.query.failures import told_shortly
from tidelock.spark.query.queries import compute, passing
from tidelock.spark.schema import quoted


class Sink(ABC):
    """Where a pipeline ends. One object serves a run; its methods are called one at a time.

    A call that hangs for longer than `hang_after` is left alone, and the next one may come while it still does.
    """

    keeps_rows: bool = True
    """Rows are computed before `deliver` and kept until it returns, so that it may go through them as often as it
    likes. A sink that goes through them exactly once, in any case, says False and saves what keeping costs."""

    @abstractmethod
    def deliver(self, rows: DataFrame, work: Work) -> None:
        """Take the rows of a batch to where they belong, or see that this work has been done.

        Args:
            rows: a batch DataFrame.
            work: what the batch is; equal to that of an earlier call if it is run again. Its epochs are
                `work.covers.first` to `work.covers.last`.
        """

    def take_back(self, after: Epoch) -> None:
        """Forget what was delivered of epochs behind ``after``: they are made anew. Idempotent."""
        return


class DeliverySink:
    """The function for `foreachBatch` of a segment that ends in a sink."""

    def __init__(
        self,
        spark: SparkSession,
        name: str,
        sink: Sink,
        checkpoint: str,
        gate: Gate,
        replay: Replay | None = None,
    ) -> None:
        self._name = name
        self._sink = sink
        self._batches = Batches(spark, checkpoint, f"sink {name}")
        self._gate = gate
        self._delivered = replay.delivered if replay else BEFORE_FIRST
        # What is delivered again is taken back, unless the replay is under way.
        if replay is not None and self._batches.checkpoint.begun() <= replay.after:
            sink.take_back(max(replay.after, replay.delivered))

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        """Deliver ``rows``; a batch that takes no epoch, or was delivered before a replay, is only computed."""
        with told_shortly(f"sink {self._name}: batch {batch_id}"):
            work = self._batches.work(batch_id)
            if work is None:
                compute(rows)
                return
            with passing(self._gate, work):
                if work.covers.last <= self._delivered:
                    compute(rows)
                elif self._sink.keeps_rows:
                    self._deliver_kept(rows, work)
                else:
                    self._sink.deliver(rows, work)

    def _deliver_kept(self, rows: DataFrame, work: Work) -> None:
        held = kept(rows)
        try:
            self._sink.deliver(held, work)
        finally:
            held.unpersist()


def kept(rows: DataFrame) -> DataFrame:
    """The rows, computed and kept until `unpersist`."""
    # A batch that was sorted says so in terms of columns that it no longer has, and Spark 4.3 stumbles over that
    # when it keeps the batch. Renaming the columns makes it forget; the mark makes the renaming more than a no-op.
    renamed = [
        F.col(quoted(field.name)).alias(field.name, metadata={**field.metadata, "tidelock.kept": True})
        for field in rows.schema
    ]
    held = rows.select(renamed).persist()
    compute(held)
    return held
