"""Bringing back epoch logs and the files of sinks: only what is whole, and of a log only one run without a gap.

Here is what is read from the copy and verified; `tidelock.log.rebuild` makes a log of it.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from tidelock.backup.logs import (
    HEADER_COPY,
    RECALLS_COPY,
    document_copy,
    entry_name,
    held_in,
    part_name,
    stored_asides,
    stored_ranges,
)
from tidelock.backup.outputs import Checksums, stored_checksums, stored_epochs
from tidelock.backup.store import BackupStore
from tidelock.epochs import BEFORE_FIRST, Epoch, EpochRange
from tidelock.errors import LogCorrupt
from tidelock.inside import inside
from tidelock.log.entry import Manifest, Part
from tidelock.log.log import aside_last, recalled
from tidelock.log.rebuild import CopiedAside, CopiedEntry, LogRebuild
from tidelock.log.sealed import unseal
from tidelock.log.store import open_store
from tidelock.placing import remove_tree
from tidelock.recovery import Held, Pieces


class LogRestore:
    """The copy of a log on its way to a new place."""

    def __init__(self, store: BackupStore, folder: str, url: str) -> None:
        self._store = store
        self._folder = folder
        self._rebuild = LogRebuild(open_store(url))
        self._header = store.read(f"{folder}/{HEADER_COPY}")
        self._id = self._header and unseal(
            self._header, f"{store.url}/{folder}/{HEADER_COPY}", lambda f: str(f["id"])
        )
        self._names = store.sizes(folder)
        self._entries: list[CopiedEntry] = []
        self.damaged: list[str] = []

    def fetch(self) -> None:
        """Begin the log at its new place, and bring there what is whole.

        Raises:
            PipelineError: there is a log already; nothing of it was touched.
            Fenced: somebody has taken the new log over.
        """
        self._rebuild.begin(self._header)  # it has none if the log had not been made yet
        self._entries = [entry for covers in stored_ranges(self._names) for entry in self._fetched(covers)]

    # -- what is there

    def _fetched(self, covers: EpochRange) -> Iterator[CopiedEntry]:
        """The entry, with its parts in place; nothing if any of it is damaged."""
        name = f"{self._folder}/{entry_name(covers)}"
        try:
            data = self._store.read(name) or b""
            manifest = Manifest.decode(data, name)
            if (manifest.log, manifest.covers) != (self._id, covers):
                raise LogCorrupt(f"{name} belongs to another log or epoch")
            for part in manifest.parts:
                self._fetch_part(part)
        except LogCorrupt as damage:
            self.damaged.append(str(damage))
            return
        yield CopiedEntry(covers, data, tuple(part.file for part in manifest.parts))

    def _fetch_part(self, part: Part) -> None:
        name = f"{self._folder}/{part_name(part.file)}"
        data = self._store.read(name) or b""
        if (len(data), zlib.crc32(data)) != (part.bytes, part.crc32):
            raise LogCorrupt(f"{name} is missing, torn or damaged")
        self._rebuild.write_part(part.file, data)

    def pieces(self) -> Pieces:
        """What the log can be given.

        A gap leaves a choice: a later run lets its segment keep newer versions, an earlier one may be all that a
        slow reader can go on with, and an empty log fits when both restart from the same epoch.
        """
        found = held_in(entry.covers for entry in self._entries)
        if found and not self.damaged:
            return Pieces(found)
        return Pieces(found, max((r.last for r in stored_ranges(self._names)), default=BEFORE_FIRST))

    def ends(self) -> set[Epoch]:
        """The last epochs of the entries that are whole."""
        return {entry.covers.last for entry in self._entries}

    # -- making it

    def place(self, window: Held, version: Epoch, readers: Mapping[str, Epoch]) -> int:
        """Make the log: ``window``, put back to ``version``; how many entries that drops."""
        return self._make(window.ends, version, readers)

    def place_entry(self, last: Epoch) -> None:
        """Make the log with the entry that ends at ``last`` alone, or without any if there is none."""
        self._make((last,), last, {})

    def place_whole(self) -> None:
        """Make the log with the newest entries that follow each other."""
        whole = self.pieces().held
        window = whole[-1] if whole else Held(BEFORE_FIRST)
        self.place(window, window.tail, {})

    def _make(self, ends: Collection[Epoch], version: Epoch, readers: Mapping[str, Epoch]) -> int:
        if self._header is None:
            return 0
        self._rebuild.drop(entry for entry in self._entries if entry.covers.last not in ends)
        piece = [entry for entry in self._entries if entry.covers.last in ends]
        return self._rebuild.finish(piece, dict(self._asides()), version, readers)

    def _asides(self) -> Iterator[tuple[str, CopiedAside]]:
        """What consumers are not to see."""
        for name in stored_asides(self._names):
            data = self._store.read(f"{self._folder}/{document_copy(name)}") or b""
            try:
                last = unseal(data, name, aside_last)
            except LogCorrupt as damage:
                self.damaged.append(f"{self._folder}/{damage}")
                continue
            yield name, CopiedAside(last, data)

    def recall(self, version: Epoch) -> None:
        """Tell the readers of the log, once it is made, that what was behind ``version`` is published again."""
        if self._header is not None:
            self._rebuild.tell_recalls((*self._recalls(), version))

    def _recalls(self) -> tuple[Epoch, ...]:
        """The epochs that the log had been put back to when it was copied."""
        name = f"{self._folder}/{RECALLS_COPY}"
        try:
            return unseal(self._store.read(name) or b"", name, recalled) if RECALLS_COPY in self._names else ()
        except LogCorrupt as damage:
            self.damaged.append(str(damage))
            return ()

    def discard(self) -> None:
        """Remove the log if it was made here; nothing happens if it is somebody else's by now."""
        self._rebuild.discard()


class OutputRestore:
    """What a file sink had written up to the epoch ``copied``, brought to a new place."""

    def __init__(self, store: BackupStore, sink: str, location: Path, copied: Epoch) -> None:
        self._store = store
        self._folder = f"out/{sink}"
        self._location = location
        self._names = store.sizes(self._folder)
        self.damaged: list[str] = []
        self._epochs = sorted(epoch for epoch in stored_epochs(self._names) if epoch <= copied)
        self.incomplete = [epoch for epoch in self._epochs if not self._fetch(f"epoch={epoch}")]

    def _fetch(self, folder: str) -> bool:
        """Bring one epoch; False if it is damaged, then nothing is left of it."""
        files = self._files(folder)
        if files and all(self._download(f"{folder}/{name}") == facts for name, facts in files.items()):
            return True
        remove_tree(self._location / folder)
        self.damaged.append(f"{self._folder}/{folder}")
        return False

    def _download(self, name: str) -> tuple[int, int] | None:
        return self._store.download(f"{self._folder}/{name}", inside(self._location, name))

    def _files(self, folder: str) -> Checksums:
        """The files of an epoch, with their sizes and checksums; none if that cannot be read."""
        name = f"{self._folder}/{folder}.json"
        with suppress(LogCorrupt):
            return unseal(self._store.read(name) or b"", name, stored_checksums)
        return {}

    def keep(self, last: Epoch) -> None:
        """Remove the epochs behind ``last``: they are written again."""
        for epoch in self._epochs:
            if epoch > last:
                remove_tree(self._location / f"epoch={epoch}")
