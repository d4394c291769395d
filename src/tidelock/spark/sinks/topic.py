"""A topic of others as the end of a pipeline: every epoch in one transaction, with a note that it was written."""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidelock.errors import SchemaMismatch
from tidelock.kafka.delivery import TopicWriter
from tidelock.kafka.location import KafkaLocation
from tidelock.spark.query.batches import Work
from tidelock.spark.query.queries import compute
from tidelock.spark.schema import quoted
from tidelock.spark.sinks.sink import Sink, kept
from tidelock.spark.topics.avro import AvroRecords

_JSON = {
    "ignoreNullFields": "false",
    # Spark's own forms of a moment end with milliseconds; its columns have microseconds.
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS[XXX]",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


class TopicSink(Sink):
    """Writes the rows of every epoch as JSON or Avro records to a topic.

    The driver writes them: a transaction belongs to one client. A batch that is run again and was written is only
    computed.
    """

    keeps_rows = False

    def __init__(
        self,
        name: str,
        location: KafkaLocation,
        topic: str,
        writer: str,
        *,
        key: str | None,
        avro: AvroRecords | None,
    ) -> None:
        self._name = name
        self._key = key
        self._avro = avro
        self._writer = TopicWriter(location, topic, writer)

    def deliver(self, rows: DataFrame, work: Work) -> None:
        """Write the rows, unless that has been done."""
        done = work.identity()
        if self._writer.is_done(done):
            compute(rows)
            return
        held = kept(self._encoded(rows))
        try:
            self._writer.write(done, _records(held))
        finally:
            held.unpersist()

    def _encoded(self, rows: DataFrame) -> DataFrame:
        if self._key is not None and self._key not in rows.columns:
            raise SchemaMismatch(
                f"sink {self._name}: there is no column {self._key} for the key; the columns are "
                f"{', '.join(rows.columns)}"
            )
        whole = F.struct(*[F.col(quoted(name)) for name in rows.columns])
        if self._avro is None:
            value = F.to_json(whole, _JSON).cast("binary")
        else:
            self._avro.check_columns(rows.columns, f"sink {self._name}")
            value = self._avro.encoded(whole)
        key = F.lit(None) if self._key is None else F.col(quoted(self._key))
        return rows.select(key.cast("string").alias("key"), value.alias("value"))


def _records(rows: DataFrame) -> Iterator[tuple[bytes | None, bytes]]:
    for row in rows.toLocalIterator():
        yield None if row["key"] is None else row["key"].encode(), bytes(row["value"])
