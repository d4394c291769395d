"""Epochs on a topic of a producer that knows nothing of them: real broker, real processes, real kills."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession
from tests import kafka_topics
from tests.integration.subjects import Deliveries
from tests.kafka_servers import KafkaServer
from tests.waiting import eventually

import tidelock
from tidelock.alignment.cutting import Cutter
from tidelock.cli import main
from tidelock.epochs import Epoch, EpochRange
from tidelock.errors import Fenced, LogCorrupt, PipelineError
from tidelock.kafka.location import parse_servers
from tidelock.log import EpochLog
from tidelock.log.entry import Manifest, Part
from tidelock.log.json_records import describe_columns
from tidelock.running.run import Run


class Topic:
    """A topic with two partitions, and somebody who writes to it."""

    def __init__(self, server: KafkaServer) -> None:
        self.servers = server.url.removeprefix("kafka://")
        self.name = f"orders-{uuid.uuid4().hex[:8]}"
        self.url = f"{server.url}/{self.name}"
        admin = AdminClient({"bootstrap.servers": self.servers})
        admin.create_topics([NewTopic(self.name, 2, 1)])[self.name].result(30)
        self._producer = Producer({"bootstrap.servers": self.servers})

    def write(self, *values: Any) -> None:
        for place, value in enumerate(values):
            data = value if isinstance(value, bytes) else json.dumps({"n": value})
            self._producer.produce(self.name, data, partition=place % 2)
        assert self._producer.flush(30) == 0


@pytest.fixture
def topic(kafka_server: KafkaServer) -> Topic:
    return Topic(kafka_server)


@pytest.fixture
def log(tmp_path: Path) -> EpochLog:
    return EpochLog.create(f"file:{tmp_path}/cut", describe_columns("n long"), name="orders")


def cutter(topic: Topic, log: EpochLog, **more: str) -> Cutter:
    return Cutter(log, parse_servers(topic.servers), topic.name, **more)


def rows(log: EpochLog) -> list[list[int]]:
    """The numbers of every epoch."""
    found = []
    for covers in log.ranges():
        batches = [batch for part in log.manifest(covers).parts for batch in log.read_part(covers, part)]
        found.append(sorted(n for batch in batches for n in batch.column("n").to_pylist()))
    return found


def test_an_epoch_has_what_came_since_the_last_one(topic: Topic, log: EpochLog) -> None:
    first = cutter(topic, log)
    assert first.cut() is None
    topic.write(1, 2, 3)
    assert first.cut() == 3
    assert first.cut() is None
    topic.write(4)
    second = cutter(topic, log)
    assert second.cut() == 1, "another one goes on where the first was"
    topic.write(5)
    with pytest.raises(Fenced):
        first.cut()
    assert rows(log) == [[1, 2, 3], [4]]
    assert second.cut() == 1
    assert rows(log) == [[1, 2, 3], [4], [5]]


def test_a_log_that_begins_at_the_end_of_the_topic(topic: Topic, log: EpochLog) -> None:
    topic.write(1, 2)
    cutter(topic, log, starting="latest")
    topic.write(3)  # and the cutter is killed before its first epoch
    late = cutter(topic, log, starting="latest")
    assert late.cut() == 1
    assert rows(log) == [[3]]
    with pytest.raises(PipelineError, match="holds epochs of something else"):
        Cutter(log, parse_servers(topic.servers), "another")


def test_what_is_wrong_with_a_topic_is_told(
    topic: Topic, log: EpochLog, kafka_server: KafkaServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topic.write(1, b"no json")
    assert cutter(topic, log).cut() == 2
    with pytest.raises(
        PipelineError, match=f"offset 0 of partition 1 of topic {topic.name} does not fit: it is no"
    ):
        rows(log)
    deep = b'{"n": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    for offset, (bad, why) in enumerate([(b'{"n": 1.5}', "n is no int64: 1.5"), (deep, "nested too deeply")], 1):
        topic.write(2, bad)
        assert cutter(topic, log).cut() == 2
        covers = log.ranges()[-1]
        (part,) = [one for one in log.manifest(covers).parts if one.file.startswith(f"{topic.name}/1/")]
        told = f"offset {offset} of partition 1 of topic {topic.name} does not fit: .*{why}"
        with pytest.raises(PipelineError, match=told):
            list(log.read_part(covers, part))
    other = Topic(kafka_server)
    with pytest.raises(PipelineError, match="epochs of something else"):
        cutter(other, log)
    options = ["--schema", "n long", "--subject", "orders", "--log", f"file:{tmp_path}/other"]
    assert main(["cut", f"kafka://{topic.servers}/nothing", *options]) == 2
    assert "there is no topic nothing" in capsys.readouterr().err
    assert main(["cut", f"kafka://{topic.servers}", *options]) == 2
    assert "names no topic" in capsys.readouterr().err


def test_records_that_the_topic_has_dropped_are_missed(topic: Topic, log: EpochLog) -> None:
    from tidelock.kafka.brokers import connect
    from tidelock.kafka.topics import delete_before

    topic.write(1, 2, 3)
    assert cutter(topic, log).cut() == 3
    brokers = connect(parse_servers(topic.servers))
    delete_before(brokers, topic.name, {0: 2})
    eventually(lambda: brokers.bounds(topic.name, 0)[0] == 2, "the records are gone")
    with pytest.raises(LogCorrupt, match=r"the records from 0 to 1 of partition 0 of the topic .* are gone"):
        rows(log)


def test_a_cutter_skips_nothing(kafka_server: KafkaServer, log: EpochLog) -> None:
    topic = kafka_topics.Topic(kafka_server)
    servers = parse_servers(topic.servers)
    topic.write(range(4))
    first = Cutter(log, servers, topic.name)
    assert first.cut() == 4
    topic.write(range(4, 8))
    topic.drop_before(6)
    for one in (first, Cutter(log, servers, topic.name)):
        with pytest.raises(LogCorrupt, match=r"the records from 4 to 5 of partition 0 of the topic .* are gone"):
            one.cut()
    topic.make_again()
    topic.write(range(100, 120))  # longer than the old one, so nothing but its id tells
    late = Cutter(log, servers, topic.name)
    with pytest.raises(LogCorrupt, match="was deleted and made again"):
        late.cut()
    with pytest.raises(LogCorrupt, match="was deleted and made again"):
        rows(log)
    assert len(log.ranges()) == 1, "nothing was published"
    topic.delete()
    with pytest.raises(LogCorrupt, match="was read before and is gone"):
        Cutter(log, parse_servers(f"kafka://{topic.servers}?timeout=1"), topic.name).cut()


def test_a_log_that_was_cut_without_identities_goes_on(kafka_server: KafkaServer, log: EpochLog) -> None:
    """As release 0.1.0 has left it."""
    topic = kafka_topics.Topic(kafka_server)
    servers = parse_servers(topic.servers)
    topic.write(range(4))
    whole = Part(f"{topic.name}/0/0-3", 4, 0, 0, f"topic+kafka://{topic.servers}")
    log.take_over("test").publish(
        Manifest(
            log=log.header.id,
            covers=EpochRange.single(Epoch(0)),
            schema=log.header.schema,
            parts=(whole,),
            offsets=({"topic": topic.name, "offsets": [4]},),
            query=f"cut {topic.name}",
        )
    )
    assert Cutter(log, servers, topic.name).cut() is None
    topic.write(range(4, 6))
    assert Cutter(log, servers, topic.name).cut() == 2
    assert rows(log) == [[0, 1, 2, 3], [4, 5]]
    topic.make_again()
    with pytest.raises(LogCorrupt, match="was deleted and made again"):
        Cutter(log, servers, topic.name).cut()


@pytest.fixture
def cutting(topic: Topic, tmp_path: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes that cut the topic; the last one runs."""
    made: list[subprocess.Popen[bytes]] = []
    yield made
    for process in made:
        process.kill()
        process.wait()


def test_two_jobs_share_the_epochs_of_a_topic_whose_cutter_is_killed(
    topic: Topic, tmp_path: Path, spark: SparkSession, started: list[Run], cutting: list[subprocess.Popen[bytes]]
) -> None:
    def cut() -> None:
        command = [sys.executable, "-m", "tidelock", "cut", topic.url, "--schema", "n long", "--subject", "orders"]
        options = ["--log", f"file:{tmp_path}/cut", "--every", "0.2", "--json"]
        cutting.append(subprocess.Popen([*command, *options], env=os.environ, stdout=subprocess.DEVNULL))

    cut()
    topic.write(*range(10))
    eventually(lambda: (tmp_path / "cut" / "entries").exists(), "the first epoch is cut")
    kept = []
    for name in ("left", "right"):
        job = tidelock.Pipeline(name, epoch="30 seconds")
        job.subscribe("orders", aligned=True)
        kept.append(Deliveries().attach(job, "orders"))
        started.append(job.start(spark, tmp_path / name))
    for moment in range(3):
        topic.write(*range(10 + moment * 10, 20 + moment * 10))
        os.kill(cutting[-1].pid, signal.SIGKILL)
        cutting[-1].wait()
        cut()
        for one in kept:
            one.wait_for(20 + moment * 10)
    assert [one.rows() for one in kept] == [[(n,) for n in range(40)]] * 2, "every record once"
    assert kept[0].epochs == kept[1].epochs, "in the same epochs"
