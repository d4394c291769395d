"""The Kafka store keeps the contract, and brokers that fail in any way lose nothing silently."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.kafka_servers import PASSWORD, USER, KafkaServer, KafkaServers
from tests.redis_servers import RedisServers
from tests.waiting import eventually

from tidelock.credentials import taken
from tidelock.epochs import Epoch
from tidelock.errors import BackendUnavailable, Fenced, LogCorrupt, LogNotFound, PipelineError
from tidelock.kafka.brokers import connect
from tidelock.kafka.location import parse
from tidelock.log import EpochLog, LogWriter, open_store
from tidelock.log.stores import kafka as kafka_store
from tidelock.log.stores import kafka_replica, kafka_state
from tidelock.log.stores.kafka_replica import Replica, replica
from tidelock.testing.contracts.logs import LogStoreContract
from tidelock.testing.logs import SCHEMA, covers, publish, rows, write_part


class TestKafkaStore(LogStoreContract):
    @pytest.fixture
    def url(self, kafka_url: str) -> str:
        return f"{kafka_url}/log"


def new_writer(url: str, epochs: int = 2) -> LogWriter:
    writer = EpochLog.create(url, SCHEMA).take_over("the test")
    for n in range(epochs):
        publish(writer, covers(n), [n])
    return writer


def hurried(writer: LogWriter, timeout: int) -> LogWriter:
    """The next writer, with a client that gives up soon; brokers that were just started may be slow at first."""
    writers: list[LogWriter] = []
    url = f"{writer.log.url}?timeout={timeout}"
    patiently(lambda: writers.append(EpochLog.open(url).take_over("one in a hurry")))
    return writers[-1]


def patiently(change: Callable[[], object]) -> None:
    """Try again while the brokers are away, as a supervisor does."""

    def tried() -> bool:
        try:
            change()
        except BackendUnavailable:
            return False
        return True

    eventually(tried, "the broker is back", patience=120)


def own_view(url: str) -> Replica:
    """What somebody sees who reads the control topic from its beginning."""
    return Replica(parse(url))


def bounds(url: str, kind: str, partition: int = 0) -> tuple[int, int]:
    here = parse(url)
    return connect(here).bounds(f"{here.topic}.{kind}", partition)


# -- what URLs mean


def test_a_log_has_a_name() -> None:
    with pytest.raises(PipelineError, match=r"a log needs a name behind the host: kafka://h:9092/name"):
        open_store("kafka://h")


def test_logs_on_one_broker_do_not_see_each_other(kafka_url: str) -> None:
    one, two = new_writer(f"{kafka_url}/one"), new_writer(f"{kafka_url}/one/two", epochs=1)
    assert (list(rows(one.log)), list(rows(two.log))) == ([0, 1], [0])


def test_opening_sends_nothing() -> None:
    assert open_store("kafka://nobody.invalid/log").url == "kafka://nobody.invalid:9092/log"


def test_the_package_is_loaded_with_the_first_log_only() -> None:
    code = "import sys, tidelock.log; sys.exit('confluent_kafka' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("tidelock.kafka.")]:
        monkeypatch.delitem(sys.modules, name)
    for name in ("kafka", "kafka_replica"):
        monkeypatch.delitem(sys.modules, f"tidelock.log.stores.{name}", raising=False)
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(PipelineError, match=r"pip install .tidelock\[kafka\]"):
        open_store("kafka://localhost/log")


# -- parts


def test_a_part_of_many_messages_comes_back_whole(kafka_url: str) -> None:
    store = open_store(f"{kafka_url}/log")
    data = os.urandom(5_000_000)
    store.write_part("big", lambda file: file.write(data))
    store.write_part("empty", lambda file: None)
    assert store.read_part("big").to_pybytes() == data
    assert store.read_part("empty").to_pybytes() == b""
    assert store.read_part("none") is None


def test_records_of_others_in_between_are_not_read(kafka_url: str) -> None:
    url = f"{kafka_url}/log?partitions=1"
    log = replica(parse(url))
    log.partitions()
    attempts = [log.tell("begin", {"name": name, "partition": 0}) for name in ("one", "two")]
    offsets: dict[str, list[int]] = {attempt: [] for attempt in attempts}
    for number in range(6):
        attempt = attempts[number % 2]
        sent = log.brokers.send(log.data, 0, f"{number % 2}{number}".encode(), attempt.encode())
        offsets[attempt] += log.brokers.await_all([sent])
    for name, attempt in zip(("one", "two"), attempts, strict=True):
        runs = kafka_state.runs_of(offsets[attempt])
        log.tell("end", {"name": name, "attempt": attempt, "runs": runs, "bytes": 6})
    store = open_store(url)
    assert [store.read_part(name).to_pybytes() for name in ("one", "two")] == [b"000204", b"111315"]


def test_a_part_that_fails_is_not_there(kafka_url: str) -> None:
    store = open_store(f"{kafka_url}/log")

    def fail(file: Any) -> None:
        raise OSError("no")

    with pytest.raises(OSError, match="no"):
        store.write_part("p", fail)
    assert store.part_names() == []


def test_a_part_whose_end_comes_after_its_removal_is_void(kafka_url: str) -> None:
    writer = new_writer(f"{kafka_url}/log", epochs=1)
    log = replica(parse(writer.log.url))
    zombie = log.tell("begin", {"name": "zombie", "partition": 0})
    assert len(writer.log.store.part_names()) == 2
    writer.log.take_over("the next run")
    log.tell("end", {"name": "zombie", "attempt": zombie, "runs": [[0, 1]], "bytes": 1})
    assert len(writer.log.store.part_names()) == 1


def test_space_of_removed_parts_is_given_back(kafka_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_store, "_GIVE_BACK", 10)
    writer = new_writer(f"{kafka_url}/log?partitions=2", epochs=40)
    writer.log.move_cursor("c", Epoch(38))
    assert len(writer.truncate()) == 39

    def kept() -> int:
        return sum(high - low for low, high in (bounds(writer.log.url, "data", p) for p in range(2)))

    eventually(lambda: kept() <= 3, "what nobody needs is gone")
    assert rows(writer.log) == {39: [39]}
    assert publish(writer, covers(40), [40])
    assert rows(writer.log) == {39: [39], 40: [40]}


# -- the control topic stays short


def test_snapshots_keep_the_control_topic_short(kafka_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_replica, "SNAPSHOT_EVERY", 20)
    monkeypatch.setattr(kafka_state, "_PIECE", 500)
    writer = new_writer(f"{kafka_url}/log", epochs=3)
    for n in range(3, 60):
        publish(writer, covers(n), [n])
        writer.log.move_cursor("c", Epoch(n - 3))
        writer.truncate()
    low, high = bounds(writer.log.url, "control")
    assert low > 0
    assert high - low < 120
    view = own_view(writer.log.url)
    assert view.ask(lambda state: state.covers) == [(57, 57), (58, 58), (59, 59)]
    assert view.ask(lambda state: state) == replica(parse(writer.log.url)).ask(lambda state: state)
    assert rows(writer.log) == {n: [n] for n in (57, 58, 59)}


def test_somebody_who_fell_behind_a_snapshot_catches_up(kafka_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = new_writer(f"{kafka_url}/log", epochs=2)
    behind = own_view(writer.log.url)
    assert behind.ask(lambda state: state.covers) == [(0, 0), (1, 1)]
    behind._follower.close()
    behind._follower = None
    monkeypatch.setattr(kafka_replica, "SNAPSHOT_EVERY", 10)
    for n in range(30):
        writer.log.move_cursor("c", Epoch(n % 2))
    publish(writer, covers(2), [2])
    eventually(lambda: bounds(writer.log.url, "control")[0] > behind._state.next, "older records are gone")
    assert behind.ask(lambda state: state.covers) == [(n, n) for n in range(3)]


def test_records_deleted_by_hand_are_told(kafka_url: str) -> None:
    writer = new_writer(f"{kafka_url}/log", epochs=2)
    here = parse(writer.log.url)
    admin = AdminClient({"bootstrap.servers": here.servers})
    gone = TopicPartition(f"{here.topic}.control", 0, 3)
    admin.delete_records([gone])[gone].result()
    with pytest.raises(
        LogCorrupt, match=r"\.control has lost its oldest records, and no snapshot stands for them"
    ):
        own_view(writer.log.url).ask(lambda state: state.covers)


def test_a_record_of_somebody_else_is_told(kafka_url: str) -> None:
    writer = new_writer(f"{kafka_url}/log", epochs=1)
    here = parse(writer.log.url)
    producer = Producer({"bootstrap.servers": here.servers})
    producer.produce(f"{here.topic}.control", b"hello", partition=0)
    assert producer.flush(20) == 0
    with pytest.raises(LogCorrupt, match=r"of the topic .*\.control was not written by Tidelock"):
        writer.log.ranges()


def test_topics_that_were_made_again_are_read_from_their_beginning(kafka_url: str) -> None:
    writer = new_writer(f"{kafka_url}/log", epochs=2)
    here = parse(writer.log.url)
    reader = own_view(writer.log.url)
    assert reader.ask(lambda state: state.covers) == [(0, 0), (1, 1)]
    known = reader._state.next
    admin = AdminClient({"bootstrap.servers": here.servers})
    for gone in admin.delete_topics([f"{here.topic}.{kind}" for kind in ("control", "data")]).values():
        gone.result(30)
    anew = own_view(writer.log.url)
    eventually(lambda: not connect(here).partitions(anew.control), "the topic is gone")
    for number in range(known + 3):  # so many that the end of the topic does not tell
        patiently(lambda: anew.tell("put", {"name": f"new-{number}"}))  # noqa: B023
    names = reader.ask(lambda state: sorted(state.documents))
    assert names == sorted(f"new-{number}" for number in range(known + 3)), "nothing of the old one is left"


# -- writers


def test_a_zombie_writer_publishes_nothing(kafka_url: str) -> None:
    """Its record is on its way while the next writer takes over: the place where it lands decides."""
    writer = new_writer(f"{kafka_url}/log", epochs=1)
    zombie = pickle.loads(pickle.dumps(writer.log.store))
    write_part(writer, covers(1), [99])
    second = writer.log.take_over("the second")
    with pytest.raises(Fenced, match="the second has taken this log over"):
        zombie.publish(writer.token, covers(1), b"of the zombie")
    with pytest.raises(Fenced):
        zombie.unpublish(writer.token, [covers(0)])
    assert publish(second, covers(1), [1])
    assert rows(writer.log) == {0: [0], 1: [1]}


def test_an_epoch_that_was_published_without_an_answer(kafka_url: str) -> None:
    """The same once more is done already; other parts for it are refused, and what is there stays."""
    writer = new_writer(f"{kafka_url}/log", epochs=2)
    writer.log.store.publish(writer.token, covers(1), writer.log.store.manifest(covers(1)) or b"")
    other = writer.log.store.manifest(covers(0)) or b""
    with pytest.raises(BackendUnavailable, match=r"epoch 1 was published by an attempt that got no answer"):
        writer.log.store.publish(writer.token, covers(1), other)
    assert rows(writer.log) == {0: [0], 1: [1]}


# -- brokers that were away


@pytest.mark.chaos
def test_brokers_that_are_not_there(kafka_servers: KafkaServers) -> None:
    server = kafka_servers.start()
    calm = new_writer(f"{server.url}/log")
    writer = hurried(calm, 3)
    server.kill()
    with pytest.raises(BackendUnavailable, match=r"timeout=3: the brokers do not answer.* Start them, or see"):
        publish(writer, covers(2), [2])
    with pytest.raises(BackendUnavailable, match="do not answer"):
        EpochLog.open(writer.log.url)
    server.start()
    patiently(lambda: publish(writer.log.take_over("the next run"), covers(2), [2]))
    assert rows(calm.log) == {0: [0], 1: [1], 2: [2]}


_SNAPSHOT_EVERY = 40


def publish_patiently(url: str, epochs: int) -> None:
    """Publish up to an epoch; whatever fails is begun again as a supervisor does it, with a take-over."""
    kafka_replica.SNAPSHOT_EVERY = _SNAPSHOT_EVERY
    writers: list[LogWriter] = []

    def go_on() -> None:
        writer = writers.pop() if writers else EpochLog.open(url).take_over("a child")
        n = writer.window.tail + 1
        if n < epochs:
            publish(writer, covers(n), [n] * 50)
        writers.append(writer)  # one that has failed is not used again

    while not writers or writers[-1].window.tail < epochs - 1:
        patiently(go_on)


@pytest.mark.chaos
@pytest.mark.timeout(1200)
def test_a_broker_that_is_killed_again_and_again_costs_nothing(
    kafka_servers: KafkaServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the middle of publishing, with snapshots and deleted records, some of which come back."""
    server, epochs = kafka_servers.start(), 150
    url = f"{server.url}/log"
    monkeypatch.setattr(kafka_replica, "SNAPSHOT_EVERY", _SNAPSHOT_EVERY)
    patiently(lambda: EpochLog.create(url, SCHEMA))
    log = EpochLog.open(url)
    hurried_url = f"{url}?timeout=2"
    child = multiprocessing.get_context("spawn").Process(target=publish_patiently, args=(hurried_url, epochs))
    child.start()

    def has_published(epochs: int) -> bool:
        assert child.is_alive() or child.exitcode == 0
        try:
            return len(log.ranges()) >= epochs
        except BackendUnavailable:
            return False

    for reached in (30, 80):
        # Longer than the child tries to publish a single epoch.
        eventually(lambda: has_published(reached), "the child publishes", patience=300)  # noqa: B023
        server.restart()
    child.join(300)
    assert child.exitcode == 0
    assert rows(log) == {n: [n] * 50 for n in range(epochs)}
    assert own_view(url).ask(lambda state: state.covers) == [(n, n) for n in range(epochs)]


@pytest.mark.chaos
def test_a_broker_that_hangs(kafka_servers: KafkaServers) -> None:
    server = kafka_servers.start()
    calm = new_writer(f"{server.url}/log")
    writer = hurried(calm, 3)
    server.pause()
    began = time.monotonic()
    with pytest.raises(BackendUnavailable, match="do not answer"):
        publish(writer, covers(2), [2])
    with pytest.raises(BackendUnavailable, match="do not answer"):
        writer.log.store.publish(writer.token, covers(2), b"in doubt")
    assert time.monotonic() - began < 60
    server.resume()
    # Whatever of this the broker does now, the next writer finds a log in order.
    following: list[LogWriter] = []
    patiently(lambda: following.append(calm.log.take_over("the next run")))
    last = len(calm.log.ranges())
    if last == 3:
        assert calm.log.store.manifest(covers(2)) == b"in doubt"
    else:
        assert publish(following[-1], covers(2), [2])
        assert rows(calm.log) == {0: [0], 1: [1], 2: [2]}


def test_a_writer_that_is_stopped_and_goes_on_too_late_is_fenced(kafka_url: str) -> None:
    """A process that was stopped in the middle of publishing wakes up when another writes: a true zombie."""
    url = f"{kafka_url}/log"
    log = EpochLog.create(url, SCHEMA)
    child = multiprocessing.get_context("spawn").Process(target=publish_until_fenced, args=(url,))
    child.start()
    eventually(lambda: len(log.ranges()) > 5, "the child publishes")
    os.kill(child.pid or 0, signal.SIGSTOP)
    second = log.take_over("the second")
    first = second.window.tail + 1
    for n in range(first, first + 20):
        publish(second, covers(n), [-n])
    os.kill(child.pid or 0, signal.SIGCONT)
    child.join(60)
    assert child.exitcode == 0
    assert rows(log) == {n: [n] * 50 if n < first else [-n] for n in range(first + 20)}


def publish_until_fenced(url: str) -> None:
    writer = EpochLog.open(url).take_over("a child")
    try:
        while True:
            n = writer.window.tail + 1
            publish(writer, covers(n), [n] * 50)
    except Fenced:
        pass


def publish_and_tell(url: str, told: Connection) -> None:
    writer = EpochLog.open(url).take_over("a child")
    while True:
        n = writer.window.tail + 1
        publish(writer, covers(n), [n])
        told.send(n)


def test_what_a_killed_writer_was_told_is_there_at_once(kafka_url: str) -> None:
    """A record that was under way may still land after the kill; one that was answered has landed."""
    url = f"{kafka_url}/log"
    log = EpochLog.create(url, SCHEMA)
    spawn = multiprocessing.get_context("spawn")
    for _ in range(15):
        ours, theirs = spawn.Pipe(duplex=False)
        child = spawn.Process(target=publish_and_tell, args=(url, theirs))
        child.start()
        theirs.close()
        last = [ours.recv() for _ in range(3)][-1]
        os.kill(child.pid or 0, signal.SIGKILL)
        child.join()
        there = log.ranges()[-1].last
        with suppress(EOFError):
            while ours.poll():
                last = ours.recv()
        assert there >= last
        again = rows(log)
        assert again == {n: [n] for n in range(len(again))}


# -- brokers that have lost data


def test_brokers_that_come_back_empty_have_no_log(kafka_servers: KafkaServers) -> None:
    server = kafka_servers.start(auto_create_topics_enable="false")
    writer = new_writer(f"{server.url}/log")
    server.restart(empty=True)
    with pytest.raises(LogCorrupt, match=r"the brokers have lost data of this log: .*, and now it is none"):
        patiently(lambda: writer.log.store.publish(writer.token, covers(2), b""))
    with pytest.raises(LogNotFound):
        patiently(lambda: EpochLog.open(writer.log.url))
    patiently(lambda: EpochLog.create(writer.log.url, SCHEMA))
    after = new_writer(writer.log.url, epochs=1)
    with pytest.raises(Fenced):
        writer.log.store.publish(writer.token, covers(2), b"")
    assert rows(after.log) == {0: [0]}


def test_a_topic_that_drops_data_is_refused(kafka_server: KafkaServer, kafka_url: str) -> None:
    here = parse(f"{kafka_url}/log")
    admin = AdminClient({"bootstrap.servers": here.servers})
    admin.create_topics([NewTopic(f"{here.topic}.data", 1, 1)])[f"{here.topic}.data"].result()
    with pytest.raises(
        PipelineError, match=r"\.data may drop data by itself \(retention.ms is \d+\): set retention.ms=-1"
    ):
        EpochLog.create(here.url, SCHEMA)


def test_too_few_brokers_for_the_copies_wanted(kafka_url: str) -> None:
    with pytest.raises(PipelineError, match=r"the brokers refuse this .*factor of 3 cannot be reached"):
        EpochLog.create(f"{kafka_url}/log?replication=3", SCHEMA)


# -- who may


def test_a_password_opens_the_log_and_is_never_shown(kafka_servers: KafkaServers) -> None:
    server = kafka_servers.start(sasl=True)
    calm = new_writer(f"kafka://{USER}:{PASSWORD}@{server.address}/log", epochs=1)
    writer = hurried(calm, 2)
    assert pickle.loads(pickle.dumps(calm.log.store)).ranges() == [covers(0)]
    assert writer.log.url == writer.log.shown == f"kafka://{server.address}/log?timeout=2"
    assert PASSWORD.encode() not in pickle.dumps(writer.log.store)
    with pytest.raises(PipelineError, match=r"the brokers refuse this user or password") as told:
        EpochLog.create(f"kafka://{USER}:wrong-word@{server.address}/log", SCHEMA)
    assert "wrong-word" not in str(told.value)
    taken(f"kafka://{USER}:{PASSWORD}@{server.address}/log")
    server.kill()
    with pytest.raises(BackendUnavailable) as away:
        writer.log.ranges()
    assert PASSWORD not in str(away.value)


@pytest.mark.chaos
def test_a_log_over_tls(kafka_servers: KafkaServers, redis_servers: RedisServers) -> None:
    certificates = redis_servers.certificates()
    server = kafka_servers.start(tls=certificates)
    assert rows(new_writer(f"{server.url}/log?{certificates.query}").log) == {0: [0], 1: [1]}
    with pytest.raises(BackendUnavailable, match=r"certificate"):
        EpochLog.open(f"{server.url}/log")
