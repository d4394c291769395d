"""Connections to Kafka brokers, made once per process, and the few things that are asked of them.

Requests of one client go over one connection, in order, and one that waits for new records holds up what comes
after it. So there is a client for each: one sends, one asks, one reads ranges, and whoever follows a topic has
one of its own.

Nothing here is sent by an idempotent producer: to get its number takes half a second in every new process, and
what is sent twice is recognised by whoever reads it. One request at a time is under way, so that order is kept.

A fork inherits clients without their threads. They must not even be freed there, which would wait for the threads.
"""

from __future__ import annotations

import ctypes
import gc
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec

from tidelock.credentials import Credentials, cause, credentials_for
from tidelock.errors import BackendUnavailable, TidelockError
from tidelock.kafka.errors import is_missing_topic, is_refusal, translate
from tidelock.kafka.location import KafkaLocation

Answer = TypeVar("Answer")
Client = TypeVar("Client")

_PAUSE = 0.05
_LATEST, _EARLIEST = OffsetSpec.latest(), OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_POLL = 0.005
_TOLD_AT_ONCE = 5
_NO_IDENTITY = "A" * 22
"""How the client writes the number that brokers without identities give every topic: zero, in base 64."""

_OUT_OF_REACH = {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}
_FILES = {"ca": "ssl.ca.location", "cert": "ssl.certificate.location", "key": "ssl.key.location"}


class Delivery:
    """A record on its way; it has an offset once the brokers have it."""

    def __init__(self) -> None:
        self.offset: int | None = None
        self.error: KafkaError | None = None

    def __call__(self, error: KafkaError | None, message: Any) -> None:
        """Take what the client reports."""
        self.error = error
        self.offset = None if error else message.offset()

    @property
    def over(self) -> bool:
        """Whether the brokers have it, or will not get it."""
        return self.offset is not None or self.error is not None


class MissingTopic(Exception):
    """There is no such topic."""


class MissingRecords(Exception):
    """A partition begins behind the offset ``at`` that is to be read, or ends before what is to be read does."""

    def __init__(self, at: int, low: int, end: int) -> None:
        super().__init__(at, low, end)
        self.at, self.low, self.end = at, low, end


class Brokers:
    """The brokers of a cluster, for this process. Thread-safe; opens connections when they are needed."""

    def __init__(self, location: KafkaLocation, who: Credentials | None = None) -> None:
        self.location = location
        self._who = who
        self.sending = threading.Lock()
        """Held by whoever sends several records that have to stay in order."""
        self._reading = threading.Lock()
        self._making = threading.Lock()
        self._clients: dict[str, Any] = {}
        self._read: set[str] = set()
        self._trouble: KafkaError | None = None

    # -- sending

    def send(self, topic: str, partition: int, value: bytes, key: bytes | None = None) -> Delivery:
        """Give a record to the client, which sends it in the order of calls.

        Raises:
            MissingTopic: there is no such topic.
            BackendUnavailable: the client does not get to know where it is.
        """
        delivery, deadline = Delivery(), time.monotonic() + self.location.timeout
        while True:
            try:
                self._producer.produce(topic, value, key, partition, on_delivery=delivery)
                return delivery
            except BufferError:
                self._producer.poll(_POLL)
            except KafkaException as failure:
                self._look_for(topic, failure, deadline)

    def _look_for(self, topic: str, failure: KafkaException, deadline: float) -> None:
        """Let the client see that a topic it believes to be missing is there again."""
        if is_missing_topic(failure.args[0]) and not self.partitions(topic):
            raise MissingTopic from failure
        if not is_missing_topic(failure.args[0]) or time.monotonic() > deadline:
            raise self.translate(failure.args[0]) from cause(failure)
        self._patiently(lambda timeout: self._producer.list_topics(topic, timeout=timeout))

    def await_all(self, deliveries: Iterable[Delivery]) -> list[int]:
        """The offsets of these records, once all copies that the brokers want of them are there.

        Raises:
            MissingTopic: there is no such topic.
            BackendUnavailable: they were not taken in time; they may still be.
            PipelineError: the brokers refuse them.
        """
        return [self._await(delivery) for delivery in deliveries]

    def _await(self, delivery: Delivery) -> int:
        # The client gives up by itself; what is added is for one that does not.
        deadline = time.monotonic() + self.location.timeout + 5
        while not delivery.over:
            self._producer.poll(_POLL)
            if time.monotonic() > deadline:
                raise self.translate(KafkaError(KafkaError._MSG_TIMED_OUT))
        if delivery.offset is not None:
            return delivery.offset
        if delivery.error is not None and is_missing_topic(delivery.error):
            raise MissingTopic
        raise self.translate(delivery.error or KafkaError(KafkaError._FAIL))

    # -- asking

    def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        """The offsets of the oldest record of a partition, and of the one that will come next.

        Raises:
            MissingTopic: there is no such topic.
            BackendUnavailable: no answer in time.
        """
        asked = TopicPartition(topic, partition)

        def ask(timeout: float) -> tuple[int, int]:
            low, high = self._asker.get_watermark_offsets(asked, timeout=timeout, cached=False) or (-1, -1)
            if high < 0:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
            return low, high

        return self._patiently(ask, topic)

    def ends(self, topic: str) -> list[int]:
        """The offsets, by partition, before which all transactions are decided.

        Raises:
            MissingTopic: there is no such topic.
            BackendUnavailable: no answer in time.
        """
        return self._offsets(topic, _LATEST)

    def beginnings(self, topic: str) -> list[int]:
        """The offsets of the oldest records, by partition; raises as `ends` does."""
        return self._offsets(topic, _EARLIEST)

    def _offsets(self, topic: str, which: OffsetSpec) -> list[int]:
        count = self.partitions(topic)
        if not count:
            raise MissingTopic(topic)
        wanted = {TopicPartition(topic, partition): which for partition in range(count)}

        def ask(timeout: float) -> list[int]:
            level = IsolationLevel.READ_COMMITTED
            answers = self._admin.list_offsets(wanted, isolation_level=level, request_timeout=timeout)
            found = {place.partition: answer.result().offset for place, answer in answers.items()}
            return [found[partition] for partition in range(count)]

        return self._patiently(ask, topic)

    def partitions(self, topic: str) -> int:
        """How many partitions a topic has; 0 if there is none."""

        def ask(timeout: float) -> int:
            found = self._asker.list_topics(topic, timeout=timeout).topics[topic]
            if found.error is not None and not is_missing_topic(found.error):
                raise KafkaException(found.error)
            return len(found.partitions)

        return self._patiently(ask)

    def identity(self, topic: str) -> str | None:
        """What tells a topic from others that have its name before or after it; None if the brokers do not say.

        Raises:
            MissingTopic: there is no such topic.
            BackendUnavailable: no answer in time.
        """
        wanted = TopicCollection([topic])

        def ask(timeout: float) -> str:
            answers = self._admin.describe_topics(wanted, request_timeout=timeout)
            return str(answers[topic].result().topic_id)

        found = self._patiently(ask, topic)
        return None if found == _NO_IDENTITY else found

    def insist(self, ask: Callable[[], Answer]) -> Answer:
        """What ``ask`` gets from a topic that was there before.

        Brokers that have just started may not know of their topics yet. So that it is missing is not believed
        before they have said so for as long as they may be away.

        Raises:
            MissingTopic: there is no such topic any more.
        """
        deadline = None
        while True:
            try:
                return ask()
            except MissingTopic:
                # Counted from here: to learn it the first time may have taken as long.
                deadline = deadline or time.monotonic() + self.location.timeout
                if time.monotonic() + _PAUSE > deadline:
                    raise
                time.sleep(_PAUSE)

    def admin(self, ask: Callable[[AdminClient, float], Answer]) -> Answer:
        """What ``ask`` gets from the administrative client; errors are in our words."""
        return self._patiently(lambda timeout: ask(self._admin, timeout))

    def _patiently(self, ask: Callable[[float], Answer], topic: str | None = None) -> Answer:
        deadline = time.monotonic() + self.location.timeout
        while True:
            try:
                answer = ask(max(0.1, deadline - time.monotonic()))
                self._trouble = None
                return answer
            except KafkaException as failure:
                error: KafkaError = failure.args[0]
                if topic is not None and is_missing_topic(error) and not self.partitions(topic):
                    raise MissingTopic from failure
                if time.monotonic() + _PAUSE > deadline or not _may_pass(error):
                    raise self.translate(error) from cause(failure)
                time.sleep(_PAUSE)

    # -- reading

    def read(self, topic: str, partition: int, first: int, last: int) -> list[Any]:
        """The records of a partition from one offset to another, both included.

        Raises:
            MissingTopic: there is no such topic.
            MissingRecords: some of these offsets are before the beginning of the partition, or behind its end.
            BackendUnavailable: they do not arrive in time.
        """
        with self._reading:
            reader = self._reader
            if topic not in self._read:
                # A client that meets a topic for the first time takes its time to learn where it is.
                self._patiently(lambda timeout: reader.list_topics(topic, timeout=timeout))
                self._read.add(topic)
            try:
                return list(self._until(reader, TopicPartition(topic, partition, first), last))
            except MissingTopic:
                self._read.discard(topic)  # the client keeps in mind that it is missing, until it is asked again
                raise
            finally:
                reader.unassign()

    def _until(self, reader: Consumer, start: TopicPartition, last: int) -> Iterator[Any]:
        reader.assign([start])
        deadline, at = time.monotonic() + self.location.timeout, start.offset
        while at <= last:
            message: Any = reader.poll(_PAUSE)
            error = None if message is None else message.error()
            if message is not None and error is None:
                at, deadline = message.offset() + 1, time.monotonic() + self.location.timeout
                if at <= last + 1:
                    yield message
            elif error is not None and error.code() == KafkaError._PARTITION_EOF:
                at = message.offset()
                if at <= last:
                    self._check_there(start, at, last)
            elif error is not None and is_refusal(error):
                raise self.translate(error)
            elif time.monotonic() > deadline:
                self._check_there(start, at, last)
                raise self.translate(error or KafkaError(KafkaError._TIMED_OUT))
            elif error is not None and (error.code() in _OUT_OF_REACH or is_missing_topic(error)):
                self._check_there(start, at, last)
                reader.assign([TopicPartition(start.topic, start.partition, at)])

    def _check_there(self, start: TopicPartition, at: int, last: int) -> None:
        """See whether what does not arrive is there at all: brokers say it only to who asks for it."""
        if self.partitions(start.topic) <= start.partition:
            raise MissingTopic(start.topic)
        low, end = self.bounds(start.topic, start.partition)
        if low > at or end <= last:
            raise MissingRecords(at, low, end)

    def follower(self, topic: str, offset: int) -> Consumer:
        """A client of its own that is always about to read the next record of a topic's only partition."""
        follower: Consumer = Consumer(self._consuming() | {"auto.offset.reset": "earliest"})
        follower.assign([TopicPartition(topic, 0, offset)])
        return follower

    # -- clients

    def translate(self, error: KafkaError) -> TidelockError:
        """``error`` in our words, with what the connections have told."""
        for name in self._clients.keys() - {"reader"}:
            for _ in range(_TOLD_AT_ONCE):
                self._clients[name].poll(0)
        return translate(error, self.location, self._trouble)

    def _told(self, error: KafkaError) -> None:
        # That all brokers are down is told as well when they refuse us, but it is not the reason.
        if self._trouble is None or not is_refusal(self._trouble):
            self._trouble = error

    @property
    def _producer(self) -> Producer:
        ordered = {"acks": "all", "enable.idempotence": False, "max.in.flight": 1, "linger.ms": 0}
        # What is too large is for the brokers to say.
        limits = {"message.timeout.ms": int(self.location.timeout * 1000), "message.max.bytes": 100_000_000}
        # Nothing is sent to a topic before it was seen: if it is missing then, it is gone.
        limits["topic.metadata.propagation.max.ms"] = 1000
        return self._client("producer", lambda: Producer(self.settings() | ordered | limits))

    @property
    def _admin(self) -> AdminClient:
        return self._client("admin", lambda: AdminClient(self.settings()))

    @property
    def _asker(self) -> Consumer:
        return self._client("asker", lambda: Consumer(self._consuming()))

    @property
    def _reader(self) -> Consumer:
        # What is asked for is there, so nothing is waited for; what lies behind it is not wanted.
        waiting = {"fetch.wait.max.ms": 1, "queued.max.messages.kbytes": 8192, "auto.offset.reset": "error"}
        # The last offsets of a range may be those of records that nobody sees: ends of transactions.
        waiting["enable.partition.eof"] = True
        return self._client("reader", lambda: Consumer(self._consuming() | waiting))

    def _client(self, name: str, make: Callable[[], Client]) -> Client:
        with self._making:
            if name not in self._clients:
                self._clients[name] = make()
            client: Client = self._clients[name]
            return client

    def _consuming(self) -> dict[str, Any]:
        # A consumer must have the name of a group, although it never joins it.
        return self.settings() | {"group.id": "tidelock", "enable.auto.commit": False}

    def settings(self) -> dict[str, Any]:
        """What every client is told."""
        here = self.location
        given: dict[str, Any] = {
            "bootstrap.servers": here.servers,
            "error_cb": self._told,
            "log_level": 0,
            "socket.timeout.ms": int(max(1.0, here.timeout) * 1000),
            "socket.connection.setup.timeout.ms": int(max(1.0, here.timeout) * 1000),
            "reconnect.backoff.ms": 50,
            "reconnect.backoff.max.ms": 500,
        }
        return given | security(here, self._who)


def security(location: KafkaLocation, who: Credentials | None) -> dict[str, Any]:
    """How a client proves who it is, and sees who the brokers are."""
    protocol = ("SASL_" if who else "") + ("SSL" if location.tls else "PLAINTEXT")
    given: dict[str, Any] = {"security.protocol": protocol}
    if who:
        given |= {
            "sasl.mechanism": location.mechanism,
            "sasl.username": who.user or "",
            "sasl.password": who.password or "",
        }
    return given | {_FILES[name]: file for name, file in location.files}


def _may_pass(error: KafkaError) -> bool:
    return (
        error.retriable()
        or is_missing_topic(error)
        or isinstance(translate(error, KafkaLocation((("", 0),))), BackendUnavailable)
    )


Identity = tuple[KafkaLocation, Credentials | None]

_connected: dict[Identity, Brokers] = {}
_connecting = threading.Lock()


def identify(location: KafkaLocation) -> Identity:
    """A place, and who we are there: what belongs to one is not for the other.

    Raises:
        PipelineError: what was said about credentials cannot be understood.
    """
    return location, credentials_for(location.url)


def connect(location: KafkaLocation) -> Brokers:
    """The brokers of ``location``, one object per process. Nothing is sent yet."""
    brokers, who = identity = identify(location.brokers)
    with _connecting:
        return _connected.setdefault(identity, Brokers(brokers, who))


def at_fork(forget: Callable[[], object]) -> None:
    """Let ``forget`` run in every child of a fork, before anything else does."""
    os.register_at_fork(after_in_child=forget)


def leave(inherited: Iterable[object]) -> None:
    """See that objects with clients of the parent are never freed in this process."""
    for one in inherited:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(one))


def _forget() -> None:
    global _connecting
    # A child was seen to crash while it collected what it had inherited, so that is not collected in a child.
    gc.freeze()
    leave(_connected.values())
    _connected.clear()
    _connecting = threading.Lock()


at_fork(_forget)
