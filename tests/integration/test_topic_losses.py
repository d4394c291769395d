"""Records of a topic that are gone before they were read end the query with a story: real Spark, real broker."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from tests.integration.streams import Place
from tests.kafka_servers import KafkaServer
from tests.kafka_topics import Topic

import tidelock
from tidelock.errors import BatchFailed
from tidelock.home.home import Home


class Reader:
    """A query over a topic, started again and again on one checkpoint."""

    def __init__(self, spark: SparkSession, place: Place, topic: Topic) -> None:
        self._stream = tidelock.read_topic(
            spark, topic.name, servers=topic.servers, schema="n long", max_records=6
        )
        self.checkpoint = place.home / "checkpoint"
        self.seen: list[int] = []

    def run(self, before: Callable[[], Any] = lambda: None) -> None:
        """Read what is there; ``before`` runs when a batch is planned and not yet read."""

        def take(rows: DataFrame, _: int) -> None:
            before()
            self.seen.extend(row["n"] for row in rows.collect())

        query: StreamingQuery = (
            self._stream.writeStream.foreachBatch(take)
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(90)


@pytest.fixture
def topic(kafka_server: KafkaServer) -> Topic:
    return Topic(kafka_server)


def test_records_that_go_between_planning_and_reading(
    spark: SparkSession, place: Place, kafka_server: KafkaServer, topic: Topic
) -> None:
    reader = Reader(spark, place, topic)
    topic.write(range(4))
    with pytest.raises(StreamingQueryException, match=r"LogCorrupt: .* the records from 0 to 2 of partition 0"):
        reader.run(lambda: topic.drop_before(3))
    assert reader.seen == [], "the record that is left does not stand for all of them"
    for dropped in (3, 4):
        topic.drop_before(dropped)
        gone = r"LogCorrupt: .* the records from 0 to . of partition 0"
        with pytest.raises(StreamingQueryException, match=gone):
            reader.run()
        assert reader.seen == [], "nor when it is started again, although its first batch was never finished"

    another = Topic(kafka_server)
    reader = Reader(spark, Place(spark, place.home / "another"), another)
    another.write(range(4))

    def replace() -> None:
        another.make_again()
        another.write(range(100, 110))

    with pytest.raises(StreamingQueryException, match=r"LogCorrupt: .* was deleted and made again"):
        reader.run(replace)
    assert reader.seen == []


def test_a_topic_that_is_shorter_than_it_was(spark: SparkSession, place: Place, topic: Topic) -> None:
    """As after a loss at the brokers; the offsets are those of 0.1.0, which know no identity."""
    topic.write(range(6))
    reader = Reader(spark, place, topic)
    reader.run()
    assert reader.seen == list(range(6))
    forget_identities(reader.checkpoint)
    reader.run()
    topic.write([6])
    reader.run()
    assert reader.seen == list(range(7)), "it goes on"
    forget_identities(reader.checkpoint)
    topic.make_again()
    topic.write(range(4))
    with pytest.raises(StreamingQueryException, match="ends at offset 4, and the records from 4 to 6 were there"):
        reader.run()
    assert reader.seen == list(range(7))


def forget_identities(checkpoint: Path) -> None:
    for file in (checkpoint / "offsets").glob("[0-9]*"):
        head, about, offsets = file.read_text().splitlines()
        known = {name: value for name, value in json.loads(offsets).items() if name != "id"}
        file.write_text("\n".join([head, about, json.dumps(known)]))
        (file.parent / f".{file.name}.crc").unlink(missing_ok=True)


def test_a_pipeline_stops_and_sets_nothing_aside(
    spark: SparkSession, place: Place, topic: Topic, tmp_path: Path
) -> None:
    pipeline = tidelock.Pipeline("orders", epoch="100 milliseconds", attempts=1, on_poison="dead-letter")
    seen: list[int] = []

    @pipeline.source
    def orders(spark: SparkSession) -> DataFrame:
        return tidelock.read_topic(spark, topic.name, servers=topic.servers, schema="n long", max_records=4)

    @pipeline.sink
    def keep(orders: DataFrame) -> None:
        seen.extend(row["n"] for row in orders.collect())

    topic.write(range(8))
    pipeline.run(spark, tmp_path / "home", last_epoch=1)
    topic.write(range(8, 12))
    topic.drop_before(10)
    with pytest.raises(BatchFailed, match=r"the records from 8 to 9 of partition 0 of the topic .* begin anew"):
        pipeline.run(spark, tmp_path / "home", last_epoch=2)
    assert seen == list(range(8))
    told = [event["kind"] for event in Home(tmp_path / "home").events()]
    assert not {"set aside", "segment restart"} & set(told), told
