"""Epoch logs in memory whose user is killed between any two changes that it makes. They have no rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tidelock.epochs import BEFORE_FIRST, EpochRange
from tidelock.log import EpochLog, Retention
from tidelock.log.cursor import all_past
from tidelock.log.documents import CURSORS, HEADER
from tidelock.log.sealed import seal
from tidelock.log.store import LogStore, Token, fenced


class Killed(Exception):
    """The process ends here."""


class MortalStore(LogStore):
    """Documents and manifests.

    ``changes_left``: so many changes happen; the next one is not made any more, because the process is killed.
    ``before_drop`` happens, once, right before entries go.
    """

    def __init__(self) -> None:
        self.url = "memory:log"
        self.documents: dict[str, bytes] = {}
        self.manifests: dict[EpochRange, bytes] = {}
        self.changes_left: int | None = None
        self.before_drop: Callable[[], None] | None = None
        self._held: tuple[Token, str] | None = None

    def _change(self) -> None:
        if self.changes_left == 0:
            raise Killed
        if self.changes_left is not None:
            self.changes_left -= 1

    # -- documents

    def get(self, name: str) -> bytes | None:
        return self.documents.get(name)

    def put(self, name: str, data: bytes, *, durable: bool = True) -> None:
        self._change()
        self.documents[name] = data

    def create(self, name: str, data: bytes) -> bool:
        if name in self.documents:
            return False
        self.put(name, data)
        return True

    def delete(self, name: str) -> None:
        if name in self.documents:
            self._change()
            del self.documents[name]

    def names(self, prefix: str) -> list[str]:
        return sorted(name for name in self.documents if name.startswith(prefix))

    # -- rows, of which there are none

    def _none(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError("there are no rows in memory")

    write_part = read_part = _none

    def part_names(self, prefix: str = "") -> list[str]:
        return []

    def remove_parts(self, names: Iterable[str]) -> None:
        assert not list(names), "there are no rows in memory"

    def collect_parts(self, token: Token, names: Iterable[str]) -> None:
        self.remove_parts(names)

    # -- entries

    def take_over(self, owner: str) -> Token:
        self._change()
        token = Token(self._held[0] + 1 if self._held else 1)
        self._held = token, owner
        return token

    def holder(self) -> tuple[Token, str] | None:
        return self._held

    def ranges(self) -> list[EpochRange]:
        return sorted(self.manifests)

    def manifest(self, covers: EpochRange) -> bytes | None:
        return self.manifests.get(covers)

    def publish(self, token: Token, covers: EpochRange, manifest: bytes, parts: Sequence[str] = ()) -> None:
        self._check(token)
        self._change()
        self.manifests[covers] = manifest

    def unpublish(self, token: Token, ranges: Iterable[EpochRange], *, finished: bool = False) -> bool:
        meanwhile, self.before_drop = self.before_drop, None
        if meanwhile is not None:
            meanwhile()
        self._check(token)
        gone = list(ranges)
        cursors = [self.documents[name] for name in self.names(CURSORS)]
        if finished and not all_past(cursors, max((covers.last for covers in gone), default=BEFORE_FIRST)):
            return False
        for covers in gone:
            self._change()
            self.manifests.pop(covers, None)
        return True

    def _check(self, token: Token) -> None:
        if self._held is None or self._held[0] != token:
            raise fenced(self.shown, "somebody")


def mortal_log(retention: Retention) -> tuple[EpochLog, MortalStore]:
    """A new log, and its store."""
    keep = {"epochs": retention.epochs, "seconds": retention.seconds, "wait_for": sorted(retention.wait_for)}
    store = MortalStore()
    store.put(HEADER, seal({"id": "log", "name": "log", "schema": {}, "event_time": False, "retention": keep}))
    return EpochLog.kept_in(store), store
