"""Epoch logs in a directory: `file:` URLs. Any mounted directory with POSIX renames and locks will do.

Layout of a log, all names sortable:

    log.json                          the header (a document)
    lease.json                        the newest writer's token and owner
    lock                              held while a manifest appears or goes, and while a reader registers
    cursor/, round/<consumer>.json    documents
    entries/<first>-<last>.json       manifests
    parts/<last>-<token>-<id>.arrow   parts

Crash points. A part is written under its final name, but exists only once a manifest names it. A manifest is
written aside, synced and renamed, so it is whole or absent. The token is checked under the same lock as the
rename, so a writer that was fenced in between cannot publish; the kernel drops the lock of a killed process.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from tidelock.epochs import BEFORE_FIRST, Epoch, EpochRange
from tidelock.errors import BackendUnavailable
from tidelock.log.cursor import all_past
from tidelock.log.documents import CURSORS, LEASE
from tidelock.log.sealed import seal, unseal
from tidelock.log.store import LogStore, Token, Written, fenced, part_gone
from tidelock.placing import add_file, has_no_room, make_folder, put_file, sync_folder
from tidelock.stored_names import plain_name, relative_name
from tidelock.urls import directory, directory_url

_DIGITS = 12
_ENTRY = re.compile(r"(\d+)-(\d+)\.json")


class FileStore(LogStore):
    """An epoch log in a directory; safe for several processes and for kill -9 at any moment."""

    def __init__(self, url: str) -> None:
        self.root = directory(url)
        self.url = directory_url(self.root)
        self._entries = self.root / "entries"
        self._parts = self.root / "parts"

    # -- documents

    def get(self, name: str) -> bytes | None:
        return self._bytes(self._document(name))

    def put(self, name: str, data: bytes, *, durable: bool = True) -> None:
        with self._translated():
            if not durable:
                put_file(self._document(name), data, durable=False)
                return
            with self._lock():
                self._put(name, data)

    def _put(self, name: str, data: bytes) -> None:
        """Place a durable document; the lock is held, so nobody is in the middle of dropping entries."""
        put_file(self._document(name), data, durable=True)

    def create(self, name: str, data: bytes) -> bool:
        with self._translated():
            path = self._document(name)
            make_folder(self.root)
            return add_file(path, data)

    def delete(self, name: str) -> None:
        # Synced: what comes back after a loss of power might hide the rows of an epoch that was made again.
        path = self._document(name)
        with self._translated():
            if path.exists():
                path.unlink(missing_ok=True)
                sync_folder(path.parent)

    def names(self, prefix: str) -> list[str]:
        # A prefix up to its last slash is a directory; documents lie at most one level deep.
        folder = prefix[: prefix.rfind("/") + 1]
        found = (folder + name for name in self._listed(self.root / folder))
        return [name.removesuffix(".json") for name in found if name.startswith(prefix) and name.endswith(".json")]

    def _document(self, name: str) -> Path:
        return self.root / f"{relative_name(name)}.json"

    # -- parts

    def write_part(self, name: str, write: Callable[[BinaryIO], Written]) -> Written:
        path = self._parts / plain_name(name)
        with self._translated():
            self._parts.mkdir(parents=True, exist_ok=True)
            try:
                with path.open("xb", buffering=1 << 20) as file:
                    written = write(file)
                    file.flush()
                    os.fsync(file.fileno())
                return written
            except BaseException:
                path.unlink(missing_ok=True)
                raise

    def read_part(self, name: str) -> pa.Buffer | None:
        path = self._parts / plain_name(name)
        with self._reading(path), pa.memory_map(str(path)) as file:
            return file.read_buffer()
        return None

    def part_names(self, prefix: str = "") -> list[str]:
        return [name for name in self._listed(self._parts) if name.startswith(prefix)]

    def remove_parts(self, names: Iterable[str]) -> None:
        with self._translated():
            for name in names:
                (self._parts / plain_name(name)).unlink(missing_ok=True)

    def collect_parts(self, token: Token, names: Iterable[str]) -> None:
        if gone := list(names):
            with self._translated(), self._held_by(token):
                self.remove_parts(gone)

    # -- entries

    def take_over(self, owner: str) -> Token:
        with self._translated(), self._lock():
            held = self.holder()
            token = Token(held[0] + 1 if held else 1)
            self._put(LEASE, seal({"token": token, "owner": owner}))
            self._sweep()
            return token

    def holder(self) -> tuple[Token, str] | None:
        data = self.get(LEASE)
        if data is None:
            return None
        where = f"{self.url}: the lease in {self._document('lease')}"
        return unseal(data, where, lambda lease: (Token(lease["token"]), lease["owner"]))

    def ranges(self) -> list[EpochRange]:
        found = (_ENTRY.fullmatch(name) for name in self._listed(self._entries))
        return [EpochRange(Epoch(int(m[1])), Epoch(int(m[2]))) for m in found if m]

    def manifest(self, covers: EpochRange) -> bytes | None:
        return self._bytes(self._manifest_path(covers))

    def publish(self, token: Token, covers: EpochRange, manifest: bytes, parts: Sequence[str] = ()) -> None:
        with self._translated(), self._held_by(token):
            gone = next((name for name in parts if not (self._parts / name).exists()), None)
            if gone is not None:
                raise part_gone(self.shown, gone, covers)
            if self._parts.exists():
                make_folder(self._parts)
                sync_folder(self._parts)
            put_file(self._manifest_path(covers), manifest, durable=True)

    def unpublish(self, token: Token, ranges: Iterable[EpochRange], *, finished: bool = False) -> bool:
        gone = list(ranges)
        with self._translated(), self._held_by(token):
            if finished and not all_past(self._cursors(), max((r.last for r in gone), default=BEFORE_FIRST)):
                return False
            for covers in gone:
                self._manifest_path(covers).unlink(missing_ok=True)
            if gone:
                sync_folder(self._entries)
            return True

    def _cursors(self) -> Iterator[bytes]:
        return (data for name in self.names(CURSORS) if (data := self.get(name)) is not None)

    def _manifest_path(self, covers: EpochRange) -> Path:
        return self._entries / f"{covers.first:0{_DIGITS}}-{covers.last:0{_DIGITS}}.json"

    def _sweep(self) -> None:
        """Remove manifests that were never renamed: publishing holds the lock, so their writers are dead."""
        for aside in self._entries.glob(".*"):
            aside.unlink(missing_ok=True)

    # -- the lock, and what the operating system says

    @contextmanager
    def _held_by(self, token: Token) -> Iterator[None]:
        with self._lock():
            held = self.holder()
            if held is None or held[0] != token:
                raise fenced(self.shown, held[1] if held else "nobody")
            yield

    @contextmanager
    def _lock(self) -> Iterator[None]:
        make_folder(self.root)
        with (self.root / "lock").open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _bytes(self, path: Path) -> bytes | None:
        """What is in a file, or None if there is none."""
        with self._reading(path):
            return path.read_bytes()
        return None

    def _listed(self, folder: Path) -> list[str]:
        """The files of a folder, sorted; none if it is not there."""
        with self._reading(folder), os.scandir(folder) as found:
            return sorted(entry.name for entry in found if not entry.name.startswith("."))
        return []

    @contextmanager
    def _reading(self, path: Path) -> Iterator[None]:
        """Read something, unless it is not there."""
        try:
            yield
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            why = os.strerror(error.errno) if error.errno else error
            raise BackendUnavailable(
                f"{self.url}: {path} cannot be read ({why}): see that this process may read it, that its disk "
                "answers, and that it may open as many files as it needs (ulimit -n)"
            ) from error

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if has_no_room(error):
                raise BackendUnavailable(
                    f"{self.url}: no room is left for this log; nothing was published. Free some space "
                    "and start the query again: it goes on where it was"
                ) from error
            raise BackendUnavailable(
                f"{self.url}: the directory cannot be written ({error.strerror}); nothing was published"
            ) from error
