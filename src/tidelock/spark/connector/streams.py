"""An epoch log as a stream whose batches end exactly on epochs, and as one batch.

Positions. Spark keeps for every batch the offset at which it ends; ``{..., "start": 4, "epoch": 7}`` is a batch
of epochs 5 to 7, in the query's own count (a log that is read with a lag is that much behind it). A new query
stands at a word, `earliest` or `latest`; its first batch makes that a number for good, also when there is nothing
to read yet, and has the start with it, so that it reads the same when it is run again. (Spark runs a first batch
in any case.)

Cursors. Spark asks for the end of the next batch only after the previous one is in its commit log. The position
that it gives with that question is therefore durable, and the cursor moves there, and nowhere else. A new query
first sets the cursors on all of its logs and then looks where they begin: what it decides to read is kept.

Processes. `LogStream` lives in a Python process of the driver for as long as the query runs; `_read` runs in
Python workers of the executors. Both open the log by its URL; only options travel.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from tidelock.epochs import BEFORE_FIRST, Epoch, EpochRange
from tidelock.errors import LogNotFound, PipelineError
from tidelock.following.rounds import ALL_EPOCHS, Reading, Rounds
from tidelock.log import EpochLog
from tidelock.log.entry import Manifest, Part
from tidelock.log.log import Header, lost
from tidelock.spark.checkpoint.replay import read_replay
from tidelock.spark.connector.options import ReadOptions
from tidelock.spark.schema import arrow_schema, check_selection

_SMALLEST_PARTITION = 1 << 20


@dataclass(frozen=True)
class Piece:
    """A part, and the entry that it belongs to."""

    covers: EpochRange
    part: Part


@dataclass
class LogPartition(InputPartition):
    """What one task reads: some parts, and at most one marker row with a watermark."""

    pieces: tuple[Piece, ...]
    marker_ms: int | None = None


class _Columns:
    """The columns that a reader delivers, in Arrow's terms."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        added = {options.epoch_column, options.watermark_column}
        stored = StructType([field for field in schema if field.name not in added])
        log = EpochLog.open(options.log)
        check_selection(stored, log.header.schema, log.shown)
        self.options = options
        self.schema = arrow_schema(schema)

    def deliver(self, batch: pa.RecordBatch, covers: EpochRange) -> pa.RecordBatch:
        """The batch with the columns that were asked for."""
        if batch.schema.equals(self.schema):
            return batch
        columns = [self._column(batch, field, covers) for field in self.schema]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _column(self, batch: pa.RecordBatch, field: pa.Field, covers: EpochRange) -> pa.Array:
        if field.name == self.options.epoch_column:
            return pa.repeat(pa.scalar(covers.last, field.type), batch.num_rows)
        if field.name == self.options.watermark_column:
            return pa.nulls(batch.num_rows, field.type)
        return batch.column(field.name)

    def marker(self, watermark_ms: int) -> pa.RecordBatch:
        """The row that only carries a watermark."""
        columns = [
            pa.array([watermark_ms * 1000], pa.int64()).cast(field.type)
            if field.name == self.options.watermark_column
            else pa.nulls(1, field.type)
            for field in self.schema
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


class LogReading:
    """What the stream and the batch reader share: from manifests to rows."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._columns = _Columns(options, schema)

    def _plan(self, manifests: Sequence[Manifest]) -> list[LogPartition]:
        pieces = [Piece(m.covers, part) for m in manifests for part in m.parts]
        groups = _spread(pieces, self._options.partitions)
        planned = [LogPartition(tuple(group)) for group in groups]
        if self._options.watermark_column and manifests and manifests[-1].watermark:
            marker = LogPartition((), manifests[-1].watermark.after)
            if planned:
                marker.pieces = planned.pop().pieces
            planned.append(marker)
        return planned

    def _rows(self, partition: LogPartition) -> Iterator[pa.RecordBatch]:
        try:
            log = EpochLog.open(self._options.log)
        except LogNotFound as gone:
            raise lost(self._options.log, "everything") from gone
        for piece in partition.pieces:
            for batch in log.read_part(piece.covers, piece.part):
                yield self._columns.deliver(batch, piece.covers)
        if partition.marker_ms is not None:
            yield self._columns.marker(partition.marker_ms)


def log_offset(
    header: Header, lag: int, together: int, *, recalls: int = 0, **position: int | str
) -> dict[str, Any]:
    """A position in a log as Spark keeps it, for a query that reads so many logs together."""
    behind = {"lag": lag} if lag else {}
    known = {"recalls": recalls} if recalls else {}
    return {"tidelock": header.id, "name": header.name, "together": together, **behind, **known, **position}


def _spread(pieces: Sequence[Piece], partitions: int) -> list[list[Piece]]:
    """Neighbouring parts grouped into about ``partitions`` tasks of equal size, none needlessly small."""
    total = sum(piece.part.bytes for piece in pieces)
    size = max(_SMALLEST_PARTITION, total / partitions)
    groups: dict[int, list[Piece]] = {}
    seen = 0
    for piece in pieces:
        groups.setdefault(int((seen + piece.part.bytes / 2) / size), []).append(piece)
        seen += piece.part.bytes
    return list(groups.values())


class LogBatch(LogReading, DataSourceReader):
    """Everything that the log holds at the moment of planning, as a batch."""

    def partitions(self) -> Sequence[InputPartition]:
        """One task for some megabytes of parts."""
        log = EpochLog.open(self._options.log)
        return self._plan([log.manifest(covers) for covers in log.ranges()]) or [LogPartition(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a partition."""
        assert isinstance(partition, LogPartition)
        return self._rows(partition)


class LogPositions(LogReading, ABC):
    """What streams over a log share: positions as Spark keeps them, and whether they are still true."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        # A segment goes back together with the logs that it reads; whoever reads from outside has to look.
        self._looks = options.replay is None

    @property
    @abstractmethod
    def _log(self) -> EpochLog:
        """The log that is read."""

    def _offset(self, *, recalls: int = 0, **position: int | str) -> dict[str, Any]:
        together = len(self._options.together)
        return log_offset(self._log.header, self._options.lag, together, recalls=recalls, **position)

    def _check_same_log(self, offset: dict[str, Any]) -> None:
        if offset["tidelock"] != self._log.header.id:
            raise PipelineError(
                f"{self._log.shown}: this is not the log that the query has read so far (it was made anew): "
                "start the query with a new checkpoint, or its job in a new home"
            )

    def _check_stands(self, offset: dict[str, Any], position: Epoch) -> int:
        """See that what was read up to ``position``, where ``offset`` is, still counts; the number of recalls."""
        if not self._looks:
            return 0
        if "epoch" not in offset:  # nothing was read
            return len(self._log.recalls())
        return self._log.check_stands(position, offset.get("recalls", 0))

    def _keep_cursor(self, epoch: Epoch) -> None:
        if self._options.consumer is not None:
            self._log.move_cursor(self._options.consumer, epoch)


class LogStream(LogPositions, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """An epoch log as a stream."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._opened: tuple[Reading, Rounds] | None = None
        self._first: Epoch | None = None

    def initialOffset(self) -> dict[str, Any]:
        """The position of a query that has read nothing: a word, because the first round resolves it."""
        return self._offset(start=self._options.starting_epoch)

    def getDefaultReadLimit(self) -> ReadLimit:
        """`epochsPerBatch`, in the only words that Spark has for it."""
        return ReadMaxFiles(self._options.epochs_per_batch)

    def prepareForTriggerAvailableNow(self) -> None:
        """Read no further than what is published now."""
        self._rounds.stop_at_present()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Where the next batch ends: on an epoch, and on the same one for all logs of the query."""
        everything = isinstance(limit, ReadAllAvailable) or self._takes_rest(start)
        epochs = ALL_EPOCHS if everything else self._options.epochs_per_batch
        key = start.get("epoch", start.get("start"))
        decision = self._rounds.decide(key, lambda: self._position(start), epochs)
        self._check_reaches(decision.start)
        self._keep_cursor(self._own(decision.start))
        if decision.end == decision.start and "epoch" in start:
            return start
        recalls = self._check_stands(start, self._own(decision.start))
        return self._offset(start=decision.start, epoch=decision.end, recalls=recalls)

    def _takes_rest(self, start: dict[str, Any]) -> bool:
        rest = self._options.take_rest
        if rest is None or not Path(rest).exists():
            return False
        return self._rounds.is_short(self._position(start), self._options.epochs_per_batch)

    def reportLatestOffset(self) -> dict[str, Any]:
        """The newest epoch of the log, so that Spark's progress shows how far behind the query is."""
        return self._offset(epoch=self._rounds.newest())

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The parts of the epochs of a batch."""
        if end["start"] == end["epoch"]:
            return []
        self._check_same_log(end)
        first, last = self._own(end["start"]), self._own(end["epoch"])
        manifests = [self._wanted(manifest) for manifest in self._log.manifests(first, last)]
        self._check_stands(end, last)  # after what it is about: the log may have been put back while it was read
        return self._plan(manifests)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a partition; runs on an executor."""
        assert isinstance(partition, LogPartition)
        return self._rows(partition)

    # -- the driver's side

    def _own(self, epoch: int) -> Epoch:
        """The epoch of this log that belongs to the query's ``epoch``."""
        return Epoch(max(BEFORE_FIRST, epoch - self._options.lag))

    def _wanted(self, manifest: Manifest) -> Manifest:
        """The manifest as this consumer is to see it: without rows if they were set aside for it."""
        consumer = self._options.consumer
        aside = consumer is not None and self._log.is_set_aside(consumer, manifest)
        return replace(manifest, parts=()) if aside else manifest

    @property
    def _log(self) -> EpochLog:
        return self._open()[0].log

    @property
    def _rounds(self) -> Rounds:
        return self._open()[1]

    def _open(self) -> tuple[Reading, Rounds]:
        if self._opened is None:
            readings = {m.log: Reading(EpochLog.open(m.log), m.lag) for m in self._options.together}
            replay = read_replay(self._options.replay)
            rounds = Rounds(list(readings.values()), self._options.consumer, replay.ends if replay else ())
            self._opened = readings[self._options.log], rounds
        return self._opened

    def _position(self, start: dict[str, Any]) -> Epoch:
        if "epoch" in start:
            self._check_same_log(start)
            return Epoch(start["epoch"])
        if self._first is None:  # `latest` means the moment of the first question, not of every one
            self._first = self._rounds.first(start["start"])
        return self._first

    def _check_reaches(self, position: Epoch) -> None:
        """See that the log still has all that was read; a subject, made again, may be behind its followers."""
        tail = self._open()[0].tail
        if self._options.replay is not None and tail is not None and tail < self._own(position):
            raise lost(self._options.log, f"the epochs from {tail + 1} to {self._own(position)}")
