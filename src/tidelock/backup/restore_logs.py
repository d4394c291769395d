"""Bringing back epoch logs and the files of sinks: only what is whole, and of a log only one run without a gap.

A log may be brought to a place outside of the new home, where others could come too: a second restore, and the job
that goes on after it. So the header is made first, which only one of them can; then the log is taken over, and
whatever follows is done only while nobody else has taken it over. A restore that finds a log there has made
nothing, and removes nothing; one that fails removes the log that it has made, as long as it is its own.
"""

from __future__ import annotations

import uuid
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from tidelock.backup.logs import entry_name, held_in, stored_ranges
from tidelock.backup.outputs import Checksums, stored_checksums, stored_epochs
from tidelock.backup.store import BackupStore
from tidelock.epochs import BEFORE_FIRST, Epoch, EpochRange
from tidelock.errors import Fenced, LogCorrupt, PipelineError
from tidelock.inside import inside
from tidelock.log import EpochLog
from tidelock.log.documents import ASIDES, HEADER, RECALLS
from tidelock.log.entry import Manifest, Part
from tidelock.log.log import recalled
from tidelock.log.repair import remove_log
from tidelock.log.sealed import unseal
from tidelock.log.store import Token, open_store
from tidelock.placing import remove_tree
from tidelock.recovery import Held, Pieces, Step


@dataclass(frozen=True)
class _Entry:
    covers: EpochRange
    data: bytes
    parts: tuple[str, ...]


class LogRestore:
    """The copy of a log on its way to a new place. Parts go before manifests: without those they are nothing."""

    def __init__(self, store: BackupStore, folder: str, url: str) -> None:
        self._store = store
        self._folder = folder
        self._target = open_store(url)
        self._header = store.read(f"{folder}/{HEADER}.json")
        self._id = self._header and unseal(
            self._header, f"{store.url}/{folder}/{HEADER}.json", lambda f: str(f["id"])
        )
        self._names = store.sizes(folder)
        self._owner = f"a restore ({uuid.uuid4().hex})"
        self._is_made = False
        self._token: Token | None = None
        self._entries: list[_Entry] = []
        self.damaged: list[str] = []

    def fetch(self) -> None:
        """Begin the log at its new place, and bring there what is whole.

        Raises:
            PipelineError: there is a log already; nothing of it was touched.
            Fenced: somebody has taken the new log over.
        """
        self._begin()
        self._entries = [entry for covers in stored_ranges(self._names) for entry in self._fetched(covers)]

    def _begin(self) -> None:
        if self._target.get(HEADER) is None:
            if self._header is None:
                return  # the log had not been made yet
            self._is_made = self._target.create(HEADER, self._header)
        if not self._is_made:
            raise PipelineError(
                f"there is a log at {self._target.shown} already, perhaps of another restore that is under way or "
                "was killed: restore to another place, or remove it. Nothing of it was touched"
            )
        self._token = self._target.take_over(self._owner)

    # -- whose it is

    @property
    def _is_mine(self) -> bool:
        """Whether it was made here, and nobody has taken it over since."""
        return self._target.holder() == (self._token, self._owner)

    def _held(self) -> Token:
        """The token under which the log is made.

        Raises:
            Fenced: it is somebody else's.
        """
        if self._token is None or not self._is_mine:
            raise Fenced(
                f"{self._target.shown} was taken over while it was restored: by another restore, or by a job that "
                "goes on with it. Nothing of theirs was touched; if you need this one, restore to another place"
            )
        return self._token

    # -- what is there

    def _fetched(self, covers: EpochRange) -> Iterator[_Entry]:
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
        yield _Entry(covers, data, tuple(part.file for part in manifest.parts))

    def _fetch_part(self, part: Part) -> None:
        name = f"{self._folder}/parts/{part.file}"
        data = self._store.read(name) or b""
        if (len(data), zlib.crc32(data)) != (part.bytes, part.crc32):
            raise LogCorrupt(f"{name} is missing, torn or damaged")
        self._held()
        self._target.write_part(part.file, _writing(data))

    def pieces(self) -> Pieces:
        """What the log can be given.

        A gap leaves a choice: a later run lets its segment keep newer versions, an earlier one may be all that a
        slow reader can go on with, and an empty log fits when both restart from the same epoch.
        """
        found = held_in(entry.covers for entry in self._entries)
        if found and not self.damaged:
            return Pieces(found)
        return Pieces(found, max((r.last for r in stored_ranges(self._names)), default=BEFORE_FIRST))

    # -- making it

    def place(self, window: Held, step: Step, readers: Mapping[str, Epoch]) -> int:
        """Make the log: ``window``, rewound to the step's version or empty; how many entries that drops."""
        inside = [entry for entry in self._entries if entry.covers.last in window.ends]
        kept = [] if step.restart_log else [e for e in inside if e.covers.last <= step.version]
        self._remove([entry for entry in self._entries if entry not in kept])
        if self._header is not None:
            self._make(kept, step.version, readers)
        return len(inside) - len(kept)

    def ends(self) -> set[Epoch]:
        """The last epochs of the entries that are whole."""
        return {entry.covers.last for entry in self._entries}

    def place_entry(self, last: Epoch) -> None:
        """Make the log with the entry that ends at ``last`` alone, or without any if there is none."""
        kept = [entry for entry in self._entries if entry.covers.last == last]
        self._remove([entry for entry in self._entries if entry not in kept])
        if self._header is not None:
            self._make(kept, last, {})

    def place_whole(self) -> None:
        """Make the log with the newest entries that follow each other."""
        whole = self.pieces().held
        window = whole[-1] if whole else Held(BEFORE_FIRST)
        self.place(window, Step("", window.tail, roll_back=False, rewind=False, restart_log=False), {})

    def recall(self, version: Epoch) -> None:
        """Tell the readers of the log, once it is made, that what was behind ``version`` is published again."""
        if self._header is None:
            return
        name, before = f"{self._folder}/{RECALLS}.json", tuple[Epoch, ...]()
        try:
            if f"{RECALLS}.json" in self._names:
                before = unseal(self._store.read(name) or b"", name, recalled)
        except LogCorrupt as damage:
            self.damaged.append(str(damage))
        self._held()
        EpochLog.open(self._target.url).tell_recalls((*before, version))

    def _make(self, kept: list[_Entry], version: Epoch, readers: Mapping[str, Epoch]) -> None:
        for name, data in self._set_aside(version):
            self._held()
            self._target.put(name, data)
        for entry in kept:
            self._target.publish(self._held(), entry.covers, entry.data, entry.parts)
        log = EpochLog.open(self._target.url)
        for consumer, position in readers.items():
            self._held()
            log.move_cursor(consumer, position)

    def _set_aside(self, version: Epoch) -> Iterator[tuple[str, bytes]]:
        """What consumers are not to see, as far as it is not made again."""
        for name in sorted(name for name in self._names if name.startswith(ASIDES)):
            data = self._store.read(f"{self._folder}/{name}") or b""
            try:
                last = unseal(data, name, lambda fields: int(str(fields["covers"]).rpartition("-")[2]))
            except LogCorrupt as damage:
                self.damaged.append(f"{self._folder}/{damage}")
                continue
            if last <= version:
                yield name.removesuffix(".json"), data

    def discard(self) -> None:
        """Remove the log if it was made here; nothing happens if it is somebody else's by now."""
        if self._token is None and self._is_made:
            self._target.delete(HEADER)  # nobody got further
        elif self._token is not None and self._is_mine:
            remove_log(self._target.url)

    def _remove(self, entries: list[_Entry]) -> None:
        if entries:
            self._target.collect_parts(self._held(), [name for entry in entries for name in entry.parts])


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


def _writing(data: bytes) -> Callable[[BinaryIO], int]:
    return lambda file: file.write(data)
