"""One connection to the SQLite file of an embedded tree, and transactions on it.

Writers queue up by ``BEGIN IMMEDIATE``; readers see a snapshot and never wait (write-ahead log). A
killed process leaves at most an unfinished transaction, which whoever opens the file next ignores.

The file is never opened by other means in this process: closing any other descriptor of it would
drop the locks that SQLite holds on it (a rule of POSIX).
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tidelock.coordination.embedded.failures import translated
from tidelock.coordination.embedded.schema import connect
from tidelock.coordination.errors import SessionExpired
from tidelock.errors import LogCorrupt

__all__ = ["Database"]


class Database:
    """A connection that several threads may share, one transaction at a time.

    Raises `BackendUnavailable` when the file is locked for longer than `busy_timeout` seconds or
    the disk refuses, and `LogCorrupt` when the file is damaged, removed or replaced.
    """

    def __init__(self, file: Path, *, busy_timeout: float, durable: bool = True) -> None:
        """Open `file`, creating it if needed; a `durable` commit survives a power cut."""
        self.file = file
        self._lock = threading.Lock()
        self._closed = False
        with translated(file):
            self._connection = connect(file, busy_timeout)
            self._connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            self._identity = self._file_identity()

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """Run a block of queries on one snapshot of the tree."""
        with self._transaction("BEGIN") as rows:
            yield rows

    @contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """Run a block while no other writer does; an exception undoes all of it."""
        with self._transaction("BEGIN IMMEDIATE") as rows:
            yield rows

    def data_version(self) -> int:
        """Return a number that is another one once any other connection has committed; cheap."""
        with self._lock, translated(self.file):
            self._require_usable()
            (version,) = self._connection.execute("PRAGMA data_version").fetchone()
            return int(version)

    def close(self) -> None:
        """Close the connection; every later call raises `SessionExpired`. Idempotent."""
        with self._lock:
            self._closed = True
            self._connection.close()

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[sqlite3.Connection]:
        with self._lock, translated(self.file):
            self._require_usable()
            self._connection.execute(begin)
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                # After some failures SQLite has rolled back by itself.
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    def _require_usable(self) -> None:
        if self._closed:
            raise SessionExpired(str(self.file))
        # To go on with a file that nobody else can see would mean two owners of everything.
        if self._file_identity() != self._identity:
            raise LogCorrupt(
                f"{self.file} was removed or replaced while in use: stop every process that uses "
                "it, then put it back or start with an empty tree"
            )

    def _file_identity(self) -> tuple[int, int] | None:
        try:
            status = self.file.stat()
        except FileNotFoundError:
            return None
        return status.st_dev, status.st_ino
