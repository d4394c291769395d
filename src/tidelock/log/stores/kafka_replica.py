"""A process's own copy of the state of a log in Kafka: brought up to date before it is asked.

One per process and control topic. A question costs one round trip, for the end of the topic; what is new there has
usually arrived by then, because the copy's own client always waits for the next record. A change costs one round
trip too: if it landed right behind what is known, it need not be read to know what became of it.

Snapshots. Whoever finds many records behind the newest snapshot writes another one and then has everything before
it deleted. Killed in between, the next one does it.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from tidelock.errors import BackendUnavailable, LogCorrupt, TidelockError
from tidelock.kafka.brokers import Brokers, Identity, MissingTopic, at_fork, connect, identify, leave
from tidelock.kafka.location import KafkaLocation
from tidelock.kafka.topics import delete_before, ensure
from tidelock.log.stores.kafka_state import LOST, TopicRecord, TopicState, Verdict

Answer = TypeVar("Answer")

SNAPSHOT_EVERY = 500
"""How many records a snapshot waits for, at least."""

_WAIT = 0.05
_CONTROL = {"segment.bytes": str(16 << 20)}
_DATA = {"segment.bytes": str(64 << 20)}

_logger = logging.getLogger(__name__)


class Replica:
    """The state of one log, as this process knows it. Thread-safe."""

    def __init__(self, location: KafkaLocation) -> None:
        self.location = location
        self.brokers: Brokers = connect(location)
        self.control, self.data = f"{location.topic}.control", f"{location.topic}.data"
        self.client = uuid.uuid4().hex[:16]
        self._numbers = itertools.count()
        self._lock = threading.RLock()
        self._state = TopicState()
        self._follower: Any = None
        self._learned: dict[int, Verdict | None] = {}
        self._partitions = 0
        self._identity: str | None = None

    # -- asking

    def ask(self, question: Callable[[TopicState], Answer]) -> Answer:
        """What ``question`` finds in the state of now; that of a log that does not exist is empty.

        Raises:
            BackendUnavailable: no answer in time.
            LogCorrupt: records are missing.
        """
        with self._lock:
            self._catch_up()
            return question(self._state)

    def partitions(self) -> int:
        """How many partitions the data has; the topics are made if they are missing.

        Raises:
            PipelineError: the topics exist, and may drop data.
        """
        if not self._partitions:
            copies = self.location.replication
            ensure(self.brokers, self.data, self.location.partitions, replication=copies, settings=_DATA)
            ensure(self.brokers, self.control, 1, replication=copies, settings=_CONTROL)
            self._partitions = self.brokers.partitions(self.data)
        return self._partitions

    # -- changing

    def change(self, op: str, fields: Mapping[str, Any], payload: bytes = b"", *, again: bool = True) -> Verdict:
        """Append a record and learn what became of it. With ``again`` a log that has vanished is made anew.

        Raises:
            BackendUnavailable: no answer in time; whether it was appended is not known.
        """
        self.partitions()
        number, offset = self._append(op, fields, payload, learn=True, again=again)
        if offset is None:
            return Verdict(LOST)
        with self._lock:
            verdict = self._verdict(number, offset, TopicRecord(self.client, number, op, fields, payload))
            self._make_snapshot()
        return verdict

    def tell(self, op: str, fields: Mapping[str, Any], payload: bytes = b"") -> str:
        """Append a record whose effect needs not to be learned; returns the name of the attempt.

        Raises:
            BackendUnavailable: no answer in time; whether it was appended is not known.
        """
        self.partitions()
        number, _ = self._append(op, fields, payload, learn=False, again=True)
        return f"{self.client}:{number}"

    def _append(
        self, op: str, fields: Mapping[str, Any], payload: bytes, *, learn: bool, again: bool
    ) -> tuple[int, int | None]:
        number = -1
        try:
            with self.brokers.sending:
                number = next(self._numbers)
                if learn:
                    self._learned[number] = None
                record = TopicRecord(self.client, number, op, fields, payload)
                sent = self.brokers.send(self.control, 0, record.encode())
            return number, self.brokers.await_all([sent])[0]
        except MissingTopic:
            self._learned.pop(number, None)
            self._partitions = 0
            if not again:
                return number, None
            self.partitions()
            return self._append(op, fields, payload, learn=learn, again=False)
        except TidelockError:
            self._learned.pop(number, None)
            raise

    def _verdict(self, number: int, offset: int, record: TopicRecord) -> Verdict:
        if self._state.known and offset == self._state.next:
            self._take(offset, record)
        elif offset < self._state.next and self._learned[number] is None:
            self._start_anew()  # the topic was made anew: offsets have begun again
        self._read_until(offset + 1)
        verdict = self._learned.pop(number)
        if verdict is None:
            raise BackendUnavailable(
                f"{self.location.shown}: what became of a change could not be learned, because a snapshot has "
                "replaced its record. Try again"
            )
        return verdict

    # -- following

    def _catch_up(self) -> None:
        try:
            _, end = self.brokers.bounds(self.control, 0)
        except MissingTopic:
            if self._state.next:
                self._start_anew()
            return
        if end < self._state.next:
            self._start_anew()  # it was made anew, or its brokers have lost the newest records
        self._read_until(end)

    def _read_until(self, end: int) -> None:
        if self._state.next < end and self._is_another():
            self._start_anew()
        deadline = time.monotonic() + self.location.timeout
        while self._state.next < end or not self._state.known:
            if self._state.next >= end:
                end = self._end_of_unknown()
            if self._read_one():
                deadline = time.monotonic() + self.location.timeout
            elif time.monotonic() > deadline:
                raise BackendUnavailable(
                    f"{self.location.shown}: the topic {self.control} has records up to {end}, and those from "
                    f"{self._state.next} on do not arrive within {self.location.timeout:g} s"
                )

    def _is_another(self) -> bool:
        """Whether the topic was made again since it was read, and has more records by now than it had."""
        try:
            now = self.brokers.identity(self.control)
        except MissingTopic:
            return True
        known, self._identity = self._identity, now
        return known is not None and known != now

    def _end_of_unknown(self) -> int:
        """Where the topic ends now: the records so far have no beginning, so a snapshot must follow."""
        _, end = self.brokers.bounds(self.control, 0)
        if end <= self._state.next:
            raise LogCorrupt(
                f"{self.location.shown}: the topic {self.control} has lost its oldest records, and no snapshot "
                "stands for them. Was its retention changed, or were records deleted by hand?"
            )
        return end

    def _read_one(self) -> bool:
        if self._follower is None:
            self._follower = self.brokers.follower(self.control, self._state.next)
        message = self._follower.poll(_WAIT)
        if message is None or message.error() is not None:
            return False
        self._take(message.offset(), self._decoded(message))
        return True

    def _take(self, offset: int, record: TopicRecord) -> None:
        fresh = offset >= self._state.next
        verdict = self._state.apply(offset, record)
        if fresh and record.client == self.client and self._learned.get(record.number, verdict) is None:
            self._learned[record.number] = verdict

    def _decoded(self, message: Any) -> TopicRecord:
        try:
            return TopicRecord.decode(message.value() or b"")
        except ValueError as damage:
            raise LogCorrupt(
                f"{self.location.shown}: the record {message.offset()} of the topic {self.control} was not "
                f"written by Tidelock ({damage})"
            ) from damage

    def _start_anew(self) -> None:
        if self._follower is not None:
            self._follower.close()
        self._follower, self._state, self._partitions, self._identity = None, TopicState(), 0, None

    # -- keeping it short

    def _make_snapshot(self) -> None:
        state = self._state
        things = len(state.documents) + len(state.entries) + len(state.parts)
        if state.since < max(SNAPSHOT_EVERY, 2 * things):
            return
        records = state.snapshot()
        try:
            with self.brokers.sending:
                sent = [self.brokers.send(self.control, 0, record.encode()) for record in records]
            offsets = self.brokers.await_all(sent)
            self._read_until(offsets[-1] + 1)
            first = records[0].fields["after"] + 1
            if offsets == list(range(first, first + len(records))):
                delete_before(self.brokers, self.control, {0: first})
        except (MissingTopic, BackendUnavailable) as failure:
            _logger.debug("%s: no snapshot this time (%s)", self.location.shown, failure)

    def give_back(self, offsets: Mapping[int, int]) -> None:
        """Have the data before these offsets deleted; if that fails, it is tried again later."""
        try:
            delete_before(self.brokers, self.data, offsets)
        except BackendUnavailable as failure:
            _logger.debug("%s: no space given back this time (%s)", self.location.shown, failure)


_replicas: dict[Identity, Replica] = {}
_making = threading.Lock()


def replica(location: KafkaLocation) -> Replica:
    """This process's copy of the log at ``location``."""
    identity = identify(location)
    with _making:
        if identity not in _replicas:
            _replicas[identity] = Replica(location)
        return _replicas[identity]


def _forget() -> None:
    global _making
    leave(_replicas.values())
    _replicas.clear()
    _making = threading.Lock()


at_fork(_forget)
