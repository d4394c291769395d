"""Copying epoch logs. An entry never changes while its log goes on; a log that is put back makes some again.

So what was copied and may have been made again is compared with the log, by the manifests: their names say only
which epochs they cover. Small documents are compared too, by all that they hold.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable

from tidelock.backup.store import BackupStore
from tidelock.epochs import BEFORE_FIRST, Epoch, EpochRange
from tidelock.errors import BackendUnavailable, LogCorrupt, LogNotFound
from tidelock.log import EpochLog
from tidelock.log.documents import ASIDES, HEADER, RECALLS
from tidelock.log.entry import Manifest
from tidelock.log.window import Window, runs
from tidelock.recovery import Held, Pieces

_ENTRY = re.compile(r"entries/(\d+)-(\d+)\.json")


def document_copy(name: str) -> str:
    """The name of the copy of a document."""
    return f"{name}.json"


HEADER_COPY, RECALLS_COPY = document_copy(HEADER), document_copy(RECALLS)


def stored_asides(names: Iterable[str]) -> list[str]:
    """The documents among these copies that say what a consumer is not to see."""
    return sorted(name.removesuffix(".json") for name in names if name.startswith(ASIDES))


def part_name(file: str) -> str:
    """The name of a copied part."""
    return f"parts/{file}"


def entry_name(covers: EpochRange) -> str:
    """The name of a copied manifest."""
    return f"entries/{covers.first:012}-{covers.last:012}.json"


def stored_ranges(names: Iterable[str]) -> list[EpochRange]:
    """What the copied manifests among these names cover, in order."""
    found = (_ENTRY.fullmatch(name) for name in names)
    return sorted(EpochRange(Epoch(int(m[1])), Epoch(int(m[2]))) for m in found if m)


def held_in(ranges: Iterable[EpochRange]) -> tuple[Held, ...]:
    """The pieces of a log with entries that cover these ranges, in order: runs without a gap."""
    return tuple(Window.of(run).held for run in runs(ranges))


class LogCopy:
    """The copy of one epoch log: header, entries with their parts first, and what was set aside for consumers."""

    def __init__(self, store: BackupStore, folder: str, url: str) -> None:
        self._store = store
        self._folder = folder
        self._url = url
        self._stored = store.sizes(folder)
        self.ranges = stored_ranges(self._stored)
        self._checksums: dict[str, int] = {}
        """Of the documents and manifests that this process has written or compared, by their names."""

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
            BackendUnavailable: the target does not work, or there is another log now.
        """
        log = self.log()
        if log is None:
            return
        if not self.is_of_this_log():
            raise BackendUnavailable(f"{log.shown} was replaced while it was copied; the next pass copies it")
        for name in (HEADER, RECALLS, *log.store.names(ASIDES)):
            self._put_document(document_copy(name), log.store.get(name))
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
            self._put(part_name(part.file), content.to_pybytes())
        self._write(entry_name(covers), data)
        self.ranges = sorted([*self.ranges, covers])

    def _put(self, name: str, data: bytes) -> None:
        """Copy what never changes under its name."""
        if self._stored.get(name) != len(data):
            self._write(name, data)

    def _put_document(self, name: str, data: bytes | None) -> None:
        """Copy what may be replaced, also by something of the same length."""
        if data is not None and not self._has(name, data):
            self._write(name, data)

    def _write(self, name: str, data: bytes) -> None:
        self._store.write(f"{self._folder}/{name}", data)
        self._stored[name] = len(data)
        self._checksums[name] = zlib.crc32(data)

    def _has(self, name: str, data: bytes) -> bool:
        """Whether the copy has this under that name; only once does it have to be read for that."""
        if self._stored.get(name) != len(data):
            return False
        if name not in self._checksums:
            self._checksums[name] = zlib.crc32(self._store.read(f"{self._folder}/{name}") or b"")
        return self._checksums[name] == zlib.crc32(data)

    def drop_replaced(self, after: Epoch) -> None:
        """Remove what was copied beyond epoch ``after`` and is not what the log holds: that has gone back since.

        What comes before an entry that is the same is the same, too.
        """
        log = self.log()
        if log is None:
            return
        for covers in reversed([r for r in self.ranges if r.last > after]):
            if self._is_same(log, covers):
                return
            self._drop(covers)

    def clear(self) -> None:
        """Remove all of the copy: another log is in the place of the one that was copied."""
        self._remove(HEADER_COPY)
        for covers in reversed(self.ranges.copy()):
            self._drop(covers)

    def _is_same(self, log: EpochLog, covers: EpochRange) -> bool:
        """Whether a copied entry is the one of the log; one that it has dropped since this process knew it, is."""
        name, data = entry_name(covers), log.store.manifest(covers)
        return name in self._checksums if data is None else self._has(name, data)

    def cut(self, passed: Epoch) -> None:
        """Remove the entries up to ``passed``, oldest first; the newest always stays."""
        for covers in [r for r in self.ranges[:-1] if r.last <= passed]:
            self._drop(covers)

    def _drop(self, covers: EpochRange) -> None:
        parts = self._parts(covers)
        self._remove(entry_name(covers))
        for name in parts:
            self._remove(name)
        self.ranges.remove(covers)

    def _parts(self, covers: EpochRange) -> list[str]:
        data = self._store.read(f"{self._folder}/{entry_name(covers)}") or b""
        try:
            return [part_name(p.file) for p in Manifest.decode(data, "").parts]
        except LogCorrupt:
            return []

    def _remove(self, name: str) -> None:
        self._store.remove([f"{self._folder}/{name}"])
        self._stored.pop(name, None)
        self._checksums.pop(name, None)

    def is_related(self) -> bool:
        """Whether the log is the one whose copy this is."""
        log = self.log()
        return log is not None and self._has(HEADER_COPY, log.store.get(HEADER) or b"")

    def is_of_this_log(self) -> bool:
        """Whether nothing of another log was copied; of one that is not there that cannot be told."""
        return HEADER_COPY not in self._stored or self.log() is None or self.is_related()

    def is_continued(self, after: Epoch) -> bool:
        """Whether what was copied beyond epoch ``after`` is still what the log holds."""
        log = self.log()
        if log is None or not self.is_related():
            return HEADER_COPY not in self._stored
        recent = [covers for covers in self.ranges if covers.last > after]
        return all(self._has(entry_name(covers), log.store.manifest(covers) or b"") for covers in recent)

    def has_gone_back(self, after: Epoch) -> bool:
        """Whether the log surely holds something else beyond epoch ``after`` than what was copied."""
        log = self.log()
        if log is None or not self.is_of_this_log():
            return log is not None
        return not all(self._is_same(log, covers) for covers in self.ranges if covers.last > after)
