"""Epoch logs in Kafka: `kafka:` and `kafkas:` URLs.

Two topics for a log, named after the path of its URL:

    <path>.control     one partition: every change, one record each; see `kafka_state`
    <path>.data        the bytes of parts, cut into messages; the key of a message is the attempt that wrote it

Crash points. A part is begun in the control topic before its data is sent, and ended there with the offsets of
all of it, so that what a dead attempt has left in the data topic is never read. An entry is one record: it is
there or not.

An answer that got lost leaves a change in doubt, and the caller is told that the brokers do not answer. If it is a
writer it may do the same once more, which changes nothing the second time; or take over, which voids what is still
under way.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from typing import Any, BinaryIO
from zlib import crc32

import pyarrow as pa

from tidelock.epochs import Epoch, EpochRange
from tidelock.errors import BackendUnavailable, LogCorrupt, PipelineError
from tidelock.kafka.brokers import MissingRecords, MissingTopic
from tidelock.kafka.location import parse
from tidelock.log.entry import Manifest
from tidelock.log.store import LogStore, Token, Written, fenced, part_gone
from tidelock.log.stores.kafka_replica import Replica, replica
from tidelock.log.stores.kafka_state import (
    EXISTS,
    FENCED,
    GONE,
    LOST,
    NEEDED,
    Placed,
    TopicState,
    Verdict,
    runs_of,
)

_MESSAGE = 900_000
"""How many bytes of a part a message has: a little less than brokers take by default."""

_GIVE_BACK = 64
"""How many messages are to be given back before it is worth a request."""

_NAMES_AT_ONCE = 5_000


@dataclass(frozen=True)
class _Held:
    """What a writer knows of the log that it has taken over."""

    mark: str = ""
    newest: int | None = None


class KafkaStore(LogStore):
    """An epoch log in Kafka; safe for several processes and for kill -9 of any of them.

    Whether it survives the loss of a broker is a matter of how many copies its topics have.
    """

    def __init__(self, url: str) -> None:
        self._location = parse(url)
        if not self._location.path:
            raise PipelineError(f"{self.shown}: a log needs a name behind the host: {self.shown}/name")
        self.url = self._location.url
        self._held: dict[Token, _Held] = {}
        self._given_back: dict[int, int] = {}

    @property
    def shown(self) -> str:
        return self._location.shown

    @property
    def _log(self) -> Replica:
        return replica(self._location)

    # -- documents

    def get(self, name: str) -> bytes | None:
        return self._log.ask(lambda state: state.documents.get(name))

    def put(self, name: str, data: bytes, *, durable: bool = True) -> None:
        self._log.tell("put", {"name": name}, data)

    def create(self, name: str, data: bytes) -> bool:
        return self._log.change("create", {"name": name}, data).word != EXISTS

    def delete(self, name: str) -> None:
        self._log.tell("delete", {"name": name})

    def names(self, prefix: str) -> list[str]:
        return self._log.ask(lambda state: sorted(name for name in state.documents if name.startswith(prefix)))

    # -- parts

    def write_part(self, name: str, write: Callable[[BinaryIO], Written]) -> Written:
        content = BytesIO()
        written = write(content)
        log = self._log
        partition = crc32(f"{name}{uuid.uuid4().hex}".encode()) % log.partitions()
        attempt = log.tell("begin", {"name": name, "partition": partition})
        try:
            offsets = self._send(content.getbuffer(), partition, attempt)
            size = content.getbuffer().nbytes
            log.tell("end", {"name": name, "attempt": attempt, "runs": runs_of(offsets), "bytes": size})
        except BaseException:
            with suppress(BackendUnavailable):
                log.tell("abandon", {"name": name, "attempt": attempt})
            raise
        return written

    def _send(self, data: memoryview, partition: int, attempt: str) -> list[int]:
        log, key = self._log, attempt.encode()
        cuts = range(0, data.nbytes, _MESSAGE)
        try:
            sent = [log.brokers.send(log.data, partition, bytes(data[at : at + _MESSAGE]), key) for at in cuts]
            return log.brokers.await_all(sent)
        except MissingTopic as missing:
            raise LogCorrupt(f"{self.shown}: the topic {log.data} is gone. Start the pipeline again") from missing

    def read_part(self, name: str) -> pa.Buffer | None:
        placed = self._log.ask(lambda state: state.parts.get(name))
        if placed is None or placed.runs is None:
            return None
        data = b"".join(self._fetch(placed))
        return pa.py_buffer(data) if len(data) == placed.bytes else None

    def _fetch(self, placed: Placed) -> list[bytes]:
        if not placed.runs:
            return []
        wanted = {offset for first, count in placed.runs for offset in range(first, first + count)}
        log, key = self._log, placed.attempt.encode()
        try:
            found = log.brokers.read(log.data, placed.partition, min(wanted), max(wanted))
        except (MissingRecords, MissingTopic):
            return []
        return [m.value() for m in found if m.offset() in wanted and m.key() == key]

    def part_names(self, prefix: str = "") -> list[str]:
        return self._log.ask(lambda state: sorted(name for name in state.parts if name.startswith(prefix)))

    def remove_parts(self, names: Iterable[str]) -> None:
        gone = list(names)
        for at in range(0, len(gone), _NAMES_AT_ONCE):
            self._log.change("remove", {"names": gone[at : at + _NAMES_AT_ONCE]})
        if gone:
            self._give_back()

    def collect_parts(self, token: Token, names: Iterable[str]) -> None:
        gone = list(names)
        for at in range(0, len(gone), _NAMES_AT_ONCE):
            self._step("collect", token, {"names": gone[at : at + _NAMES_AT_ONCE]})
        if gone:
            self._give_back()

    def _give_back(self) -> None:
        """Have deleted what no part needs, once it is worth it. Data of dead attempts goes with it."""
        needed = self._log.ask(TopicState.needed)
        more = sum(offset - self._given_back.get(partition, 0) for partition, offset in needed.items())
        if more >= _GIVE_BACK:
            self._log.give_back({partition: offset for partition, offset in needed.items() if offset})
            self._given_back = needed

    # -- entries

    def take_over(self, owner: str) -> Token:
        token = self._next_token(owner)
        while token in self._held:  # brokers that have lost take-overs: an older writer would pass for this one
            token = self._next_token(owner)
        newest, mark = self._log.ask(lambda state: (state.newest, state.mark if state.token == token else "gone"))
        self._held[token] = _Held(mark, newest[1] if newest else None)
        return token

    def _next_token(self, owner: str) -> Token:
        return Token(int(self._log.change("take", {"owner": owner}).detail))

    def holder(self) -> tuple[Token, str] | None:
        token, owner = self._log.ask(lambda state: (state.token, state.owner))
        return (Token(token), owner) if token else None

    def ranges(self) -> list[EpochRange]:
        return [_range(covers) for covers in self._log.ask(lambda state: state.covers)]

    def manifest(self, covers: EpochRange) -> bytes | None:
        return self._log.ask(lambda state: state.entries.get((covers.first, covers.last)))

    def publish(self, token: Token, covers: EpochRange, manifest: bytes, parts: Sequence[str] = ()) -> None:
        fields = {"covers": [covers.first, covers.last], "parts": list(parts)}
        verdict = self._step("publish", token, fields, manifest)
        if verdict.word == GONE:
            raise part_gone(self.shown, verdict.detail, covers)
        if verdict.word == EXISTS:
            self._check_same(covers, manifest)
        self._knows(token, covers.last)

    def _check_same(self, covers: EpochRange, manifest: bytes) -> None:
        """See that what was published by an attempt that got no answer names the same parts."""
        there = self.manifest(covers)
        where = f"{self.shown}: the manifest of epoch {covers}"
        if there is None or Manifest.decode(there, where).parts != Manifest.decode(manifest, where).parts:
            raise BackendUnavailable(
                f"{self.shown}: epoch {covers} was published by an attempt that got no answer, from other parts. "
                "Nothing was changed; take the log over and look what it has"
            )

    def unpublish(self, token: Token, ranges: Iterable[EpochRange], *, finished: bool = False) -> bool:
        gone = [[covers.first, covers.last] for covers in ranges]
        verdict = self._step("unpublish", token, {"ranges": gone, "finished": finished})
        newest = self._log.ask(lambda state: state.newest)
        self._knows(token, newest[1] if newest else None)
        return verdict.word != NEEDED

    # -- steps of a writer

    def _step(self, op: str, token: Token, fields: dict[str, Any], payload: bytes = b"") -> Verdict:
        """Let the writer with ``token`` change the entries.

        Raises:
            Fenced: a newer writer has taken over.
            LogCorrupt: the brokers have lost what this writer has written.
        """
        held = self._held.get(token, _Held())
        who = {"token": token, "mark": held.mark, "newest": held.newest}
        try:
            verdict = self._log.change(op, {**who, **fields}, payload, again=False)
        except BackendUnavailable:
            self._knows(token, None)  # it may have happened, and then entries are gone
            raise
        if verdict.word == FENCED:
            raise fenced(self.shown, verdict.detail)
        if verdict.word == LOST:
            raise self._lost(held.newest, verdict.detail)
        return verdict

    def _knows(self, token: Token, newest: int | None) -> None:
        self._held[token] = _Held(self._held.get(token, _Held()).mark, newest)

    def _lost(self, known: int | None, left: str) -> LogCorrupt:
        had = "this run had taken it over" if known is None else f"its newest entry was that of epoch {known}"
        has = f"that of epoch {left.rpartition('-')[2]}" if left else "none"
        return LogCorrupt(
            f"{self.shown}: the brokers have lost data of this log: {had}, and now it is {has}. They came back "
            "empty or with older data; nothing was published. Start the pipeline again: it goes back to the "
            "newest epoch that is safe"
        )


def _range(covers: tuple[int, int]) -> EpochRange:
    return EpochRange(Epoch(covers[0]), Epoch(covers[1]))
