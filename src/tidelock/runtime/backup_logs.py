"""Copying epoch logs, and what file sinks have written: both grow by pieces that never change."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from tidelock.epochs import BEFORE_FIRST, Epoch, EpochRange
from tidelock.errors import LogCorrupt, LogNotFound
from tidelock.log import EpochLog
from tidelock.log.entry import Manifest
from tidelock.log.log import RECALLS
from tidelock.log.sealed import seal
from tidelock.recovery import Held, Pieces
from tidelock.runtime.backup_store import BackupStore, checksum

_ENTRY = re.compile(r"entries/(\d+)-(\d+)\.json")
_EPOCH = re.compile(r"epoch=(\d+)")


def entry_name(covers: EpochRange) -> str:
    """The name of a copied manifest."""
    return f"entries/{covers.first:012}-{covers.last:012}.json"


def stored_ranges(names: Iterable[str]) -> list[EpochRange]:
    """What the copied manifests among these names cover, in order."""
    found = (_ENTRY.fullmatch(name) for name in names)
    return sorted(EpochRange(Epoch(int(m[1])), Epoch(int(m[2]))) for m in found if m)


def held_in(ranges: Iterable[EpochRange]) -> tuple[Held, ...]:
    """The pieces of a log with entries that cover these ranges, in order: runs without a gap."""
    runs: list[list[EpochRange]] = []
    for covers in ranges:
        if runs and runs[-1][-1].last + 1 == covers.first:
            runs[-1].append(covers)
        else:
            runs.append([covers])
    return tuple(Held(Epoch(run[0].first - 1), tuple(covers.last for covers in run)) for run in runs)


class LogCopy:
    """The copy of one epoch log: header, entries with their parts first, and what was set aside for consumers."""

    def __init__(self, store: BackupStore, folder: str, url: str) -> None:
        self._store = store
        self._folder = folder
        self._url = url
        self._stored = store.sizes(folder)
        self.ranges = stored_ranges(self._stored)

    @property
    def tail(self) -> Epoch:
        """The newest epoch that was copied."""
        return self.ranges[-1].last if self.ranges else BEFORE_FIRST

    @property
    def ends(self) -> frozenset[Epoch]:
        """The last epochs of the entries that were copied."""
        return frozenset(covers.last for covers in self.ranges)

    def pieces(self) -> Pieces:
        """What a restore finds of the log."""
        return Pieces(held_in(self.ranges), None if self.ranges else BEFORE_FIRST)

    def log(self) -> EpochLog | None:
        """The log itself, if it has been made."""
        try:
            return EpochLog.open(self._url)
        except LogNotFound:
            return None

    def copy(self) -> None:
        """Copy everything that the log holds and the copy does not. Nothing happens if there is no log yet.

        Raises:
            LogCorrupt: the log itself is damaged.
            BackendUnavailable: the target does not work.
        """
        log = self.log()
        if log is None:
            return
        for name in ("log", RECALLS, *log.store.names("aside/")):
            self._put(f"{name}.json", log.store.get(name))
        for covers in log.ranges():
            if covers not in self.ranges:
                self._copy_entry(log, covers)

    def _copy_entry(self, log: EpochLog, covers: EpochRange) -> None:
        data = log.store.manifest(covers)
        if data is None:
            return  # truncated since it was listed
        manifest = Manifest.decode(data, f"{log.shown}: the manifest of epoch {covers}")
        for part in manifest.parts:
            content = log.store.read_part(part.file)
            if content is None:
                if log.store.manifest(covers) is None:
                    return
                raise LogCorrupt(f"{log.shown}: part {part.file} of epoch {covers} is missing")
            self._put(f"parts/{part.file}", content.to_pybytes())
        self._put(entry_name(covers), data)
        self.ranges = sorted([*self.ranges, covers])

    def _put(self, name: str, data: bytes | None) -> None:
        if data is not None and self._stored.get(name) != len(data):
            self._store.write(f"{self._folder}/{name}", data)
            self._stored[name] = len(data)

    def cut(self, passed: Epoch) -> None:
        """Remove the entries up to ``passed``, oldest first; the newest always stays."""
        for covers in [r for r in self.ranges[:-1] if r.last <= passed]:
            parts = self._parts(covers)
            self._remove(entry_name(covers))
            for name in parts:
                self._remove(name)
            self.ranges.remove(covers)

    def _parts(self, covers: EpochRange) -> list[str]:
        data = self._store.read(f"{self._folder}/{entry_name(covers)}") or b""
        try:
            return [f"parts/{p.file}" for p in Manifest.decode(data, "").parts]
        except LogCorrupt:
            return []

    def _remove(self, name: str) -> None:
        self._store.remove([f"{self._folder}/{name}"])
        self._stored.pop(name, None)

    def is_related(self) -> bool:
        """Whether the log is the one whose copy this is."""
        log = self.log()
        return log is not None and log.store.get("log") == self._store.read(f"{self._folder}/log.json")

    def is_continued(self, after: Epoch) -> bool:
        """Whether what was copied beyond epoch ``after`` is still what the log holds."""
        log = self.log()
        if log is None or not self.is_related():
            return "log.json" not in self._stored
        recent = [covers for covers in self.ranges if covers.last > after]
        return all(
            log.store.manifest(covers) == self._store.read(f"{self._folder}/{entry_name(covers)}")
            for covers in recent
        )


class OutputCopy:
    """The copy of what a file sink has written below the home: one directory for each epoch.

    Beside it, and after it, goes a document with the sizes and checksums of its files.
    """

    def __init__(self, store: BackupStore, sink: str, location: str) -> None:
        self._store = store
        self._folder = f"out/{sink}"
        self._location = Path(location)
        self._copied = stored_epochs(name for name in store.sizes(self._folder) if "/" not in name)

    def copy(self, last: Epoch) -> None:
        """Copy the directories of the epochs up to ``last``."""
        for folder in sorted(self._location.glob("epoch=*")):
            for epoch in stored_epochs([folder.name]) - self._copied:
                if epoch <= last:
                    self._copy_epoch(folder)
                    self._copied.add(epoch)

    def _copy_epoch(self, folder: Path) -> None:
        files = {}
        for file in sorted(f for f in folder.rglob("*") if f.is_file() and not f.name.startswith(".")):
            name = file.relative_to(folder).as_posix()
            files[name] = checksum(file)
            self._store.upload(f"{self._folder}/{folder.name}/{name}", file)
        self._store.write(f"{self._folder}/{folder.name}.json", seal({"files": files}))


def stored_epochs(names: Iterable[str]) -> set[Epoch]:
    """The epochs that these files of a file sink belong to."""
    firsts = (name.partition("/")[0].removesuffix(".json") for name in names)
    return {Epoch(int(m[1])) for m in map(_EPOCH.fullmatch, firsts) if m}
