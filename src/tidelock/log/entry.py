"""The manifest of an entry: what one published epoch (or run of epochs) is made of. Pure.

A manifest is a sealed document. The manifest is the entry: parts that no manifest names do not exist for a
reader. It describes itself (format version, schema, sizes,
checksums), so that a log can be read with nothing but this description and an Arrow reader.

    {"format": 1, "log": "<id>", "covers": [5, 7], "schema": {...}, "rows": 10, "bytes": 1234,
     "parts": [{"file": "...", "rows": 10, "bytes": 1234, "crc32": 123}],
     "inputs": [{"log": "<id>", "name": "words", "covers": [5, 7]}], "offsets": [...],
     "watermark": {"before": 0, "after": 1000, "columns": {"ts": 10000}} | null,
     "query": "<query id>", "batch": 7, "published_at": 1700000000.0}

A copy of an entry of another log (dead letters) says of which one it is, in a field ``copy_of``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidelock.epochs import Epoch, EpochRange
from tidelock.log.sealed import seal, unseal
from tidelock.log.window import Entry, InputRange
from tidelock.stored_names import relative_name


@dataclass(frozen=True)
class Part:
    """One Arrow IPC file of an entry; ``log`` is the URL of the log that keeps it, if that is another one."""

    file: str
    rows: int
    bytes: int
    crc32: int
    log: str | None = None

    def to_fields(self) -> dict[str, Any]:
        """The part as a manifest has it."""
        return {name: value for name, value in vars(self).items() if value is not None}


@dataclass(frozen=True)
class Watermark:
    """Event time at the end of the query that wrote an entry.

    ``before`` is the watermark, in milliseconds, under which the entry's rows were made, ``after`` the one
    that the rows of the next epoch meet. ``columns`` has the event-time columns and their delays.
    """

    before: int
    after: int
    columns: Mapping[str, int]


@dataclass(frozen=True)
class Manifest:
    """Everything there is to know about an entry, but its rows."""

    log: str
    covers: EpochRange
    schema: Mapping[str, Any]
    parts: tuple[Part, ...]
    inputs: tuple[InputRange, ...] = ()
    offsets: tuple[Mapping[str, Any], ...] = ()
    watermark: Watermark | None = None
    query: str = ""
    batch: int = 0
    published_at: float = 0.0
    copy_of: Mapping[str, Any] | None = None

    @property
    def rows(self) -> int:
        """The rows of all parts."""
        return sum(part.rows for part in self.parts)

    @property
    def size(self) -> int:
        """The bytes of all parts."""
        return sum(part.bytes for part in self.parts)

    @property
    def entry(self) -> Entry:
        """The entry as the rules of the window see it."""
        offsets = json.dumps(self.offsets, sort_keys=True)
        return Entry(self.covers, self.query, self.batch, self.inputs, offsets, self.published_at)

    @property
    def content(self) -> list[list[int]]:
        """What tells the rows from other rows: rows, bytes and checksum of every part, whatever it is called."""
        return sorted([part.rows, part.bytes, part.crc32] for part in self.parts)

    @property
    def digest(self) -> str:
        """What tells the entry from others, also from one of the same epochs that was made before or after it.

        The same work with the same rows has the same one, however often it was published.
        """
        lineage = [[i.log, i.name, *_pair(i.covers)] for i in self.inputs]
        facts = [_pair(self.covers), self.query, self.batch, lineage, self.offsets, self.content]
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()

    def encode(self) -> bytes:
        """The bytes that :meth:`decode` reads."""
        watermark = self.watermark and {
            "before": self.watermark.before,
            "after": self.watermark.after,
            "columns": dict(self.watermark.columns),
        }
        return seal(
            {
                "log": self.log,
                "covers": _pair(self.covers),
                "schema": self.schema,
                "rows": self.rows,
                "bytes": self.size,
                "parts": [part.to_fields() for part in self.parts],
                "inputs": [{"log": i.log, "name": i.name, "covers": _pair(i.covers)} for i in self.inputs],
                "offsets": self.offsets,
                "watermark": watermark,
                "query": self.query,
                "batch": self.batch,
                "published_at": self.published_at,
                **({} if self.copy_of is None else {"copy_of": self.copy_of}),
            }
        )

    @classmethod
    def decode(cls, data: bytes, where: str) -> Manifest:
        """Read a manifest; ``where`` names its log, epoch and file in errors.

        Raises:
            LogCorrupt: the bytes are torn or damaged.
            UnsupportedFormat: a newer release wrote them.
        """
        return unseal(data, where, cls._from_fields)

    @classmethod
    def _from_fields(cls, fields: dict[str, Any]) -> Manifest:
        return cls(
            log=fields["log"],
            covers=_range(fields["covers"]),
            schema=fields["schema"],
            parts=tuple(Part(**{**part, "file": relative_name(part["file"])}) for part in fields["parts"]),
            inputs=tuple(InputRange(i["log"], i["name"], _range(i["covers"])) for i in fields["inputs"]),
            offsets=tuple(fields["offsets"]),
            watermark=fields["watermark"] and Watermark(**fields["watermark"]),
            query=fields["query"],
            batch=fields["batch"],
            published_at=fields["published_at"],
            copy_of=fields.get("copy_of"),
        )


def _pair(covers: EpochRange) -> list[int]:
    return [covers.first, covers.last]


def _range(pair: list[int]) -> EpochRange:
    return EpochRange(Epoch(pair[0]), Epoch(pair[1]))
