"""What a log in Kafka is: the state that its control records give, read in their order. Pure.

Theory of operation. Every change of a log is one record in a topic with a single partition. Whoever reads the
records in their order, each with the same rules, arrives at the same state and at the same verdict about every
record; so the place of a record in that order decides, not the moment at which somebody sent it:

* of several that create a document the first does;
* a writer takes over by raising the token, and what older writers send from there on is void;
* entries that all consumers are said to have finished go only if every cursor is past them at this place;
* records of one client are numbered, and one whose number is not above the last is void: it was sent twice, or it
  arrives after the client has given it up and gone on.

A part is begun before its data is sent and ended afterwards, with the exact offsets of its data. Between the two
nobody knows these offsets, but they lie behind all that were known when it began: that bound keeps its data safe
from those who give back space (`needed`). A begun part that is removed stays removed when its end arrives.

A snapshot is the state as records of its own. It says behind which offset it was taken, and is void unless it
stands right there. After a gap (old records were deleted) the state is unknown until a snapshot was read whole, so
records before a snapshot may go at any time, all of them or some, and may come back.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tidelock.log.cursor import all_past
from tidelock.log.documents import CURSORS

Covers = tuple[int, int]
"""The first and the last epoch of an entry."""

DONE, VOID, EXISTS, FENCED = "done", "void", "exists", "fenced"
LOST, NEEDED, GONE = "lost", "needed", "gone"

_CLIENTS = 1000
"""So many clients' numbers are remembered: those that have written last."""

_PIECE = 800_000
"""How many bytes a piece of a snapshot has: less than a message may have by default."""


@dataclass(frozen=True)
class TopicRecord:
    """One change, as it stands in the control topic."""

    client: str
    number: int
    op: str
    fields: Mapping[str, Any]
    payload: bytes = b""

    @property
    def attempt(self) -> str:
        """What nobody else is called."""
        return f"{self.client}:{self.number}"

    def encode(self) -> bytes:
        """The bytes that :meth:`decode` reads.

        >>> TopicRecord.decode(TopicRecord("me", 7, "put", {"name": "x"}, b"data").encode()).payload
        b'data'
        """
        head = {"client": self.client, "number": self.number, "op": self.op, **self.fields}
        return json.dumps(head, separators=(",", ":")).encode() + b"\n" + self.payload

    @classmethod
    def decode(cls, data: bytes) -> TopicRecord:
        """Read a record.

        Raises:
            ValueError: it is none.
        """
        head, newline, payload = data.partition(b"\n")
        fields = json.loads(head)
        if not newline or not isinstance(fields, dict):
            raise ValueError("no control record")
        try:
            return cls(fields.pop("client"), fields.pop("number"), fields.pop("op"), fields, payload)
        except KeyError as missing:
            raise ValueError(f"a control record without {missing}") from missing


@dataclass(frozen=True)
class Verdict:
    """What became of a record: the word, and who or what stands against it."""

    word: str
    detail: str = ""


@dataclass(frozen=True)
class Placed:
    """A part: begun, and with ``runs`` of offsets (first and count) once it has ended."""

    attempt: str
    partition: int
    bound: int
    runs: tuple[tuple[int, int], ...] | None = None
    bytes: int = 0

    @property
    def first(self) -> int:
        """No data of the part is before this offset."""
        return self.bound if not self.runs else min(first for first, _ in self.runs)


@dataclass
class TopicState:
    """The state behind the records up to ``next``, which is the offset of the record to come."""

    documents: dict[str, bytes] = field(default_factory=dict)
    token: int = 0
    mark: str = ""
    owner: str = ""
    entries: dict[Covers, bytes] = field(default_factory=dict)
    parts: dict[str, Placed] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)
    clients: dict[str, int] = field(default_factory=dict)
    next: int = 0
    known: bool = True
    since: int = 0
    """How many records stand behind the newest snapshot."""
    _pieces: list[bytes] = field(default_factory=list, compare=False)

    @property
    def newest(self) -> Covers | None:
        """What the newest entry covers."""
        return max(self.entries, key=lambda covers: covers[1], default=None)

    @property
    def covers(self) -> list[Covers]:
        """What all entries cover, in order."""
        return sorted(self.entries, key=lambda covers: covers[1])

    def needed(self) -> dict[int, int]:
        """For every partition with data: the lowest offset that is still needed, now or by a part under way."""
        floors = dict(self.ends)
        for part in self.parts.values():
            if part.runs != ():
                floors[part.partition] = min(floors.get(part.partition, part.first), part.first)
        return floors

    def apply(self, offset: int, record: TopicRecord) -> Verdict:
        """Read the record at ``offset``; offsets that were read before change nothing."""
        if offset < self.next:
            return Verdict(VOID)
        if offset > self.next:
            self._forget()
        self.next = offset + 1
        if record.op == "snapshot":
            return self._piece(offset, record)
        self.since += 1
        if not self.known or record.number <= self.clients.get(record.client, -1):
            return Verdict(VOID)
        self._remember(record)
        return _RULES[record.op](self, record) if record.op in _RULES else Verdict(VOID)

    def snapshot(self) -> list[TopicRecord]:
        """The records that are a snapshot of this state, if they follow it directly."""
        data = json.dumps(self._dump(), separators=(",", ":")).encode()
        pieces = [data[at : at + _PIECE] for at in range(0, len(data), _PIECE)]
        about = {"after": self.next - 1, "pieces": len(pieces)}
        return [TopicRecord("", n, "snapshot", {**about, "piece": n}, piece) for n, piece in enumerate(pieces)]

    # -- what is remembered

    def _remember(self, record: TopicRecord) -> None:
        self.clients.pop(record.client, None)
        self.clients[record.client] = record.number
        if len(self.clients) > _CLIENTS:
            del self.clients[next(iter(self.clients))]

    def _forget(self) -> None:
        self.__init__(known=False, next=self.next)  # type: ignore[misc]

    # -- snapshots

    def _piece(self, offset: int, record: TopicRecord) -> Verdict:
        number = record.fields["piece"]
        if offset != record.fields["after"] + 1 + number:
            self.since += 1
            return Verdict(VOID)
        if number == 0:
            self._pieces = []
        if number != len(self._pieces):
            return Verdict(VOID)
        self._pieces.append(record.payload)
        if number + 1 == record.fields["pieces"]:
            if not self.known:
                self._load(json.loads(b"".join(self._pieces)))
            self._pieces, self.since = [], 0
        return Verdict(DONE)

    def _dump(self) -> dict[str, Any]:
        return {
            "documents": {name: _text(data) for name, data in self.documents.items()},
            "writer": [self.token, self.mark, self.owner],
            "entries": [[*covers, _text(data)] for covers, data in self.entries.items()],
            "parts": [[name, p.attempt, p.partition, p.bound, p.runs, p.bytes] for name, p in self.parts.items()],
            "ends": list(self.ends.items()),
            "clients": list(self.clients.items()),
        }

    def _load(self, dumped: dict[str, Any]) -> None:
        self.documents = {name: _data(text) for name, text in dumped["documents"].items()}
        self.token, self.mark, self.owner = dumped["writer"]
        self.entries = {(first, last): _data(text) for first, last, text in dumped["entries"]}
        self.parts = {
            name: Placed(attempt, partition, bound, _runs(runs), size)
            for name, attempt, partition, bound, runs, size in dumped["parts"]
        }
        self.ends = dict(dumped["ends"])
        self.clients = dict(dumped["clients"])
        self.known = True

    # -- the rules, one per kind of record

    def _put(self, record: TopicRecord) -> Verdict:
        self.documents[record.fields["name"]] = record.payload
        return Verdict(DONE)

    def _create(self, record: TopicRecord) -> Verdict:
        if record.fields["name"] in self.documents:
            return Verdict(EXISTS)
        return self._put(record)

    def _delete(self, record: TopicRecord) -> Verdict:
        self.documents.pop(record.fields["name"], None)
        return Verdict(DONE)

    def _begin(self, record: TopicRecord) -> Verdict:
        name, partition = record.fields["name"], record.fields["partition"]
        if name in self.parts and self.parts[name].runs is not None:
            return Verdict(EXISTS)
        self.parts[name] = Placed(record.attempt, partition, self.ends.get(partition, 0))
        return Verdict(DONE)

    def _end(self, record: TopicRecord) -> Verdict:
        name, runs = record.fields["name"], _runs(record.fields["runs"]) or ()
        begun = self.parts.get(name)
        if begun is None or begun.attempt != record.fields["attempt"] or begun.runs is not None:
            return Verdict(VOID)
        self.parts[name] = Placed(begun.attempt, begun.partition, begun.bound, runs, record.fields["bytes"])
        end = max((first + count for first, count in runs), default=0)
        self.ends[begun.partition] = max(self.ends.get(begun.partition, 0), end)
        return Verdict(DONE)

    def _abandon(self, record: TopicRecord) -> Verdict:
        found = self.parts.get(record.fields["name"])
        if found is None or found.attempt != record.fields["attempt"]:
            return Verdict(VOID)
        del self.parts[record.fields["name"]]
        return Verdict(DONE)

    def _remove(self, record: TopicRecord) -> Verdict:
        for name in record.fields["names"]:
            self.parts.pop(name, None)
        return Verdict(DONE)

    def _collect(self, record: TopicRecord) -> Verdict:
        """Remove parts as the writer that holds the log; older releases do not know this, and keep them."""
        return self._against(record) or self._remove(record)

    def _take(self, record: TopicRecord) -> Verdict:
        self.token, self.mark, self.owner = self.token + 1, record.attempt, record.fields["owner"]
        return Verdict(DONE, str(self.token))

    def _publish(self, record: TopicRecord) -> Verdict:
        first, last = record.fields["covers"]
        against = self._against(record)
        if against is not None:
            return against
        if (first, last) in self.entries:
            return Verdict(EXISTS)
        gone = (name for name in record.fields.get("parts", ()) if not self._is_whole(name))
        if (name := next(gone, None)) is not None:
            return Verdict(GONE, name)
        self.entries[first, last] = record.payload
        return Verdict(DONE)

    def _is_whole(self, part: str) -> bool:
        return part in self.parts and self.parts[part].runs is not None

    def _unpublish(self, record: TopicRecord) -> Verdict:
        against = self._against(record)
        if against is not None:
            return against
        ranges = record.fields["ranges"]
        if record.fields.get("finished") and ranges and not all_past(self._cursors(), max(r[1] for r in ranges)):
            return Verdict(NEEDED)
        for first, last in ranges:
            self.entries.pop((first, last), None)
        return Verdict(DONE)

    def _cursors(self) -> Iterator[bytes]:
        return (data for name, data in self.documents.items() if name.startswith(CURSORS))

    def _against(self, record: TopicRecord) -> Verdict | None:
        """What forbids the writer of ``record`` to change entries, if anything does.

        A token above ours was given by a log that is not there any more, as was an entry that we have not.
        """
        token, mark, known = record.fields["token"], record.fields["mark"], record.fields["newest"]
        last = self.newest[1] if self.newest else -1
        if token > self.token:
            return Verdict(LOST, _member(self.newest))
        if token < self.token or (mark and mark != self.mark):
            return Verdict(FENCED, self.owner)
        if known is not None and last < known:
            return Verdict(LOST, _member(self.newest))
        return None


_RULES = {
    "put": TopicState._put,
    "create": TopicState._create,
    "delete": TopicState._delete,
    "begin": TopicState._begin,
    "end": TopicState._end,
    "abandon": TopicState._abandon,
    "remove": TopicState._remove,
    "collect": TopicState._collect,
    "take": TopicState._take,
    "publish": TopicState._publish,
    "unpublish": TopicState._unpublish,
}


def runs_of(offsets: Iterable[int]) -> list[tuple[int, int]]:
    """Offsets as runs: the first of each, and how many follow each other.

    >>> runs_of([4, 5, 6, 9])
    [(4, 3), (9, 1)]
    """
    runs: list[tuple[int, int]] = []
    for offset in offsets:
        if runs and sum(runs[-1]) == offset:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((offset, 1))
    return runs


def _runs(runs: Iterable[Iterable[int]] | None) -> tuple[tuple[int, int], ...] | None:
    return None if runs is None else tuple((first, count) for first, count in runs)


def _member(covers: Covers | None) -> str:
    return "" if covers is None else f"{covers[0]}-{covers[1]}"


def _text(data: bytes) -> str:
    return data.decode("latin-1")  # every byte is a character there


def _data(text: str) -> bytes:
    return text.encode("latin-1")
