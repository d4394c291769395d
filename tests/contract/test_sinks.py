"""Sinks keep the contract: files, a topic, and a table as an author of a sink would write it. Real Spark."""

from __future__ import annotations

import json
import sqlite3
import uuid
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from pathlib import Path

import pytest
from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from pyspark.sql import DataFrame, SparkSession
from tests.kafka_servers import KafkaServer
from tests.waiting import eventually

from tidelock import Sink, Work
from tidelock.epochs import Epoch
from tidelock.kafka.brokers import Brokers, MissingTopic, connect
from tidelock.kafka.location import parse_servers
from tidelock.spark.sinks.files import FileSink
from tidelock.spark.sinks.topic import TopicSink
from tidelock.testing.contracts.sinks import SinkContract, TakingBackContract

Opened = Callable[[], Sink]
Found = Callable[[], Iterable[int]]


class TestFiles(TakingBackContract):
    @pytest.fixture
    def opened(self, spark: SparkSession, tmp_path: Path) -> Opened:
        return lambda: FileSink(spark, f"file:{tmp_path}/out")

    @pytest.fixture
    def found(self, spark: SparkSession, tmp_path: Path) -> Found:
        return lambda: [row["n"] for row in spark.read.schema("n long").parquet(f"{tmp_path}/out").collect()]


def settled_ends(brokers: Brokers, topic: str) -> list[int]:
    """The ends of a topic when all that was committed can be read, which is a little after its writer is told."""
    admin = AdminClient({"bootstrap.servers": brokers.location.servers})

    def settled() -> bool:
        places = {TopicPartition(topic, n): OffsetSpec.latest() for n in range(brokers.partitions(topic))}
        newest = admin.list_offsets(places, isolation_level=IsolationLevel.READ_UNCOMMITTED)
        return brokers.ends(topic) == [newest[place].result().offset for place in places]

    brokers.ends(topic)  # which says so if there is no such topic
    eventually(settled, "no transaction is under way")
    return brokers.ends(topic)


class TestTopic(SinkContract):
    @pytest.fixture
    def topic(self) -> str:
        return uuid.uuid4().hex

    @pytest.fixture
    def opened(self, kafka_server: KafkaServer, topic: str) -> Opened:
        servers = parse_servers(kafka_server.address)
        return lambda: TopicSink("out", servers, topic, "job.out", key=None, avro=None)

    @pytest.fixture
    def found(self, kafka_server: KafkaServer, topic: str) -> Found:
        brokers = connect(parse_servers(kafka_server.address))

        def read() -> Iterable[int]:
            with suppress(MissingTopic):
                for partition, end in enumerate(settled_ends(brokers, topic)):
                    for message in brokers.read(topic, partition, 0, end - 1) if end else ():
                        yield json.loads(message.value() or b"{}")["n"]

        return read


class Table(Sink):
    """Rows in a table of SQLite, and in the same transaction the work that they belong to."""

    def __init__(self, file: Path) -> None:
        self._file = file
        with closing(self._database()) as database, database:
            database.execute("CREATE TABLE IF NOT EXISTS rows (epoch, n)")
            database.execute("CREATE TABLE IF NOT EXISTS done (epoch PRIMARY KEY, work)")

    def _database(self) -> sqlite3.Connection:
        return sqlite3.connect(self._file)

    def deliver(self, rows: DataFrame, work: Work) -> None:
        epoch, what = work.covers.last, json.dumps(work.identity())
        found = [(epoch, row["n"]) for row in rows.collect()]
        with closing(self._database()) as database, database:
            if (what,) in database.execute("SELECT work FROM done WHERE epoch = ?", [epoch]).fetchall():
                return
            database.executemany("INSERT INTO rows VALUES (?, ?)", found)
            database.execute("INSERT OR REPLACE INTO done VALUES (?, ?)", [epoch, what])

    def take_back(self, after: Epoch) -> None:
        with closing(self._database()) as database, database:
            for table in ("rows", "done"):
                database.execute(f"DELETE FROM {table} WHERE epoch > ?", [after])


class TestTable(TakingBackContract):
    @pytest.fixture
    def opened(self, tmp_path: Path) -> Opened:
        return lambda: Table(tmp_path / "table")

    @pytest.fixture
    def found(self, tmp_path: Path) -> Found:
        def read() -> Iterable[int]:
            with closing(sqlite3.connect(tmp_path / "table")) as database:
                return [n for (n,) in database.execute("SELECT n FROM rows")]

        return read
