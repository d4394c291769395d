"""Epoch logs in the memory of a Redis server: `redis:` and `rediss:` URLs.

Keys of a log, all beginning with the path of its URL:

    <path>:documents       hash: the header, cursors and other small documents
    <path>:lease           hash: the newest writer's token, mark and owner
    <path>:entries         sorted set: what the entries cover, as `<first>-<last>`, by their last epochs
    <path>:manifests       hash: the manifests of the entries
    <path>:staged          hash: a manifest that is on its way to the replicas; readers do not look at it
    <path>:parts           sorted set: the names of all parts
    <path>:part:<name>     string: a part

Crash points. A part is listed before it is stored, so none is ever forgotten, and exists only once a manifest
names it. Manifests appear and go in scripts that check the token in the same step.

Copies. With `replicas=N` an entry is staged, and shown once N replicas have it and, because they follow the
primary in order, its parts. If the primary is lost between the two, the replica that takes its place has the entry
staged: the next step of its writer, or the next writer, shows it.

A server that comes back with older data, or none, has forgotten writers and entries. Tokens would start anew, so a
writer also has a mark that nobody else has, and tells the newest entry that it knows of: it never goes on behind
a gap.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from typing import Any, BinaryIO

import pyarrow as pa

from tidelock.epochs import Epoch, EpochRange
from tidelock.errors import BackendUnavailable, Fenced, LogCorrupt, PipelineError
from tidelock.log.store import LogStore, Token, Written, fenced, part_gone
from tidelock.log.stores import redis_scripts as scripts
from tidelock.redis.location import parse
from tidelock.redis.sending import Command, send, send_when_room
from tidelock.redis.server import share_used

_NAMES_AT_ONCE = 1_000
"""How many parts a script removes: others wait while it runs."""


@dataclass(frozen=True)
class _Held:
    """What a writer knows of the log that it has taken over."""

    mark: str = ""
    newest: str = ""


class RedisStore(LogStore):
    """An epoch log in Redis; safe for several processes and for kill -9 of any of them.

    Whether it survives the server is the server's business: replicas, an append-only file.
    """

    def __init__(self, url: str) -> None:
        self._location = parse(url)
        if not self._location.path:
            raise PipelineError(f"{self.shown}: a log needs a name behind the database: {self.shown}/name")
        self.url = self._location.url
        self._held: dict[Token, _Held] = {}

    @property
    def shown(self) -> str:
        return self._location.shown

    def share_used(self) -> float:
        return share_used(self._location)

    # -- documents

    def get(self, name: str) -> bytes | None:
        data: bytes | None = self._ask("HGET", self._key("documents"), name)
        return data

    def put(self, name: str, data: bytes, *, durable: bool = True) -> None:
        self._change(("EVAL", scripts.PUT, 1, self._key("documents"), name, data), copied=durable)

    def create(self, name: str, data: bytes) -> bool:
        return bool(self._change(("HSETNX", self._key("documents"), name, data)))

    def delete(self, name: str) -> None:
        self._change(("HDEL", self._key("documents"), name), copied=False)

    def names(self, prefix: str) -> list[str]:
        found = (_text(name) for name in self._ask("HKEYS", self._key("documents")))
        return sorted(name for name in found if name.startswith(prefix))

    # -- parts

    def write_part(self, name: str, write: Callable[[BinaryIO], Written]) -> Written:
        content = BytesIO()
        written = write(content)
        # Never replaced: whoever repeats a command that got no answer finds its own bytes.
        store = ("SET", self._part(name), content.getvalue(), "NX")
        try:
            send_when_room(self._location, [("ZADD", self._key("parts"), 0, name), store])
        except BaseException:
            with suppress(BackendUnavailable):
                self.remove_parts([name])
            raise
        return written

    def read_part(self, name: str) -> pa.Buffer | None:
        data = self._ask("GET", self._part(name))
        return None if data is None else pa.py_buffer(data)

    def part_names(self, prefix: str = "") -> list[str]:
        start, end = (f"[{prefix}", b"(" + prefix.encode() + b"\xff") if prefix else ("-", "+")
        return [_text(name) for name in self._ask("ZRANGEBYLEX", self._key("parts"), start, end)]

    def remove_parts(self, names: Iterable[str]) -> None:
        gone = list(names)
        if gone:
            commands: list[Command] = [("UNLINK", *map(self._part, gone)), ("ZREM", self._key("parts"), *gone)]
            send(self._location, commands)

    def collect_parts(self, token: Token, names: Iterable[str]) -> None:
        gone = list(names)
        for at in range(0, len(gone), _NAMES_AT_ONCE):
            self._step(scripts.COLLECT, token, self._location.path, *gone[at : at + _NAMES_AT_ONCE], copied=False)

    # -- entries

    def take_over(self, owner: str) -> Token:
        mark = uuid.uuid4().hex
        token = Token(int(self._script(scripts.TAKE_OVER, mark, owner)))
        while token in self._held:  # a server that has lost take-overs: an older writer would pass for this one
            token = Token(int(self._script(scripts.TAKE_OVER, mark, owner)))
        newest = self._script(scripts.FINISH_STAGED, mark)
        self._held[token] = _Held(mark, _text(newest))
        return token

    def holder(self) -> tuple[Token, str] | None:
        token, owner = self._ask("HMGET", self._key("lease"), "token", "owner")
        return None if token is None else (Token(int(token)), _text(owner))

    def ranges(self) -> list[EpochRange]:
        return [_range(_text(covers)) for covers in self._ask("ZRANGE", self._key("entries"), 0, -1)]

    def manifest(self, covers: EpochRange) -> bytes | None:
        data: bytes | None = self._ask("HGET", self._key("manifests"), _member(covers))
        return data

    def publish(self, token: Token, covers: EpochRange, manifest: bytes, parts: Sequence[str] = ()) -> None:
        names = [self._part(name) for name in parts]
        if self._location.replicas:
            try:
                self._step(scripts.PUBLISH, token, _member(covers), manifest, "stage", *names)
            except BackendUnavailable:
                with suppress(BackendUnavailable, Fenced, LogCorrupt):
                    self._step(scripts.UNSTAGE, token, copied=False)
                raise
        # That the replicas have it is known by now, so it does not matter when they show it.
        self._step(scripts.PUBLISH, token, _member(covers), manifest, "show", *names, copied=False)

    def unpublish(self, token: Token, ranges: Iterable[EpochRange], *, finished: bool = False) -> bool:
        gone = list(ranges)
        past = max((covers.last for covers in gone), default="") if finished else ""
        return self._step(scripts.UNPUBLISH, token, past, *map(_member, gone))

    # -- how it is asked

    def _step(self, script: str, token: Token, *arguments: Any, copied: bool = True) -> bool:
        """Let the writer with ``token`` change the entries; whether they may be changed like that now.

        Raises:
            Fenced: a newer writer has taken over.
            LogCorrupt: the server has lost what this writer has written.
            BackendUnavailable: it has lost rows that are to be published.
        """
        held = self._held.get(token, _Held())
        answer = self._script(script, token, held.mark, held.newest, *arguments, copied=copied)
        verdict, detail = map(_text, answer)
        if verdict == "fenced":
            raise fenced(self.shown, detail)
        if verdict == "lost":
            raise self._lost(held.newest, detail)
        if verdict == "gone":
            raise part_gone(self.shown, detail.removeprefix(self._part("")), _range(arguments[0]))
        self._held[token] = _Held(held.mark, detail)
        return verdict != "needed"

    def _lost(self, known: str, left: str) -> LogCorrupt:
        had = f"its newest entry was that of epoch {_range(known)}" if known else "this run had taken it over"
        has = f"that of epoch {_range(left)}" if left else "none"
        return LogCorrupt(
            f"{self.shown}: the server has lost data of this log: {had}, and now it is {has}. It came back empty "
            "or with older data; nothing was published. Start the pipeline again: it goes back to the newest "
            "epoch that is safe"
        )

    def _script(self, script: str, *arguments: Any, copied: bool = True) -> Any:
        keys = [self._key(name) for name in ("lease", "entries", "manifests", "staged", "documents")]
        return self._change(("EVAL", script, len(keys), *keys, *arguments), copied=copied)

    def _change(self, command: Command, *, copied: bool = True) -> Any:
        return send(self._location, [command], copied=copied)[0]

    def _ask(self, *command: Any) -> Any:
        return send(self._location, [command])[0]

    def _key(self, name: str) -> str:
        return f"{self._location.path}:{name}"

    def _part(self, name: str) -> str:
        return self._key(f"part:{name}")


def _member(covers: EpochRange) -> str:
    return f"{covers.first}-{covers.last}"


def _range(member: str) -> EpochRange:
    first, _, last = member.partition("-")
    return EpochRange(Epoch(int(first)), Epoch(int(last)))


def _text(data: bytes | str) -> str:
    return data.decode() if isinstance(data, bytes) else data
