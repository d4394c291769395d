"""Epoch logs in a directory: `file:` URLs. Any mounted directory with POSIX renames and locks will do.

Layout of a log, all names sortable:

    log.json                          the header (a document)
    lease.json                        the newest writer's token and owner
    lock                              held while a manifest appears or goes
    cursor/, round/<consumer>.json    documents
    entries/<first>-<last>.json       manifests
    parts/<last>-<token>-<id>.arrow   parts

Crash points. A part is written under its final name, but exists only once a manifest names it. A manifest is
written aside, synced and renamed, so it is whole or absent. The token is checked under the same lock as the
rename, so a writer that was fenced in between cannot publish; the kernel drops the lock of a killed process.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote, unquote, urlparse

import pyarrow as pa

from tidelock.epochs import Epoch, EpochRange
from tidelock.errors import BackendUnavailable, PipelineError
from tidelock.log.sealed import seal, unseal
from tidelock.log.store import LogStore, Token, Written, fenced
from tidelock.placing import put_file, sync_folder, write_aside

_DIGITS = 12
_ENTRY = re.compile(r"(\d+)-(\d+)\.json")


class FileStore(LogStore):
    """An epoch log in a directory; safe for several processes and for kill -9 at any moment."""

    def __init__(self, url: str) -> None:
        self.root = _directory(url)
        # Absolute, because executors open the log by this URL from directories of their own.
        self.url = f"file:{quote(str(self.root), safe='/ ')}"
        self._entries = self.root / "entries"
        self._parts = self.root / "parts"

    # -- documents

    def get(self, name: str) -> bytes | None:
        try:
            return self._document(name).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None

    def put(self, name: str, data: bytes, *, durable: bool = True) -> None:
        with self._translated():
            put_file(self._document(name), data, durable=durable)

    def create(self, name: str, data: bytes) -> bool:
        with self._translated():
            path = self._document(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            aside = write_aside(path, data, durable=True)
            try:
                os.link(aside, path)
            except FileExistsError:
                return False
            finally:
                aside.unlink()
            sync_folder(path.parent)
            return True

    def delete(self, name: str) -> None:
        self._document(name).unlink(missing_ok=True)

    def names(self, prefix: str) -> list[str]:
        # A prefix up to its last slash is a directory; documents lie at most one level deep.
        folder = self.root / prefix.rpartition("/")[0]
        found = (p.relative_to(self.root) for p in folder.glob("*.json"))
        return sorted(name for name in (str(p.with_suffix("")) for p in found) if name.startswith(prefix))

    def _document(self, name: str) -> Path:
        return self.root / f"{name}.json"

    # -- parts

    def write_part(self, name: str, write: Callable[[BinaryIO], Written]) -> Written:
        path = self._parts / name
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
        try:
            with pa.memory_map(str(self._parts / name)) as file:
                return file.read_buffer()
        except FileNotFoundError:
            return None

    def part_names(self, prefix: str = "") -> list[str]:
        return [name for name in _listed(self._parts) if name.startswith(prefix)]

    def remove_parts(self, names: Iterable[str]) -> None:
        for name in names:
            (self._parts / name).unlink(missing_ok=True)

    # -- entries

    def take_over(self, owner: str) -> Token:
        with self._translated(), self._lock():
            held = self.holder()
            token = Token(held[0] + 1 if held else 1)
            self.put("lease", seal({"token": token, "owner": owner}))
            self._sweep()
            return token

    def holder(self) -> tuple[Token, str] | None:
        data = self.get("lease")
        if data is None:
            return None
        where = f"{self.url}: the lease in {self._document('lease')}"
        return unseal(data, where, lambda lease: (Token(lease["token"]), lease["owner"]))

    def ranges(self) -> list[EpochRange]:
        found = (_ENTRY.fullmatch(name) for name in _listed(self._entries))
        return [EpochRange(Epoch(int(m[1])), Epoch(int(m[2]))) for m in found if m]

    def manifest(self, covers: EpochRange) -> bytes | None:
        try:
            return self._manifest_path(covers).read_bytes()
        except FileNotFoundError:
            return None

    def publish(self, token: Token, covers: EpochRange, manifest: bytes) -> None:
        with self._translated(), self._held_by(token):
            self._entries.mkdir(exist_ok=True)
            if self._parts.exists():
                sync_folder(self._parts)
            put_file(self._manifest_path(covers), manifest, durable=True)

    def unpublish(self, token: Token, ranges: Iterable[EpochRange]) -> None:
        with self._translated(), self._held_by(token):
            for covers in ranges:
                self._manifest_path(covers).unlink(missing_ok=True)
            sync_folder(self._entries)

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
        self.root.mkdir(parents=True, exist_ok=True)
        with (self.root / "lock").open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise BackendUnavailable(
                    f"{self.url}: no room is left for this log; nothing was published. Free some space "
                    "and start the query again: it goes on where it was"
                ) from error
            raise BackendUnavailable(
                f"{self.url}: the directory cannot be written ({error.strerror}); nothing was published"
            ) from error


def _directory(url: str) -> Path:
    parsed = urlparse(url)
    if parsed.netloc not in ("", "localhost") or not parsed.path:
        raise PipelineError(f"{url!r} is not a directory's URL: write file:/path/to/the/log")
    return Path(unquote(parsed.path)).absolute()


def _listed(folder: Path) -> list[str]:
    try:
        with os.scandir(folder) as found:
            return sorted(entry.name for entry in found if not entry.name.startswith("."))
    except FileNotFoundError:
        return []
