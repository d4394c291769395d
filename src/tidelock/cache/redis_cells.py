"""Cells in Redis: one hash for each bucket of keys, and beside them who may write and how far they have come.

    <path>:header      what the state is of, as a sealed document
    <path>:fence       who may write, and which epoch
    <path>:done        the last epoch whose batch has written all its cells
    <path>:b<bucket>   the cells, by the bytes of their keys
    <path>:p<bucket>   versions that the snapshot under way still needs

A server keeps a hash of up to some hundred short fields as a list, in which it looks for a field from the front.
With a few hundred cells in every bucket that would be most of its work. So every bucket has one field more, with
no name and a long value, because of which it is kept as a table.

Crash points. A task's writes are one transaction that happens only if the fence is as it was when it read the
cells. A batch that died in the middle leaves some cells with a newer version; the next attempt takes the older
one. `done` is set when all tasks are through, on the server on which the batch has begun: a server that restarted
in between, or was replaced and is back, may have lost what earlier tasks wrote, so the batch counts as failed.

What a server loses is the end of its history (so it writes to its disk and to its replicas). So if `done` says
epoch *n*, every cell is there as it was at *n*, or one batch later.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from tidelock.cache.fence import Fence, WriteClaim, lost_state
from tidelock.cache.scripts import DROP, READ
from tidelock.cache.store import BUCKETS, Bucket, CellStore, Compute, Keys, Writes
from tidelock.cache.wire import Group, command, commands
from tidelock.epochs import BEFORE_FIRST, Epoch
from tidelock.errors import BackendUnavailable, PipelineError
from tidelock.extras import need
from tidelock.redis.location import RedisLocation, parse

if TYPE_CHECKING:
    from tidelock.redis.conversation import Conversation

Result = TypeVar("Result")

_AT_ONCE = 50_000
"""How many cells are loaded or removed with one command."""
_TOKEN_BITS = 62
_NO_KEY = b""
_AS_TABLE = (_NO_KEY, b"so long that a server keeps this hash as a table and not as a list of fields ...")
"""The field that every bucket has besides its cells; the bytes of a key are never none."""
_UNWATCH = command("UNWATCH")
_WHICH_SERVER = command("INFO", "server"), command("INFO", "replication")
_IDENTITIES = b"run_id", b"master_replid"


class RedisCells(CellStore):
    """Cells on a Redis server. Every process has its own connections."""

    def __init__(self, url: str) -> None:
        need("redis", "state in a cache")
        self._location: RedisLocation = parse(url)
        self.url = self._location.url

    def under(self, name: str) -> RedisCells:
        return RedisCells(self._location.under(name).url)

    # -- documents

    def header(self) -> bytes | None:
        found: bytes | None = self._ask(command("GET", self._key("header")))
        return found

    def create(self, header: bytes, done: Epoch) -> None:
        self._durably(command("SET", self._key("done"), done), command("SET", self._key("header"), header))

    def done(self) -> Epoch:
        found = self._ask(command("GET", self._key("done")))
        return BEFORE_FIRST if found is None else Epoch(int(found))

    def fence(self) -> Fence | None:
        found = self._ask(command("GET", self._key("fence")))
        return None if found is None else Fence.decode(found)

    def clear(self) -> None:
        buckets = [name for number in range(BUCKETS) for name in (self._bucket(number), self._saved(number))]
        self._ask_all([command("UNLINK", self._key("header")), command("UNLINK", self._key("fence"))])
        self._ask(command("UNLINK", self._key("done"), *buckets))

    # -- the driver's side

    def take_over(self, owner: str, before: Fence | None = None) -> Fence:

        def take(talk: Conversation) -> Fence:
            while True:
                (data,) = self._watched(talk)
                fresh = _displaced(data, before).taken_over(secrets.randbits(_TOKEN_BITS), owner)
                if talk.ask_if_unchanged([self._set_fence(fresh), *self._drop_saved()]) is not None:
                    self._copied(talk)
                    return fresh

        return converse(self._location, take)

    def begin(self, fence: Fence, done: Epoch) -> str:

        def begin(talk: Conversation) -> str:
            before = self._held(talk, fence.claim)
            *server, found = talk.ask(*_WHICH_SERVER, command("GET", self._key("done")))
            at = BEFORE_FIRST if found is None else int(found)
            if at not in (done, fence.begun):  # the latter: the batch had been through, and is run again
                raise self._lost(f"it is of epoch {at}, not of epoch {done}")
            saved = [] if before.pinned == fence.pinned else self._drop_saved()
            if talk.ask_if_unchanged([self._set_fence(fence), *saved]) is None:
                raise self._lost("its fence has changed while a batch began")
            return self._history(server)

        return converse(self._location, begin)

    def end(self, fence: Fence, server: str) -> None:

        def end(talk: Conversation) -> None:
            self._held(talk, fence.claim)
            if self._history(talk.ask(*_WHICH_SERVER)) != server:
                raise self._lost(f"it restarted, or was replaced, while epoch {fence.begun} was computed")
            if talk.ask_if_unchanged([command("SET", self._key("done"), fence.begun)]) is None:
                raise self._lost("its fence has changed while a batch ended")
            self._copied(talk)

        converse(self._location, end)

    # -- the tasks' side

    def held(self, claim: WriteClaim, batch: int) -> Fence:
        return self._checked(self._ask(command("GET", self._key("fence"))), claim, batch)

    def change(self, claim: WriteClaim, batch: int, keys: Keys, compute: Compute[Result]) -> Result:

        def change(talk: Conversation) -> Result:
            groups = keys.groups(self._bucket)
            data, *found = self._watched(talk, *commands("HMGET", groups, keys.fields))
            fence = self._checked(data, claim, batch)
            cells = pa.array([cell for some in found for cell in some], pa.binary())
            writes, result = compute(fence, cells)
            if writes is None:
                talk.ask(_UNWATCH)
            elif talk.ask_if_unchanged(self._writes(keys, groups, writes)) is None:
                self._checked(talk.ask(command("GET", self._key("fence")))[0], claim, batch)
                raise self._lost("its fence has changed while a task ran")
            return result

        return converse(self._location, change)

    def _writes(self, keys: Keys, groups: list[Group], writes: Writes) -> Iterator[bytes]:
        yield from commands("HSET", groups, keys.fields, writes.cells, before=_AS_TABLE)
        if len(writes.doomed):
            saved = keys.groups(self._saved, writes.doomed)
            doomed = keys.fields.take(pa.array(writes.doomed))
            yield from commands("HSET", saved, doomed, writes.saved, before=_AS_TABLE)

    # -- whole buckets

    def check_pinned(self, fence: Fence, server: str) -> None:
        data, *facts = self._ask_all([command("GET", self._key("fence")), *_WHICH_SERVER])
        now = self._checked(data, fence.claim, None)
        if now.pinned != fence.pinned or self._history(facts) != server:
            raise self._lost(f"it restarted, or was replaced, while epoch {fence.pinned} was copied")

    def bucket(self, bucket: int) -> tuple[Bucket, Bucket]:
        cells, saved = self._ask(command("EVAL", READ, 2, self._bucket(bucket), self._saved(bucket)))
        return _bucket_of(cells), _bucket_of(saved)

    def load(self, keys: Keys, cells: pa.BinaryArray) -> None:
        for first in range(0, len(cells), _AT_ONCE):
            some = Keys(keys.fields.slice(first, _AT_ONCE), keys.buckets[first : first + _AT_ONCE])
            loaded = cells.slice(first, _AT_ONCE)
            groups = some.groups(self._bucket)
            self._ask_all([*commands("HSET", groups, some.fields, loaded, before=_AS_TABLE)])

    def drop(self, bucket: int, fields: pa.BinaryArray, cells: pa.BinaryArray) -> int:
        dropped = 0
        for first in range(0, len(fields), _AT_ONCE):
            some = (column.slice(first, _AT_ONCE).to_pylist() for column in (fields, cells))
            pairs = chain.from_iterable(zip(*some, strict=True))
            dropped += self._ask(command("EVAL", DROP, 1, self._bucket(bucket), *pairs))
        return dropped

    def find(self, fields: pa.BinaryArray) -> tuple[Epoch, pa.BinaryArray]:
        wanted = [Group(self._bucket(bucket), 0, len(fields)) for bucket in range(BUCKETS) if len(fields)]
        reads = [command("GET", self._key("done")), *commands("HMGET", wanted, fields)]
        done, *found = converse(self._location, lambda talk: talk.ask_if_unchanged(reads)) or [None]
        cells = [next((cell for cell in some if cell is not None), None) for some in zip(*found, strict=True)]
        return BEFORE_FIRST if done is None else Epoch(int(done)), pa.array(cells, pa.binary())

    # -- what they share

    def _ask(self, asked: bytes) -> Any:
        return self._ask_all([asked])[0]

    def _ask_all(self, asked: Sequence[bytes]) -> list[Any]:
        return converse(self._location, lambda talk: talk.ask(*asked))

    def _durably(self, *asked: bytes) -> None:
        def ask(talk: Conversation) -> None:
            talk.ask(*asked)
            self._copied(talk)

        converse(self._location, ask)

    def _copied(self, talk: Conversation) -> None:
        from tidelock.redis.server import check_copied, copying_milliseconds

        if self._location.replicas:
            (copies,) = talk.ask(command("WAIT", self._location.replicas, copying_milliseconds(self._location)))
            check_copied(self._location, copies)

    def _watched(self, talk: Conversation, *more: bytes) -> list[Any]:
        fence = self._key("fence")
        return talk.ask(command("WATCH", fence), command("GET", fence), *more)[1:]

    def _held(self, talk: Conversation, claim: WriteClaim) -> Fence:
        (data,) = self._watched(talk)
        return self._checked(data, claim, None)

    def _checked(self, data: bytes | None, claim: WriteClaim, batch: int | None) -> Fence:
        if data is None:
            raise self._lost("it holds nothing of it any more")
        fence = Fence.decode(data)
        fence.check(self.shown, claim, batch)
        return fence

    def _history(self, facts: Sequence[bytes]) -> str:
        """Which server this is, and which of its lives: the same answer only if nothing was lost in between.

        The process alone does not tell: a primary that was replaced, became a replica of the new one and is
        primary again is the same process with other data. With every such change its data gets another
        replication id, and with every start, too. Some managed servers hide one of the two; they are told by the
        other alone.
        """
        lines = (line.partition(b":") for text in facts for line in text.splitlines())
        found = {name: value.decode() for name, _, value in lines if name in _IDENTITIES and value}
        if not found:
            raise PipelineError(
                f"{self.shown}: this server hides run_id and master_replid in its INFO, so nobody can see whether "
                "it has lost state while a batch ran: use a server that shows one of them"
            )
        return " ".join(found.get(name, "") for name in _IDENTITIES)

    def _lost(self, what: str) -> BackendUnavailable:
        return lost_state(self.shown, what)

    def _set_fence(self, fence: Fence) -> bytes:
        return command("SET", self._key("fence"), fence.encode())

    def _drop_saved(self) -> Sequence[bytes]:
        return [command("UNLINK", *(self._saved(bucket) for bucket in range(BUCKETS)))]

    def _key(self, name: str) -> str:
        return f"{self._location.path}:{name}"

    def _bucket(self, bucket: int) -> str:
        return self._key(f"b{bucket}")

    def _saved(self, bucket: int) -> str:
        return self._key(f"p{bucket}")


def _bucket_of(answer: Sequence[bytes]) -> Bucket:
    """What HGETALL answered."""
    fields, cells = list(answer[::2]), list(answer[1::2])
    if _NO_KEY in fields:
        place = fields.index(_NO_KEY)
        del fields[place], cells[place]
    return Bucket(pa.array(fields, pa.binary()), pa.array(cells, pa.binary()))


def converse(location: RedisLocation, work: Callable[[Conversation], Result]) -> Result:
    """As the function of that name in `tidelock.redis.conversation`, whose package is loaded when it is needed."""
    need("redis", "state in a cache")
    from tidelock.redis.conversation import converse as ask

    return ask(location, work)


def _displaced(data: bytes | None, before: Fence | None) -> Fence:
    """The fence that a take-over displaces; a state that was cleared, or is new, has begun nothing."""
    if data is not None:
        return Fence.decode(data)
    return Fence(0, "nobody") if before is None else replace(before, begun=BEFORE_FIRST)
