"""A topic of others as a Python data source over Kafka's own client: nothing has to be on the class path of Spark.

A batch is a range of offsets of every partition. Spark keeps it before the batch is computed, so a batch that is
run again has the same records.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
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

from tidelock.errors import LogCorrupt, PipelineError
from tidelock.kafka.brokers import Brokers, MissingTopic, connect
from tidelock.kafka.location import parse_servers
from tidelock.spark.schema import arrow_schema

_RECORD = "key binary, value binary, partition int, offset long, timestamp timestamp"
_AT_ONCE = 10_000


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
class Span(InputPartition):
    """What one task reads: the records of a partition from one offset to another, which is not included."""

    partition: int
    first: int
    end: int


class TopicStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A topic as a stream."""

    def __init__(self, options: dict[str, str], schema: StructType) -> None:
        self._location = parse_servers(options["servers"])
        self._topic = options["topic"]
        self._starting = options.get("starting", "earliest")
        self._limit = int(options.get("maxrecords", "0"))
        self._schema = arrow_schema(schema)
        self._last: list[int] | None = None

    def initialOffset(self) -> dict[str, Any]:
        """The position of a query that has read nothing."""
        return {"topic": self._topic, "offsets": self._at(self._starting)}

    def getDefaultReadLimit(self) -> ReadLimit:
        """`max_records`; without it all that is there."""
        return ReadMaxRows(self._limit) if self._limit else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Read no further than what is there now."""
        self._last = self._at("latest")

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Where the next batch ends: at the end of the topic, or so many records further."""
        ends = self._last or self._at("latest")
        before = _padded(start["offsets"], ends)
        ends = [max(end, first) for end, first in zip(_padded(ends, before), before, strict=True)]
        if self._limit and not isinstance(limit, ReadAllAvailable):
            ends = _limited(before, ends, self._limit)
        return {"topic": self._topic, "offsets": ends}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """One task for every partition that has something new."""
        ends = end["offsets"]
        firsts = _padded(start["offsets"], ends)
        spans = [Span(number, *pair) for number, pair in enumerate(zip(firsts, ends, strict=True))]
        return [span for span in spans if span.end > span.first]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of a span; runs on an executor.

        Raises:
            LogCorrupt: some of them are gone.
        """
        assert isinstance(partition, Span)
        for first in range(partition.first, partition.end, _AT_ONCE):
            last = min(first + _AT_ONCE, partition.end) - 1
            self._check_there(partition.partition, first)
            found = self._brokers.read(self._topic, partition.partition, first, last)
            if found:
                yield self._batch(found)

    def _check_there(self, partition: int, first: int) -> None:
        low, _ = self._brokers.bounds(self._topic, partition)
        if low > first:
            raise LogCorrupt(
                f"{self._location.shown}: the records from {first} to {low - 1} of partition {partition} of the "
                f"topic {self._topic} are gone before they were read: its retention is too short for how far this "
                "reader is behind"
            )

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

    def _at(self, word: str) -> list[int]:
        brokers = self._brokers
        try:
            return brokers.beginnings(self._topic) if word == "earliest" else brokers.ends(self._topic)
        except MissingTopic as missing:
            raise PipelineError(
                f"{self._location.shown}: there is no topic {self._topic}: make it first, or start what writes "
                "to it"
            ) from missing

    @property
    def _brokers(self) -> Brokers:
        return connect(self._location)


def _padded(offsets: list[int], longer: list[int]) -> list[int]:
    """The offsets with those of partitions that were added meanwhile, which are read from their beginning."""
    return offsets + [0] * (len(longer) - len(offsets))


def _limited(before: list[int], ends: list[int], limit: int) -> list[int]:
    """As many records as ``limit`` says, about the same share of what waits in every partition.

    >>> _limited([0, 0, 5], [100, 50, 5], 30), _limited([0], [10], 30)
    ([20, 10, 5], [10])
    """
    waiting = sum(ends) - sum(before)
    if waiting <= limit:
        return ends
    shares = [first + max(1, (end - first) * limit // waiting) for first, end in zip(before, ends, strict=True)]
    return [min(share, end) for share, end in zip(shares, ends, strict=True)]
