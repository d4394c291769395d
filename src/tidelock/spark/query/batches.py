"""What one batch of a query is about: which epochs, from which input. Known before its rows are computed.

Inside `foreachBatch` Spark has already put the batch's offsets on disk. A query whose sources are all logs has
their epochs; any other query is the head of a chain, and its batches are its epochs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from pyspark.sql import SparkSession

from tidelock.epochs import Epoch, EpochRange
from tidelock.errors import InternalError, PipelineError, TidelockError
from tidelock.log.window import InputRange
from tidelock.spark.checkpoint.checkpoint import Checkpoint
from tidelock.spark.checkpoint.offsets import BatchOffsets


class Stopped(TidelockError):
    """The query was asked to end, and does so before its next epoch."""


@dataclass(frozen=True)
class Work:
    """The identity of a batch: the same work done again agrees in all of this."""

    covers: EpochRange
    inputs: tuple[InputRange, ...]
    offsets: tuple[Mapping[str, Any], ...]
    query: str
    batch: int

    def identity(self) -> dict[str, Any]:
        """The same as JSON, to be stored beside what it led to."""
        fields = {**asdict(self), "covers": _pair(self.covers)}
        fields["inputs"] = [{"log": i.log, "name": i.name, "covers": _pair(i.covers)} for i in self.inputs]
        return dict(json.loads(json.dumps(fields)))


def _pair(covers: EpochRange) -> list[int]:
    return [covers.first, covers.last]


class Gate(Protocol):
    """What a batch has to pass before anything of it is computed."""

    def enter(self, work: Work, tidy: Callable[[], object]) -> None:
        """Return when the batch may go on; wait if it has to, raise if the query is to end here.

        ``tidy`` makes room; it is called at least once, and again while the batch waits.
        """

    def leave(self, failure: BaseException | None) -> None:
        """The batch that entered is done, or has failed."""


class OpenGate:
    """Lets everything through."""

    def enter(self, work: Work, tidy: Callable[[], object]) -> None:
        """Return as soon as it is tidy."""
        tidy()

    def leave(self, failure: BaseException | None) -> None:
        """Nothing to do."""


class Batches:
    """The batches of one query; ``where`` begins the messages about them."""

    def __init__(self, spark: SparkSession | None, checkpoint: str, where: str) -> None:
        self.checkpoint = Checkpoint(spark, checkpoint)
        self._where = where

    def work(self, batch_id: int) -> Work | None:
        """What batch ``batch_id`` does; None if it takes no epoch."""
        offsets = self.checkpoint.offsets(batch_id)
        before = self.checkpoint.offsets(batch_id - 1) if batch_id else None
        covers = EpochRange.single(Epoch(batch_id))
        if offsets.follows_logs:
            taken = offsets.covers(before)
            if not taken:
                return None
            covers = self._common(taken, offsets)
        return Work(covers, offsets.inputs(before), offsets.sources, self.checkpoint.query_id(), batch_id)

    def _common(self, taken: frozenset[EpochRange], offsets: BatchOffsets) -> EpochRange:
        if not offsets.advance_together:
            raise PipelineError(
                f"{self._where}: this query reads several logs one by one: read them with one call of "
                "tidelock.read_logs and use a new checkpoint, so that they take the same epochs"
            )
        if len(taken) != 1:
            ranges = ", ".join(map(str, sorted(taken)))
            raise InternalError(f"{self._where}: a batch took different epochs from its logs: {ranges}")
        return next(iter(taken))
