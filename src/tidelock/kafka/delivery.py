"""Writing to a topic of others, each piece of work once: in one transaction with the note that it was done.

Readers that read committed records only (Spark does, and every client does if it is told so) see the records of a
piece of work all together, once. The note of the newest work is in a topic beside it, `<topic>.<writer>.done`, and
is written in the same transaction. Whoever does the same work again finds the note, and writes nothing.

There is one writer of a name at a time: a new one ends what the former has begun, and the former can write nothing
any more.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from tidelock.errors import Fenced, TidelockError
from tidelock.kafka.brokers import Brokers, MissingRecords, connect
from tidelock.kafka.location import KafkaLocation
from tidelock.kafka.topics import delete_before, ensure, ensure_any

_LONGEST = 300.0
"""How many seconds a transaction may take."""

_TIDY_EVERY = 100
_SOME = 1000
_FENCED = {KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED}


class TopicWriter:
    """The one writer of its name to a topic. One thread at a time; connects with the first piece of work."""

    def __init__(self, location: KafkaLocation, topic: str, writer: str) -> None:
        self._location = location
        self._topic = topic
        self._writer = writer
        self._notes = f"{topic}.{writer}.done"
        self._producer: Producer | None = None
        self._done: Mapping[str, Any] | None = None
        self._count = itertools.count(1)

    def is_done(self, work: Mapping[str, Any]) -> bool:
        """Whether ``work`` is the newest that was written.

        Raises:
            BackendUnavailable: no answer in time.
            PipelineError: the brokers refuse us.
        """
        if self._producer is None:
            self._producer = self._begun()
        return self._done == work

    def write(self, work: Mapping[str, Any], records: Iterable[tuple[bytes | None, bytes]]) -> None:
        """Write keys and values and note that ``work`` is done: all of it, or nothing.

        Raises:
            Fenced: another writer of the same name has come.
            BackendUnavailable: it was not taken in time; whether it was is known to the next writer only.
        """
        if self.is_done(work):
            return
        producer, self._producer = self._producer, None  # after a failure all begins anew
        assert producer is not None
        try:
            producer.begin_transaction()
            for number, (key, value) in enumerate(records):
                self._produce(producer, self._topic, value, key)
                if number % _SOME == 0:
                    producer.poll(0)
            self._produce(producer, self._notes, json.dumps(work).encode(), None)
            producer.commit_transaction(self._location.timeout)
        except BaseException as failure:
            with suppress(KafkaException):  # otherwise the next writer does it
                producer.abort_transaction(self._location.timeout)
            if isinstance(failure, KafkaException):
                raise self._translated(failure.args[0]) from failure
            raise
        self._producer, self._done = producer, work
        self._tidy()

    def _produce(self, producer: Producer, topic: str, value: bytes, key: bytes | None) -> None:
        while True:
            try:
                producer.produce(topic, value, key)
                return
            except BufferError:
                producer.poll(0.05)

    def _begun(self) -> Producer:
        """A client whose transactions count, and those of its predecessors no longer; reads what was done."""
        brokers = self._brokers
        ensure_any(brokers, self._topic)
        ensure(brokers, self._notes, 1, replication=self._location.replication, settings={})
        own = {
            "transactional.id": f"tidelock.{self._notes}",
            "transaction.timeout.ms": int(_LONGEST * 1000),
            "linger.ms": 5,
            "compression.type": "lz4",
        }
        producer = Producer(brokers.settings() | own)
        try:
            producer.init_transactions(max(self._location.timeout, 5.0))
        except KafkaException as failure:
            raise self._translated(failure.args[0]) from failure
        self._done = self._newest(brokers)
        return producer

    def _newest(self, brokers: Brokers) -> Mapping[str, Any] | None:
        while True:
            (first,), (end,) = brokers.beginnings(self._notes), brokers.ends(self._notes)
            with suppress(MissingRecords):  # a writer before this one is still tidying up
                notes = brokers.read(self._notes, 0, first, end - 1) if end > first else []
                return dict(json.loads(notes[-1].value())) if notes else None

    def _tidy(self) -> None:
        """Now and then have all notes deleted but the newest."""
        if next(self._count) % _TIDY_EVERY == 0:
            brokers = self._brokers
            (end,) = brokers.ends(self._notes)
            delete_before(brokers, self._notes, {0: end - 2})  # the newest note, and the end of its transaction

    @property
    def _brokers(self) -> Brokers:
        return connect(self._location)

    def _translated(self, error: KafkaError) -> TidelockError:
        if error.code() in _FENCED or error.fatal():
            return Fenced(
                f"{self._location.shown}: another run writes to the topic {self._topic} as {self._writer}; this "
                "one must stop and has written nothing. Two runs of one pipeline at a time are the usual cause"
            )
        return self._brokers.translate(error)
