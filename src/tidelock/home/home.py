"""The home of a job: the directory in which everything is that a run leaves for the next one.

pipeline.json              what runs here: the pipeline's shape, segments, plan and fingerprints (sealed)
lock                       held by the process that runs it
status.json                how it is doing, rewritten all the time
events.jsonl               what has happened, one line each
planned.json               the attributes and the budget that its plan was made from, if it was
request.json               what somebody asks the running process to do
draining                   is there while nothing more comes from the sources
following.json             how the subjects that it follows are to be read now
alignment.json             with which of them it is aligned
logs/<node>/               epoch logs, unless they are kept elsewhere
checkpoints/<segment>/     Spark's checkpoints
out/<sink>/                files of sinks that were given no other place
dead/<segment>.<input>/    epochs that were set aside
logs.json                  the identities of its logs, and to which epochs they were put back
replay/<segment>.json      which batches a segment does again, if it was rolled back
replanning/                a change of the plan that is under way
snapshots/<operator>/      snapshots of state that is in a cache
identity                   the name of this home among all homes, for what it keeps elsewhere
backup.json                how far the copy is, if there is one
copying                    held by the process that copies it
ancestry.json              whose place it has taken, if it was restored
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from tidelock.cache.store import open_cells
from tidelock.credentials import found, taken
from tidelock.epochs import Epoch
from tidelock.errors import PipelineError
from tidelock.home.holding import held, is_held
from tidelock.home.log_places import LogPlaces, LogsLike
from tidelock.log.sealed import seal, unseal
from tidelock.placing import add_file, put_file
from tidelock.recovery import Link, Shape
from tidelock.stored_names import plain_name
from tidelock.urls import directory_url

Parsed = TypeVar("Parsed")


@dataclass(frozen=True)
class SegmentRecord:
    """A segment as a home remembers it."""

    name: str
    operators: tuple[str, ...]
    inputs: tuple[tuple[str, int], ...]
    """The logs that it reads, by the names of their nodes, and their lags."""
    log: str | None
    """The URL of the log that it writes; None if it ends in a sink."""
    cached: str | None = None
    """The operator in it that keeps its state in a cache, if there is one."""


@dataclass(frozen=True)
class Record:
    """What a home remembers of its pipeline: enough to look at it, copy it and restore it without its code."""

    pipeline: str
    signature: Mapping[str, Any]
    plan: Mapping[str, Any]
    segments: tuple[SegmentRecord, ...]
    subjects: Mapping[str, str]
    """The public names of logs, with their URLs."""
    cache: str | None = None
    """Where the state of operators is cached, if it is."""
    coordinator: str | None = None
    """Where the shared tree is through which its subjects are found, if it was said."""
    prints: Mapping[str, Any] | None = None
    """The fingerprints of its nodes; None if an early release has run it last."""

    def segment(self, name: str) -> SegmentRecord:
        """The segment of that name."""
        return next(segment for segment in self.segments if segment.name == name)

    def shape(self) -> Shape:
        """Who reads whose log, as the recovery machine wants it."""
        return {s.name: tuple(Link(log, lag) for log, lag in s.inputs) for s in self.segments}

    def readers(self, log: str) -> tuple[str, ...]:
        """The segments that read the log of a node."""
        return tuple(s.name for s in self.segments if log in dict(s.inputs))

    def reader_positions(self, log: str, versions: Mapping[str, Epoch]) -> dict[str, Epoch]:
        """Where the readers of a node's log are at these versions: each at the slowest of its readings."""
        positions: dict[str, Epoch] = {}
        for reader in self.segments:
            lags = [lag for read, lag in reader.inputs if read == log]
            if lags:
                positions[reader.name] = Link(log, max(lags)).position(versions[reader.name])
        return positions

    def encode(self) -> bytes:
        """The bytes that `decode` reads."""
        segments = [
            {"name": s.name, "operators": s.operators, "inputs": s.inputs, "log": s.log, "cached": s.cached}
            for s in self.segments
        ]
        return seal(
            {
                "pipeline": self.pipeline,
                "signature": self.signature,
                "plan": self.plan,
                "segments": segments,
                "subjects": self.subjects,
                "cache": self.cache,
                "coordinator": self.coordinator,
                "fingerprints": self.prints,
            }
        )

    @classmethod
    def decode(cls, data: bytes, where: str) -> Record:
        """Read a record.

        Raises:
            LogCorrupt: the bytes are torn or damaged.
            UnsupportedFormat: a newer release wrote them.
        """
        return unseal(data, where, cls._from_fields)

    @classmethod
    def _from_fields(cls, fields: dict[str, Any]) -> Record:
        segments = tuple(
            SegmentRecord(
                plain_name(s["name"]),
                tuple(plain_name(operator) for operator in s["operators"]),
                tuple((plain_name(log), lag) for log, lag in s["inputs"]),
                _found(s["log"]),
                None if s.get("cached") is None else plain_name(s["cached"]),
            )
            for s in fields["segments"]
        )
        return cls(
            fields["pipeline"],
            fields["signature"],
            fields["plan"],
            segments,
            {subject: found(url) for subject, url in fields["subjects"].items()},
            _found(fields.get("cache")),
            _found(fields.get("coordinator")),
            fields.get("fingerprints"),
        )


def _found(url: str | None) -> str | None:
    """A place in a record; version 0.1.0 wrote down the credentials with it."""
    return None if url is None else found(url)


class Home:
    """A home directory; it is made when something is first put into it.

    Thread-safe: nothing of it changes but what is in the directory, and documents appear there whole.
    """

    def __init__(
        self,
        root: str | Path,
        logs: LogsLike = None,
        cache: str | None = None,
        coordinator: str | None = None,
    ) -> None:
        self.root = Path(root).absolute()
        self.places = LogPlaces.of(logs, directory_url(self.root / "logs"))
        self.cache = taken(cache) if cache else cache
        self.coordinator = taken(coordinator) if coordinator else coordinator

    def as_recorded(self) -> Home:
        """This home with its logs where an earlier run put them, unless another place was asked for."""
        record = self.record()
        if record is None:
            return self
        coordinator = self.coordinator or record.coordinator
        same = Home(self.root, cache=self.cache or record.cache, coordinator=coordinator)
        same.places = self.places.as_recorded({s.name: s.log for s in record.segments if s.log})
        return same

    # -- where things are

    def log(self, node: str) -> str:
        """The URL of a node's log."""
        return self.places.url(node)

    def state(self, operator: str) -> str:
        """The URL of the cached state of an operator.

        Raises:
            PipelineError: nobody said where that is kept.
        """
        if self.cache is None:
            raise PipelineError(
                f"{operator} keeps its state in a cache: say where that is, with --cache "
                "redis://host:6379/0/name or, in Python, cache=..."
            )
        return open_cells(self.cache).under("state").under(operator).url

    def snapshots(self, operator: str) -> str:
        """The URL of the log that keeps the snapshots of an operator's cached state."""
        return directory_url(self.root / "snapshots" / operator)

    def identity(self) -> str:
        """What tells this home from all others; made when it is first asked for, one for all who ask."""
        file = self.root / "identity"
        if not file.exists():
            add_file(file, uuid.uuid4().hex.encode())
        return file.read_text(encoding="ascii")

    def checkpoint(self, segment: str) -> str:
        """The checkpoint directory of a segment."""
        return str(self.root / "checkpoints" / segment)

    def out(self, sink: str) -> str:
        """Where a file sink writes that was given no other place."""
        return str(self.root / "out" / sink)

    def replay(self, segment: str) -> str:
        """The document that says which batches a segment does again."""
        return str(self.root / "replay" / f"{segment}.json")

    def dead(self, segment: str, log: str) -> str:
        """The URL of the log that keeps what was set aside for a segment."""
        return self.letters(f"{segment}.{log}")

    def letters(self, folder: str) -> str:
        """The URL of the log of dead letters in a folder of that name."""
        return directory_url(self.root / "dead" / folder)

    @property
    def instruction(self) -> str:
        """The file that says how followed subjects are read."""
        return str(self.root / "following.json")

    @property
    def draining(self) -> str:
        """The file that is there while nothing more comes from the sources."""
        return str(self.root / "draining")

    def drain(self, now: bool) -> None:
        """Tell those who wait for several epochs that no more are going to come; or that they are."""
        if now:
            Path(self.draining).touch()
        else:
            Path(self.draining).unlink(missing_ok=True)

    # -- documents

    def record(self) -> Record | None:
        """What runs here; None if nothing has run yet."""
        data = self._read("pipeline.json")
        return None if data is None else Record.decode(data, f"{self.root}/pipeline.json")

    def known(self) -> Record:
        """What runs here.

        Raises:
            PipelineError: nothing has run here.
        """
        record = self.record()
        if record is None:
            raise PipelineError(
                f"{self.root} is not the home of a pipeline: give the one that `tidelock run --home` was given"
            )
        return record

    def remember(self, record: Record) -> None:
        """Write down what runs here. Durable, and only for the eyes of its owner; it holds no credentials."""
        self.identity()  # from the beginning: whoever puts back an older copy of the home has the same one
        put_file(self.root / "pipeline.json", record.encode(), durable=True, mode=0o600)

    def sealed_document(self, name: str, parse: Callable[[dict[str, Any]], Parsed]) -> Parsed | None:
        """What ``parse`` makes of a document that was written with `seal_document`; None if there is none.

        Raises:
            LogCorrupt: it is damaged.
        """
        data = self._read(f"{name}.json")
        return None if data is None else unseal(data, f"{self.root}/{name}.json", parse)

    def seal_document(self, name: str, fields: Mapping[str, Any]) -> None:
        """Replace a document that has to be right; atomic and durable."""
        put_file(self.root / f"{name}.json", seal(fields), durable=True)

    def document(self, name: str) -> dict[str, Any] | None:
        """A small document of the running process: ``status``, ``request``, ``backup``.

        None if there is none that can be read: it is not durable, so a loss of power may leave half of it.
        """
        return _parsed(self._read(f"{name}.json") or b"")

    def put_document(self, name: str, fields: Mapping[str, Any]) -> None:
        """Replace a small document; atomic, not durable."""
        put_file(self.root / f"{name}.json", json.dumps(fields).encode(), durable=False)

    def drop_document(self, name: str) -> None:
        """Remove a small document, if it is there."""
        (self.root / f"{name}.json").unlink(missing_ok=True)

    def add_event(self, fields: Mapping[str, Any]) -> None:
        """Add a line to the log of events, on a line of its own whatever was left unfinished before it.

        Raises:
            OSError: it cannot be written; half of it may be there, which nobody sees.
        """
        self.root.mkdir(parents=True, exist_ok=True)
        with (self.root / "events.jsonl").open("ab+", buffering=0) as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - 1))
            unfinished = file.read(1) not in (b"", b"\n")
            line = b"\n" * unfinished + json.dumps(fields).encode() + b"\n"
            while line:  # what does not fit is told by the second write
                line = line[file.write(line) :]

    def events(self) -> list[dict[str, Any]]:
        """What has happened in all runs, oldest first; lines that were not written whole are left out."""
        data = self._read("events.jsonl") or b""
        whole = data[: data.rfind(b"\n") + 1]
        return [event for line in whole.split(b"\n") if (event := _parsed(line)) is not None]

    # -- one process at a time

    def held(self) -> AbstractContextManager[None]:
        """Hold the home for this process.

        Raises:
            PipelineError: another process holds it, when it is entered.
        """
        return held(self.root)

    def is_held(self) -> bool:
        """Whether a process runs this home now; asking takes nothing from anybody."""
        return is_held(self.root)

    def _read(self, name: str) -> bytes | None:
        try:
            return (self.root / name).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None


def _parsed(data: bytes) -> dict[str, Any] | None:
    """The document in ``data``; None if it is not whole."""
    try:
        found = json.loads(data)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
