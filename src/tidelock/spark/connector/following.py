"""A subject as a source: the batches of the job that follows it end on its epochs, in the manner that it is told.

Positions. A job with one subject has the subject's epochs as its own, so Spark keeps for every batch what it keeps
for any other log. With several subjects, each with its own count, the query counts its steps: `epoch` is the
number of the step, ``from`` and ``at`` have the epochs of all the logs before and after it, also in the offset of
each single source, because each of them may have to decide for all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from tidelock.epochs import BEFORE_FIRST, Epoch
from tidelock.following.follower import Follower, InstructionFile
from tidelock.following.merging import Position
from tidelock.log import EpochLog
from tidelock.spark.connector.options import ReadOptions
from tidelock.spark.connector.streams import LogPartition, LogPositions


class FollowStream(LogPositions, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A followed subject as a stream."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._opened: tuple[EpochLog, Follower] | None = None
        self._first: Position | None = None

    def initialOffset(self) -> dict[str, Any]:
        """The position of a query that has read nothing: a word, because the first round resolves it."""
        return self._offset(start=self._options.starting_epoch)

    def prepareForTriggerAvailableNow(self) -> None:
        """Read no further than what is published now."""
        self._follower.stop_at_present()

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:
        """Where the next batch ends: on epochs of all subjects, as the instruction of the moment wants it."""
        key = start.get("at") or start.get("epoch", start.get("start"))
        before, after = self._follower.decide(key, lambda: self._position(start))
        own = before[self._log.header.id]
        self._keep_cursor(own)
        if before == after and "epoch" in start:
            return start
        recalls = self._check_stands(start, own)
        return self._at(start.get("epoch", int(BEFORE_FIRST)), before, after, recalls)

    def reportLatestOffset(self) -> dict[str, Any]:
        """The newest epoch of the subject, so that Spark's progress shows how far behind the query is."""
        return self._offset(epoch=self._follower.newest(self._log.header.id))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The parts of the epochs of a batch."""
        self._check_same_log(end)
        first, last = self._own(end)
        if first == last:
            return []
        manifests = list(self._log.manifests(first, last))
        self._check_stands(end, last)  # after what it is about: the log may have been put back while it was read
        return self._plan(manifests)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a partition; runs on an executor."""
        assert isinstance(partition, LogPartition)
        return self._rows(partition)

    # -- the driver's side

    def _own(self, offset: dict[str, Any]) -> tuple[Epoch, Epoch]:
        """What a batch takes of this log: the epochs behind the first up to the second."""
        own = self._log.header.id
        if "at" in offset:
            return Epoch(offset["from"][own]), Epoch(offset["at"][own])
        return Epoch(offset["start"]), Epoch(offset["epoch"])

    def _position(self, start: dict[str, Any]) -> Position:
        if "epoch" in start:
            self._check_same_log(start)
            at: Position = start.get("at") or {self._log.header.id: Epoch(start["epoch"])}
            return at
        if self._first is None:  # `latest` means the moment of the first question, not of every one
            self._first = self._follower.first(start["start"])
        return self._first

    def _at(self, step: int, before: Position, after: Position, recalls: int) -> dict[str, Any]:
        if len(after) == 1:
            own = self._log.header.id
            return self._offset(start=before[own], epoch=after[own], recalls=recalls)
        number = step if before == after else step + 1
        offset = self._offset(start=step, epoch=number, recalls=recalls)
        return {**offset, "from": dict(before), "at": dict(after)}

    @property
    def _log(self) -> EpochLog:
        return self._open()[0]

    @property
    def _follower(self) -> Follower:
        return self._open()[1]

    def _open(self) -> tuple[EpochLog, Follower]:
        if self._opened is None:
            logs = {member.log: EpochLog.open(member.log) for member in self._options.together}
            instructions = InstructionFile(self._options.instruction or "")
            follower = Follower(
                list(logs.values()),
                self._options.group,
                instructions.now,
                mixed=self._options.mixed,
                consumers={logs[m.log].header.id: m.consumer for m in self._options.together if m.consumer},
            )
            self._opened = logs[self._options.log], follower
        return self._opened
