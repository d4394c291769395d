"""A topic of others as a Python data source over Kafka's own client: nothing has to be on the class path of Spark.

A batch is a range of offsets of every partition. Spark keeps its end before the batch is computed, and asks anew
where a query begins for as long as its first batch is not finished: by then the topic may begin elsewhere. So the
end of a batch says where the batch begins, too (`from`), and one that is run again has the same records or fails.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from tidelock.errors import PipelineError
from tidelock.kafka.brokers import Brokers, MissingTopic, connect
from tidelock.kafka.continuity import Position, Span, check_goes_on, deleted, missing
from tidelock.kafka.location import parse_servers
from tidelock.kafka.ranges import position, read_range
from tidelock.spark.schema import arrow_schema

_FROM = "from"
_RECORD = "key binary, value binary, partition int, offset long, timestamp timestamp"


class TopicSource(DataSource):
    """The data source behind `kafka_records`."""

    @classmethod
    def name(cls) -> str:
        """The name for `format(...)`."""
        return "tidelock_topic"

    def schema(self) -> str:
        """The records as they are."""
        return _RECORD

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A stream over the topic."""
        # Spark hands options on without regard to case; a plain dict of them has them in lower case.
        return TopicStream({name.lower(): value for name, value in self.options.items()}, schema)


@dataclass
class Share(InputPartition):
    """What one task reads: the records of a partition from one offset to another, which is not included."""

    partition: int
    first: int
    end: int
    identity: str | None = None


class TopicStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A topic as a stream."""

    def __init__(self, options: dict[str, str], schema: StructType) -> None:
        self._location = parse_servers(options["servers"])
        self._topic = options["topic"]
        self._starting = options.get("starting", "earliest")
        self._limit = int(options.get("maxrecords", "0"))
        self._schema = arrow_schema(schema)
        self._last: Position | None = None

    def initialOffset(self) -> dict[str, Any]:
        """The position of a query that has read nothing."""
        at = self._at(self._starting)
        if self._last is not None:  # a new query may begin behind what was the end when it was asked for
            self._last = self._last.or_further(at)
        return self._offset(at)

    def getDefaultReadLimit(self) -> ReadLimit:
        """`max_records`; without it all that is there."""
        return ReadMaxRows(self._limit) if self._limit else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Read no further than what is there now."""
        self._last = self._at("latest", known=True)  # which it is, unless the query is new

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Where the next batch ends: at the end of the topic, or so many records further.

        Raises:
            LogCorrupt: the topic does not go on from ``start``: it was made again, or has lost records.
        """
        now = self._last or self._now()
        before = check_goes_on(self._location.shown, self._topic, Position.from_fields(start), now)
        if before.offsets == now.offsets:
            return start
        if self._limit and not isinstance(limit, ReadAllAvailable):
            now = replace(now, offsets=tuple(_limited(before.offsets, now.offsets, self._limit)))
        return {**self._offset(now), _FROM: before.to_fields()}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """One task for every partition that has something new.

        Raises:
            LogCorrupt: the end, which 0.1.0 has written, lies before the records that are left.
        """
        ends = Position.from_fields(end)
        begins = Position.from_fields(end.get(_FROM, start) if end != start else start).padded(len(ends.offsets))
        pairs = zip(begins.offsets, ends.offsets, strict=True)
        shares = [Share(number, *pair, ends.identity) for number, pair in enumerate(pairs)]
        for share in shares:
            if share.end < share.first:
                gone = Span(self._topic, share.partition, share.end, share.first - 1)
                raise missing(self._location.shown, gone, share.first, share.first)
        return [share for share in shares if share.end > share.first]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of a share; runs on an executor.

        Raises:
            LogCorrupt: some of them are gone, or the topic was made again.
        """
        assert isinstance(partition, Share)
        wanted = Span(self._topic, partition.partition, partition.first, partition.end - 1)
        for found in read_range(self._brokers, self._location.shown, wanted, partition.identity):
            if found:
                yield self._batch(found)

    def _batch(self, found: list[Any]) -> pa.RecordBatch:
        stamps = [message.timestamp()[1] * 1000 for message in found]
        columns = {
            "key": [message.key() for message in found],
            "value": [message.value() for message in found],
            "partition": [message.partition() for message in found],
            "offset": [message.offset() for message in found],
            "timestamp": pa.array(stamps, pa.int64()).cast(self._schema.field("timestamp").type),
        }
        arrays = [pa.array(columns[field.name], field.type) for field in self._schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _now(self) -> Position:
        """Where a topic ends that was read before."""
        try:
            return self._brokers.insist(partial(position, self._brokers, self._topic, "latest"))
        except MissingTopic as gone:
            raise deleted(self._location.shown, self._topic) from gone

    def _offset(self, at: Position) -> dict[str, Any]:
        return {"topic": self._topic, **at.to_fields()}

    def _at(self, word: str, *, known: bool = False) -> Position:
        ask = partial(position, self._brokers, self._topic, word)
        try:
            return self._brokers.insist(ask) if known else ask()
        except MissingTopic as missing:
            raise PipelineError(
                f"{self._location.shown}: there is no topic {self._topic}: make it first, or start what writes "
                "to it"
            ) from missing

    @property
    def _brokers(self) -> Brokers:
        return connect(self._location)


def _limited(before: Sequence[int], ends: Sequence[int], limit: int) -> Sequence[int]:
    """As many records as ``limit`` says, about the same share of what waits in every partition.

    >>> _limited([0, 0, 5], [100, 50, 5], 30), _limited([0], [10], 30)
    ([20, 10, 5], [10])
    """
    waiting = sum(ends) - sum(before)
    if waiting <= limit:
        return ends
    shares = [first + max(1, (end - first) * limit // waiting) for first, end in zip(before, ends, strict=True)]
    return [min(share, end) for share, end in zip(shares, ends, strict=True)]
