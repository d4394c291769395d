"""Epoch logs in memory, for tests that make very many: documents and manifests of entries, but no rows.

Their clock is one for all logs: it ticks with every entry.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

from tidelock.epochs import Epoch, EpochRange
from tidelock.log import EpochLog, Retention
from tidelock.log.entry import Manifest
from tidelock.log.log import Header
from tidelock.log.sealed import seal
from tidelock.log.store import LogStore

_ticks = count(1)


class MemoryStore(LogStore):
    """What readers of a log need. ``before_create`` happens right before a document is made, once."""

    def __init__(self, name: str) -> None:
        self.url = f"memory:{name}"
        self.documents: dict[str, bytes] = {}
        self.made: list[tuple[str, bytes]] = []
        self.entries: list[EpochRange] = []
        self.published_at: dict[EpochRange, float] = {}
        self.before_create: Callable[[], None] | None = None

    def get(self, name: str) -> bytes | None:
        return self.documents.get(name)

    def put(self, name: str, data: bytes, *, durable: bool = True) -> None:
        self.documents[name] = data

    def create(self, name: str, data: bytes) -> bool:
        meanwhile, self.before_create = self.before_create, None
        if meanwhile is not None:
            meanwhile()
        if name in self.documents:
            return False
        self.documents[name] = data
        self.made.append((name, data))
        return True

    def delete(self, name: str) -> None:
        self.documents.pop(name, None)

    def names(self, prefix: str) -> list[str]:
        return sorted(name for name in self.documents if name.startswith(prefix))

    def ranges(self) -> list[EpochRange]:
        return list(self.entries)

    def manifest(self, covers: EpochRange) -> bytes | None:
        if covers not in self.entries:
            return None
        log, at = self.url.removeprefix("memory:"), self.published_at[covers]
        return Manifest(log, covers, schema={}, parts=(), published_at=at).encode()

    def _none(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError("there are no rows in memory")

    write_part = read_part = part_names = remove_parts = collect_parts = _none
    take_over = holder = publish = unpublish = _none


class MemoryLog(EpochLog):
    """A log whose identity is its name; whoever has it may publish."""

    store: MemoryStore

    def __init__(self, name: str) -> None:
        store = MemoryStore(name)
        fields = {"id": name, "name": name, "schema": {}, "event_time": False}
        store.put("log", seal({**fields, "retention": {"epochs": None, "seconds": None, "wait_for": []}}))
        super().__init__(store, Header(name, name, {}, Retention(), event_time=False))

    @property
    def tail(self) -> int:
        return self.store.entries[-1].last if self.store.entries else -1

    @property
    def ends(self) -> list[int]:
        return [covers.last for covers in self.store.entries]

    def grow(self, size: int = 1) -> None:
        """Publish an entry of so many epochs."""
        covers = EpochRange.after(Epoch(self.tail), Epoch(self.tail + size))
        self.store.entries.append(covers)
        self.store.published_at[covers] = float(next(_ticks))

    def cut_tail(self, to: int) -> None:
        self.store.entries = [covers for covers in self.store.entries if covers.last <= to]

    def cut_head(self, to: int) -> None:
        """Drop what lies before; the newest entry stays."""
        self.store.entries = [c for c in self.store.entries if c.last > to] or self.store.entries[-1:]
