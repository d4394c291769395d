"""Sinks keep the contract: files, a topic, and a table as an author of a sink would write it. Real Spark."""

from __future__ import annotations

import json
import sqlite3
import uuid
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.kafka_servers import KafkaServer

from tidelock import Sink, Work
from tidelock.epochs import Epoch
from tidelock.kafka.brokers import MissingTopic, connect
from tidelock.kafka.location import parse_servers
from tidelock.spark.sinks.files import FileSink
from tidelock.spark.sinks.topic import TopicSink
from tidelock.testing.contracts.sinks import SinkContract

Opened = Callable[[], Sink]
Found = Callable[[], Iterable[int]]


class TestFiles(SinkContract):
    @pytest.fixture
    def opened(self, spark: SparkSession, tmp_path: Path) -> Opened:
        return lambda: FileSink(spark, f"file:{tmp_path}/out")

    @pytest.fixture
    def found(self, spark: SparkSession, tmp_path: Path) -> Found:
        return lambda: [row["n"] for row in spark.read.schema("n long").parquet(f"{tmp_path}/out").collect()]


class TestTopic(SinkContract):
    takes_back = False

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
                for partition, end in enumerate(brokers.ends(topic)):
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


class TestTable(SinkContract):
    @pytest.fixture
    def opened(self, tmp_path: Path) -> Opened:
        return lambda: Table(tmp_path / "table")

    @pytest.fixture
    def found(self, tmp_path: Path) -> Found:
        def read() -> Iterable[int]:
            with closing(sqlite3.connect(tmp_path / "table")) as database:
                return [n for (n,) in database.execute("SELECT n FROM rows")]

        return read
