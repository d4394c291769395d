"""Generations: a copy that follows one history of a home.

    current.json                                 which generation a restore takes (sealed)
    <generation>/home.json                       the home's record, sealed
    <generation>/segments/<segment>/files/<path>@<crc32>
    <generation>/segments/<segment>/snapshots/<number>.json
    <generation>/logs/<node>/, dead/<name>/, state/<operator>/
                                                 log.json, aside/, entries/, parts/
    <generation>/out/<sink>/epoch=<n>/, epoch=<n>.json

A home that was restored, or put back to an older epoch, makes some epochs again, perhaps with other rows in them.
Old snapshots must never meet new log entries. So a copy goes on in the same generation only if the home still has
the very batches of its newest snapshots, and the very entries that were copied beyond them; otherwise it begins a
new one. The old generation is what a restore takes until the new one is complete, and is removed then.
"""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Callable
from dataclasses import replace

from tidelock.epochs import BEFORE_FIRST, Epoch
from tidelock.errors import LogCorrupt, PipelineError
from tidelock.log.sealed import seal, unseal
from tidelock.runtime.backup_checkpoints import CheckpointCopy
from tidelock.runtime.backup_logs import LogCopy, OutputCopy
from tidelock.runtime.backup_store import BackupStore
from tidelock.runtime.home import Home, Record

_CURRENT = "current.json"
_NAME = re.compile(r"\d{8}T\d{6}-[0-9a-f]{8}")


def current_generation(store: BackupStore) -> str | None:
    """The generation that is complete, or None.

    Raises:
        LogCorrupt: the document that says so is damaged.
    """
    data = store.read(_CURRENT)
    if data is None:
        return None
    return unseal(data, f"{store.url}/{_CURRENT}", lambda fields: str(fields["generation"]))


class Generation:
    """The copies of everything that a home has, in one generation of a store."""

    def __init__(self, store: BackupStore, name: str, home: Home, record: Record) -> None:
        self.name = name
        self.store = store.under(name)
        self.record = record
        self._home = home
        self.checkpoints = {
            s.name: CheckpointCopy(self.store, s.name, home.checkpoint(s.name)) for s in record.segments
        }
        self.logs = {s.name: LogCopy(self.store, f"logs/{s.name}", s.log) for s in record.segments if s.log}
        self.states = {
            s.name: LogCopy(self.store, f"state/{s.cached}", home.snapshots(s.cached))
            for s in record.segments
            if s.cached
        }
        self.outputs = {s.name: OutputCopy(self.store, s.name, home.out(s.name)) for s in record.segments}
        self._dead: dict[str, LogCopy] = {}

    def begin(self) -> None:
        """Write down whose copy this is."""
        self.store.write("home.json", self.record.encode())

    def dead(self, segment: str) -> list[LogCopy]:
        """The copies of the logs that keep what was set aside for a segment."""
        for folder in (self._home.root / "dead").glob(f"{segment}.*"):
            if folder.name not in self._dead:
                self._dead[folder.name] = LogCopy(self.store, f"dead/{folder.name}", f"file:{folder}")
        return [copy for name, copy in self._dead.items() if name.startswith(f"{segment}.")]

    @property
    def is_empty(self) -> bool:
        """Whether no segment has a snapshot yet."""
        return not any(copy.snapshots for copy in self.checkpoints.values())

    @property
    def bytes_written(self) -> int:
        """What has been copied so far by this process."""
        return self.store.bytes_written

    def is_continued(self) -> bool:
        """Whether the home's history is the one that was copied, or goes on from it."""
        if self.store.read("home.json") != self.record.encode():
            return False
        return all(copy.is_continued() for copy in self.checkpoints.values()) and all(
            copy.is_continued(self._copied(name)) for name, copy in self.logs.items()
        )

    def has_gone_back(self) -> bool:
        """Whether the home was put back to an older epoch since the last pass."""
        return any(copy.has_gone_back() for copy in self.checkpoints.values())

    def _copied(self, segment: str) -> Epoch:
        newest = self.checkpoints[segment].newest
        return BEFORE_FIRST if newest is None else newest.epoch

    def is_related(self) -> bool:
        """Whether this is a copy of the same queries or logs, in whatever history, or has nothing to lose."""
        copies = [copy for copy in self.checkpoints.values() if copy.newest and copy.newest.files]
        if any(copy.is_related() for copy in copies) or any(log.is_related() for log in self.logs.values()):
            return True
        return not copies


def open_generation(
    store: BackupStore, home: Home, record: Record, clock: Callable[[], float] = time.time
) -> Generation:
    """The generation in which the copy of ``home`` goes on, or a new one.

    Raises:
        PipelineError: the store holds the copy of another home.
    """
    current = current_generation(store)
    for name in sorted(_generations(store), key=lambda name: name != current):
        generation = Generation(store, name, home, record)
        if generation.is_continued():
            return generation
    if current is not None and not _is_related(store, current, home, record):
        raise PipelineError(
            f"{store.url} holds the copy of another home: give an empty place to the backup of {home.root}, or "
            "remove what is there"
        )
    begun = time.strftime("%Y%m%dT%H%M%S", time.gmtime(clock()))
    generation = Generation(store, f"{begun}-{uuid.uuid4().hex[:8]}", home, record)
    generation.begin()
    return generation


def make_current(store: BackupStore, generation: Generation) -> None:
    """Let a restore take ``generation`` from now on, and remove the pipeline's older ones."""
    if current_generation(store) != generation.name:
        store.write(_CURRENT, seal({"generation": generation.name}))
    for name in _generations(store):
        if name != generation.name and _pipeline(store, name) == generation.record.pipeline:
            store.remove_folder(name)


def _generations(store: BackupStore) -> list[str]:
    return [name for name in store.folders() if _NAME.fullmatch(name)]


def _is_related(store: BackupStore, name: str, home: Home, record: Record) -> bool:
    copied = copied_record(store.under(name))
    logs = {segment.name: segment.log for segment in record.segments}
    here = tuple(replace(segment, log=logs.get(segment.name, segment.log)) for segment in copied.segments)
    related = Generation(store, name, home, replace(copied, segments=here)).is_related()
    return related and copied.pipeline == record.pipeline


def _pipeline(store: BackupStore, name: str) -> str | None:
    """Whose generation it is; None if that cannot be told."""
    try:
        return copied_record(store.under(name)).pipeline
    except LogCorrupt:
        return None


def copied_record(generation: BackupStore) -> Record:
    """What the copied home remembers of its pipeline.

    Raises:
        LogCorrupt: it is missing or damaged.
    """
    return Record.decode(generation.read("home.json") or b"", f"{generation.url}/home.json")
