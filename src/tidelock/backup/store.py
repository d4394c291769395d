"""Where a copy is kept: named files behind any fsspec URL, a plain directory included.

A file appears under its name when it is complete: a local one is written aside and renamed, an object store
shows an object when its upload has ended. A reader does not rely on that: everything that is copied has its size
and checksum written down elsewhere.

What has been uploaded to an object store is kept. On a local or mounted disk a file is synced before it is
renamed, and the folders that have got new names are when it matters (`BackupStore.sync`): before something relies
on what was written, and before anything is removed. Files there are for their owner alone, as those of a home are:
names and digests of what a pipeline does stand in them.
"""

from __future__ import annotations

import os
import shutil
import uuid
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem

from tidelock.credentials import credentials_for, redacted, taken, with_credentials
from tidelock.errors import BackendUnavailable, PipelineError, TidelockError
from tidelock.placing import make_folder, remove_tree, sync_folder
from tidelock.stored_names import is_relative_name, relative_name

_CHUNK = 1 << 20
_FILE, _FOLDER = 0o600, 0o700


class BackupStore:
    """Files under a URL, of which only the place is kept; names are relative, with forward slashes. One thread."""

    def __init__(self, url: str) -> None:
        self.url = place = taken(url.rstrip("/"))
        try:
            self._files, root = url_to_fs(with_credentials(place, credentials_for(place)))
        except (ImportError, ValueError) as error:
            raise PipelineError(f"{place!r} cannot hold a backup: {redacted(str(error))}") from error
        self._root = str(root).rstrip("/")
        self._is_local = isinstance(self._files, LocalFileSystem)
        self._made: set[str] = set()
        self._unsynced: set[str] = set()
        self.bytes_written = 0

    def under(self, folder: str) -> BackupStore:
        """The same store, one folder deeper."""
        return BackupStore(f"{self.url}/{folder}")

    # -- reading

    def read(self, name: str) -> bytes | None:
        """The content of a file, or None if there is none."""
        with self._translated(f"read {name}"):
            try:
                return bytes(self._files.cat_file(self._path(name)))
            except FileNotFoundError:
                return None

    def download(self, name: str, target: Path) -> tuple[int, int] | None:
        """Bring a file to a local path; returns its size and CRC-32 as they came, or None if there is none."""
        target.parent.mkdir(parents=True, exist_ok=True)
        size, crc32 = 0, 0
        with self._translated(f"read {name}"):
            try:
                with self._files.open(self._path(name), "rb") as content, target.open("wb") as file:
                    while chunk := content.read(_CHUNK):
                        file.write(chunk)
                        size, crc32 = size + len(chunk), zlib.crc32(chunk, crc32)
            except FileNotFoundError:
                return None
        return size, crc32

    def sizes(self, folder: str) -> dict[str, int]:
        """The files below a folder, by their names relative to it, with their sizes; hidden ones are left out."""
        with self._translated(f"list {folder}"):
            self._files.invalidate_cache()
            base = self._path(folder)
            found = self._files.find(base, detail=True)
        names = {str(path)[len(base) :].lstrip("/"): int(facts["size"]) for path, facts in found.items()}
        return {name: size for name, size in names.items() if _is_ours(name)}

    def folders(self) -> list[str]:
        """The names of the folders right here, sorted."""
        with self._translated("list"):
            self._files.invalidate_cache()
            if not self._files.isdir(self._root):
                return []
            found = self._files.ls(self._root, detail=True)
        return sorted(str(f["name"]).rstrip("/").rpartition("/")[2] for f in found if f["type"] == "directory")

    # -- writing

    def write(self, name: str, data: bytes) -> None:
        """Make or replace a file."""
        with self._appearing(name) as file:
            file.write(data)
        self.bytes_written += len(data)

    def upload(self, name: str, source: Path) -> None:
        """Make or replace a file from a local one."""
        with source.open("rb") as content, self._appearing(name) as file:
            shutil.copyfileobj(content, file, _CHUNK)
            self.bytes_written += content.tell()

    @contextmanager
    def _appearing(self, name: str) -> Iterator[BinaryIO]:
        with self._translated(f"write {name}"):
            path = self._path(name)
            folder = path.rpartition("/")[0]
            self._make_folder(folder)
            with _placed(Path(path)) if self._is_local else self._uploaded(path) as file:
                yield file
            self._unsynced.add(folder)

    @contextmanager
    def _uploaded(self, path: str) -> Iterator[BinaryIO]:
        try:
            with self._files.open(path, "wb") as file:
                yield file
        except BaseException:
            with suppress(FileNotFoundError):
                self._files.rm_file(path)
            raise

    def _make_folder(self, path: str) -> None:
        if path in self._made:  # an object store asks its server every time
            return
        if self._is_local:
            make_folder(Path(path), mode=_FOLDER)
        else:
            self._files.makedirs(path, exist_ok=True)
        self._made.add(path)

    def sync(self) -> None:
        """Let all that was written so far survive a loss of power; nothing happens if it does."""
        for folder in sorted(self._unsynced) if self._is_local else ():
            with self._translated(f"sync {folder}"), suppress(FileNotFoundError):  # somebody else has removed it
                sync_folder(Path(folder))
        self._unsynced.clear()

    def remove(self, names: Iterable[str]) -> None:
        """Remove files, in the order given; those that are gone already are not missed.

        What was written before survives then: it may be what replaces them.
        """
        for name in names:
            self.sync()
            with self._translated(f"remove {name}"), suppress(FileNotFoundError):
                self._files.rm_file(self._path(name))

    def remove_folder(self, folder: str) -> None:
        """Remove a folder with all that is in it; what was written before survives then."""
        self.sync()
        with self._translated(f"remove {folder}"):
            if self._is_local:
                remove_tree(Path(self._path(folder)))
            else:
                self._files.rm(self._path(folder), recursive=True)

    def _path(self, name: str) -> str:
        return f"{self._root}/{relative_name(name)}"

    @contextmanager
    def _translated(self, doing: str) -> Iterator[None]:
        """Whatever a file system raises, as an error of ours."""
        try:
            yield
        except TidelockError:
            raise
        except Exception as error:
            raise BackendUnavailable(
                f"the backup at {self.url} does not work: cannot {doing} ({redacted(repr(error))}); the next pass "
                "tries again"
            ) from error


@contextmanager
def _placed(path: Path) -> Iterator[BinaryIO]:
    """A file of a disk: written aside, synced and renamed; nothing is left of it if that fails."""
    aside = path.with_name(f".{path.name[:100]}.{uuid.uuid4().hex}")
    try:
        with os.fdopen(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _FILE), "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise


def _is_ours(name: str) -> bool:
    """Whether it can be a file of a copy: not hidden, and in no place that a local path cannot be (`a/../b`)."""
    return is_relative_name(name) and not name.rpartition("/")[2].startswith(".")


def checksum(file: Path) -> tuple[int, int]:
    """The size and the CRC-32 of a local file.

    Raises:
        FileNotFoundError: there is none.
    """
    size, crc32 = 0, 0
    with file.open("rb") as content:
        while chunk := content.read(_CHUNK):
            size, crc32 = size + len(chunk), zlib.crc32(chunk, crc32)
    return size, crc32
