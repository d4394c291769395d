"""Writing to topics of others: each piece of work once, whatever is killed, for who reads committed records."""

from __future__ import annotations

import multiprocessing
import os
import signal
import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.kafka_servers import KafkaServer, KafkaServers
from tests.waiting import eventually

from tidelock.errors import BackendUnavailable, Fenced
from tidelock.kafka import delivery
from tidelock.kafka.brokers import connect
from tidelock.kafka.delivery import TopicWriter
from tidelock.kafka.location import parse_servers


def values(server: KafkaServer, topic: str) -> list[bytes]:
    """What a reader of committed records finds in a topic of one partition."""
    brokers = connect(parse_servers(server.address))
    (end,) = brokers.ends(topic)
    return [message.value() for message in brokers.read(topic, 0, 0, end - 1)] if end else []


def expect(server: KafkaServer, topic: str, wanted: list[bytes]) -> None:
    """See that readers find exactly this; brokers show a transaction a little after its commit was answered."""
    eventually(lambda: len(values(server, topic)) >= len(wanted), f"{len(wanted)} records")
    assert values(server, topic) == wanted


def new_writer(server: KafkaServer, topic: str, timeout: float = 60) -> TopicWriter:
    return TopicWriter(parse_servers(f"kafka://{server.address}?timeout={timeout:g}"), topic, "job.sink")


@pytest.fixture
def topic() -> str:
    return uuid.uuid4().hex


def test_the_same_work_is_written_once(kafka_server: KafkaServer, topic: str) -> None:
    writer = new_writer(kafka_server, topic)
    assert not writer.is_done({"epoch": 0})
    writer.write({"epoch": 0}, [(None, b"a"), (b"k", b"b")])
    writer.write({"epoch": 0}, [(None, b"again")])
    later = new_writer(kafka_server, topic)
    assert later.is_done({"epoch": 0})
    later.write({"epoch": 0}, [(None, b"again")])
    later.write({"epoch": 1}, [(None, b"c")])
    expect(kafka_server, topic, [b"a", b"b", b"c"])


def test_work_that_fails_in_the_middle_is_not_seen(kafka_server: KafkaServer, topic: str) -> None:
    def broken() -> Iterator[tuple[None, bytes]]:
        yield None, b"half"
        raise OSError("the rest is missing")

    writer = new_writer(kafka_server, topic)
    with pytest.raises(OSError, match="the rest is missing"):
        writer.write({"epoch": 0}, broken())
    writer.write({"epoch": 0}, [(None, b"whole")])
    expect(kafka_server, topic, [b"whole"])


def test_a_newer_writer_stops_the_older_one(kafka_server: KafkaServer, topic: str) -> None:
    zombie, second = new_writer(kafka_server, topic), new_writer(kafka_server, topic)
    zombie.write({"epoch": 0}, [(None, b"a")])
    assert second.is_done({"epoch": 0})
    with pytest.raises(Fenced, match=r"another run writes to the topic .* as job.sink; this one must stop"):
        zombie.write({"epoch": 1}, [(None, b"of the zombie")])
    second.write({"epoch": 1}, [(None, b"b")])
    expect(kafka_server, topic, [b"a", b"b"])


def write_for_ever(address: str, topic: str) -> None:
    writer = TopicWriter(parse_servers(f"kafka://{address}?timeout=60"), topic, "job.sink")
    epoch = 0
    while writer.is_done({"epoch": epoch}) or any(
        writer.is_done({"epoch": n}) for n in range(epoch, epoch + 1000)
    ):
        epoch += 1
    while True:
        writer.write({"epoch": epoch}, [(None, f"{epoch}-{n}".encode()) for n in range(20)])
        epoch += 1


def test_a_writer_killed_at_any_moment_leaves_whole_epochs(kafka_server: KafkaServer, topic: str) -> None:
    spawn = multiprocessing.get_context("spawn")  # a client of Kafka does not survive a fork
    new_writer(kafka_server, topic).is_done({})  # the topic is there
    epochs = 0
    for _ in range(4):
        child = spawn.Process(target=write_for_ever, args=(kafka_server.address, topic))
        child.start()
        eventually(lambda: len(values(kafka_server, topic)) > (epochs + 2) * 20, "the child writes")  # noqa: B023
        os.kill(child.pid or 0, signal.SIGKILL)
        child.join()
        new_writer(kafka_server, topic).is_done({})  # ends what the child has begun
        seen = values(kafka_server, topic)
        epochs = len(seen) // 20
        assert seen == [f"{epoch}-{n}".encode() for epoch in range(epochs) for n in range(20)]


def test_only_the_newest_note_is_kept(
    kafka_server: KafkaServer, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "_TIDY_EVERY", 5)
    writer = new_writer(kafka_server, topic)
    for epoch in range(10):
        writer.write({"epoch": epoch}, [(None, b"x")])
    brokers = connect(parse_servers(kafka_server.address))
    eventually(lambda: brokers.beginnings(f"{topic}.job.sink.done") > [10], "older notes are gone")
    assert new_writer(kafka_server, topic).is_done({"epoch": 9})


@pytest.mark.chaos
def test_a_broker_that_is_killed_in_between(kafka_servers: KafkaServers, topic: str) -> None:
    server = kafka_servers.start()
    writer = new_writer(server, topic, timeout=3)
    writer.write({"epoch": 0}, [(None, b"a")])
    server.kill()
    with pytest.raises(BackendUnavailable):
        writer.write({"epoch": 1}, [(None, b"b")])
    server.start()

    def written() -> bool:
        try:
            new_writer(server, topic, timeout=5).write({"epoch": 1}, [(None, b"b")])
        except BackendUnavailable:
            return False
        return True

    eventually(written, "the broker takes transactions again", 60)
    expect(server, topic, [b"a", b"b"])


def test_a_plain_reader_of_committed_records_sees_the_same(kafka_server: KafkaServer, topic: str) -> None:
    writer = new_writer(kafka_server, topic)
    writer.write({"epoch": 0}, [(b"k", b"a")])
    reader = Consumer(
        {"bootstrap.servers": kafka_server.address, "group.id": topic, "isolation.level": "read_committed"}
    )
    reader.assign([TopicPartition(topic, 0, 0)])
    found = reader.poll(20)
    reader.close()
    assert found is not None
    assert (found.key(), found.value()) == (b"k", b"a")
