"""Plain topics of others at both ends of a pipeline: exactly once, also if it is killed in the middle."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import uuid
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from fastavro import parse_schema, schemaless_reader, schemaless_writer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.integration.streams import Place
from tests.kafka_servers import KafkaServer
from tests.waiting import eventually

import tidelock
from tidelock.cli.demo.leash import kill_session
from tidelock.errors import PipelineError
from tidelock.kafka.brokers import MissingTopic, connect
from tidelock.kafka.location import parse_servers
from tidelock.running.run import Run
from tidelock.spark.sinks.topic import TopicSink

ROOT = Path(__file__).parents[2]
RECORDS, EPOCHS = 1000, 20


def new_topic(server: KafkaServer, partitions: int = 1) -> str:
    topic = uuid.uuid4().hex
    admin = AdminClient({"bootstrap.servers": server.address})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result()
    return topic


def feed(server: KafkaServer, topic: str, values: list[bytes], partition: int = -1) -> None:
    """Write records as somebody who knows nothing of Tidelock."""
    producer = Producer({"bootstrap.servers": server.address})
    for value in values:
        producer.produce(topic, value, partition=partition)
    assert producer.flush(30) == 0


def committed(server: KafkaServer, topic: str) -> list[tuple[bytes, dict[str, Any]]]:
    """All that a reader of committed records finds."""
    brokers = connect(parse_servers(server.address))
    try:
        ends = brokers.ends(topic)
    except MissingTopic:
        return []
    found = [m for p, end in enumerate(ends) if end for m in brokers.read(topic, p, 0, end - 1)]
    return [(m.key(), json.loads(m.value())) for m in found]


def read_all(place: Place, stream: Any) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = []
    query = (
        stream.writeStream.foreachBatch(lambda some, _: rows.extend(tuple(row) for row in some.collect()))
        .option("checkpointLocation", str(place.home / uuid.uuid4().hex))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(90)
    return rows


def test_records_are_decoded_and_what_does_not_fit_is_null(
    spark: SparkSession, place: Place, kafka_server: KafkaServer
) -> None:
    topic = new_topic(kafka_server, partitions=2)
    fitting, others = (
        [b'{"id": 1, "text": "a"}', b'{"id": 2, "more": 7}'],
        [b"no json", b'{"id": 1.5, "text": "b"}'],
    )
    feed(kafka_server, topic, fitting + others, partition=0)
    feed(kafka_server, topic, [b'{"id": 3, "text": "c"}'], partition=1)
    stream = tidelock.read_topic(
        spark,
        topic,
        servers=kafka_server.address,
        schema="id long, text string",
        record_columns=True,
        max_records=3,
    )
    assert stream.columns == ["id", "text", "partition", "offset", "timestamp"]
    rows = [row[:4] for row in read_all(place, stream)]
    assert sorted(rows, key=lambda row: row[2:]) == [
        (1, "a", 0, 0),
        (2, None, 0, 1),
        (None, None, 0, 2),
        (None, "b", 0, 3),
        (3, "c", 1, 0),
    ]
    raw = tidelock.kafka_records(spark, kafka_server.url, topic).where("partition = 1")
    assert [bytes(row[1]) for row in read_all(place, raw)] == [b'{"id": 3, "text": "c"}']


def test_avro_records_at_both_ends(
    spark: SparkSession, place: Place, kafka_server: KafkaServer, started: list[Run]
) -> None:
    def made(name: str, fields: dict[str, Any]) -> dict[str, Any]:
        listed = [{"name": n, "type": t} for n, t in fields.items()]
        return dict(parse_schema({"type": "record", "name": name, "fields": listed}))

    def written(schema: dict[str, Any], value: dict[str, Any]) -> bytes:
        data = io.BytesIO()
        schemaless_writer(data, schema, value)
        return data.getvalue()

    moment = {"type": "long", "logicalType": "timestamp-millis"}
    prices = {"type": "map", "values": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}}
    order = made("order", {"id": "long", "at": moment, "tags": {"type": "array", "items": "string"}})
    paid = made("paid", {"id": "long", "at": moment, "first": ["null", "string"], "prices": prices})
    topic = new_topic(kafka_server)
    at = datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)
    values = [{"id": n, "at": at, "tags": ["a", "b"][: n % 3]} for n in range(5)]
    feed(kafka_server, topic, [*(written(order, value) for value in values), b"no Avro"])

    job = tidelock.Pipeline("pay", epoch="100 milliseconds")

    @job.source
    def orders(spark: SparkSession) -> DataFrame:
        return tidelock.read_topic(spark, topic, servers=kafka_server.address, avro=order)

    @job.operator
    def payments(orders: DataFrame) -> DataFrame:
        price = F.create_map(F.lit("net"), (F.col("id") + 0.25).cast("decimal(6,2)"))
        return orders.where("id is not null").select(
            "id", "at", F.try_element_at("tags", F.lit(1)).alias("first"), price.alias("prices")
        )

    job.write_topic("payments", f"{topic}.out", servers=kafka_server.address, key="id", avro=json.dumps(paid))
    started.append(job.start(spark, place.home / "home"))
    brokers = connect(parse_servers(kafka_server.address))

    def found() -> list[Any]:
        with suppress(MissingTopic):
            if end := brokers.ends(f"{topic}.out")[0]:
                return list(brokers.read(f"{topic}.out", 0, 0, end - 1))
        return []

    eventually(lambda: len(found()) >= 5, "all payments are there")
    values = [schemaless_reader(io.BytesIO(message.value()), paid, None) for message in found()]
    assert sorted(values, key=lambda value: value["id"]) == [
        {"id": n, "at": at, "first": "a" if n % 3 else None, "prices": {"net": Decimal(n) + Decimal("0.25")}}
        for n in range(5)
    ]
    assert sorted(message.key() for message in found()) == [b"0", b"1", b"2", b"3", b"4"]


def test_a_moment_is_written_with_its_microseconds(spark: SparkSession) -> None:
    sink = TopicSink("out", parse_servers("nowhere:9092"), "out", "job.out", key=None, avro=None)
    moment = "'2026-01-02 03:04:05.123456'"
    rows = spark.sql(f"select timestamp{moment} as at, timestamp_ntz{moment} as here, 12.50BD as price, 7 as n")
    (record,) = sink._encoded(rows).collect()
    assert bytes(record["value"]) == (
        b'{"at":"2026-01-02T03:04:05.123456Z","here":"2026-01-02T03:04:05.123456","price":12.50,"n":7}'
    )


def test_a_query_that_comes_too_late_is_told(spark: SparkSession, place: Place, kafka_server: KafkaServer) -> None:
    topic = new_topic(kafka_server)
    feed(kafka_server, topic, [b"{}"] * 4)
    stream = tidelock.read_topic(spark, topic, servers=kafka_server.address, schema="id long", max_records=2)
    checkpoint = str(place.home / "checkpoint")
    seen: list[int] = []

    def start() -> Any:
        counting = stream.writeStream.foreachBatch(lambda rows, _: seen.append(rows.count()))
        return counting.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()

    assert start().awaitTermination(90)
    assert [count for count in seen if count] == [2, 2]
    feed(kafka_server, topic, [b"{}"] * 4)
    gone = TopicPartition(topic, 0, 7)
    admin = AdminClient({"bootstrap.servers": kafka_server.address})
    admin.delete_records([gone])[gone].result()
    with pytest.raises(Exception, match=r"the records from 4 to 6 of partition 0 of the topic .* are gone"):
        start().awaitTermination(90)


def test_what_is_wrong_is_told(spark: SparkSession, kafka_server: KafkaServer) -> None:
    topic = new_topic(kafka_server)
    with pytest.raises(PipelineError, match="'id what is this' is no schema: write it as in"):
        tidelock.read_topic(spark, topic, servers=kafka_server.address, schema="id what is this")
    with pytest.raises(PipelineError, match="starting is 'middle': it must be 'earliest' or 'latest'"):
        tidelock.read_topic(spark, topic, servers=kafka_server.address, starting="middle")
    with pytest.raises(PipelineError, match="the records are JSON or Avro: give either schema or avro"):
        tidelock.read_topic(spark, topic, servers=kafka_server.address, schema="id long", avro="{}")
    with pytest.raises(PipelineError, match="max_records is 0: it must be at least 1"):
        tidelock.read_topic(spark, topic, servers=kafka_server.address, max_records=0)
    with pytest.raises(PipelineError, match="the brokers alone are wanted here, without a path"):
        tidelock.read_topic(spark, topic, servers=f"{kafka_server.url}/{topic}")
    with pytest.raises(PipelineError, match="the records have columns called offset: leave record_columns out"):
        tidelock.read_topic(spark, topic, servers=kafka_server.address, schema="offset long", record_columns=True)


def start(place: Path, server: KafkaServer, topic: str, *options: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tidelock", "run", str(Path(__file__).with_name("topic_job.py"))]
    command += ["--home", str(place / "home"), "--conf", "spark.sql.shuffle.partitions=2", *options]
    paths = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    given = {"PYTHONPATH": paths, "TIDELOCK_TEST_SERVERS": server.address, "TIDELOCK_TEST_TOPIC": topic}
    with (place / "job.log").open("ab") as told:
        environment = {**os.environ, **given}
        return subprocess.Popen(command, env=environment, stdout=told, stderr=told, start_new_session=True)


@pytest.mark.chaos
def test_a_job_between_topics_that_is_killed_writes_every_row_once(
    tmp_path: Path, kafka_server: KafkaServer
) -> None:
    topic = new_topic(kafka_server)
    feed(kafka_server, topic, [json.dumps({"id": n, "text": "x" * (n % 9)}).encode() for n in range(RECORDS)])
    expected = Counter((str(n).encode(), n, n % 9) for n in range(RECORDS) if n % 3)
    process = start(tmp_path, kafka_server, topic)
    try:
        eventually(
            lambda: len(committed(kafka_server, f"{topic}.out")) > 60 or process.poll() is not None,
            "some epochs have arrived",
            150,
        )
        assert process.poll() is None, (tmp_path / "job.log").read_text(errors="replace")[-3000:]
    finally:
        kill_session(process.pid)
        process.wait()
    assert len(committed(kafka_server, f"{topic}.out")) < expected.total()
    again = start(tmp_path, kafka_server, topic, "--epochs", str(EPOCHS))
    try:
        assert again.wait(150) == 0, (tmp_path / "job.log").read_text(errors="replace")[-3000:]
    finally:
        if again.poll() is None:
            kill_session(again.pid)
            again.wait()
    rows = committed(kafka_server, f"{topic}.out")
    assert Counter((key, row["id"], row["length"]) for key, row in rows) == expected
