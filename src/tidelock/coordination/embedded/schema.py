"""The SQLite file of an embedded tree: its tables, its format number, and how it is opened."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

from tidelock.coordination.embedded.failures import is_busy
from tidelock.errors import PipelineError, UnsupportedFormat

__all__ = ["FORMAT", "connect"]

FORMAT = 1
_APPLICATION = 0x54494445  # "TIDE": tells our files from databases of other applications.

_TABLES = (
    """CREATE TABLE nodes (
        created       INTEGER PRIMARY KEY AUTOINCREMENT,  -- never used twice
        path          TEXT NOT NULL UNIQUE,
        parent        TEXT,                               -- NULL for the root
        data          BLOB NOT NULL,
        version       INTEGER NOT NULL DEFAULT 0,
        child_changes INTEGER NOT NULL DEFAULT 0,         -- also the source of sequence numbers
        session       INTEGER                             -- the owner, if ephemeral
    )""",
    "CREATE INDEX nodes_by_parent ON nodes (parent)",
    "CREATE INDEX nodes_by_session ON nodes (session) WHERE session IS NOT NULL",
    """CREATE TABLE sessions (
        id      INTEGER PRIMARY KEY AUTOINCREMENT,
        expiry  REAL NOT NULL,
        timeout REAL NOT NULL
    )""",
    "INSERT INTO nodes (path, data) VALUES ('/', x'')",
    f"PRAGMA application_id = {_APPLICATION}",
    f"PRAGMA user_version = {FORMAT}",
)


def connect(file: Path, busy_timeout: float) -> sqlite3.Connection:
    """Open `file`, creating it and its folder if needed; raises SQLite's own errors, and below.

    Raises:
        PipelineError: it is a folder or the database of another application.
        UnsupportedFormat: it was written by a newer Tidelock.
    """
    if file.is_dir():
        raise PipelineError(f"{file} is a folder: name a file in it for the embedded tree")
    file.parent.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(file, timeout=busy_timeout, isolation_level=None, check_same_thread=False)
    try:
        _prepare(connection, file, deadline=time.monotonic() + busy_timeout)
    except BaseException:
        connection.close()
        raise
    return connection


def _prepare(connection: sqlite3.Connection, file: Path, deadline: float) -> None:
    """Make a new file ready; several processes may do so at once.

    SQLite does not wait by itself where waiting could deadlock, as when two processes switch the
    same file to a write-ahead log, so the waiting is done here.
    """
    while True:
        try:
            if _is_new(connection, file):
                _use_write_ahead_log(connection, file)
                _create_tables(connection, file)
            return
        except sqlite3.OperationalError as error:
            if not is_busy(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.005)


def _is_new(connection: sqlite3.Connection, file: Path) -> bool:
    """Say whether the file is empty; refuse what is not an embedded tree of this format."""
    # One statement sees one moment, even while another process creates the tables.
    application, version, tables = connection.execute(
        "SELECT application_id, user_version, (SELECT count(*) FROM sqlite_schema)"
        " FROM pragma_application_id, pragma_user_version"
    ).fetchone()
    if (application, version, tables) == (0, 0, 0):
        return True
    if application != _APPLICATION:
        raise PipelineError(f"{file} is a database of another application: choose another file")
    if version != FORMAT:
        raise UnsupportedFormat(f"{file} has format {version}, this Tidelock knows {FORMAT}: upgrade Tidelock")
    return False


def _use_write_ahead_log(connection: sqlite3.Connection, file: Path) -> None:
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise PipelineError(f"{file} cannot use a write-ahead log: put it on a local disk")


def _create_tables(connection: sqlite3.Connection, file: Path) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        if _is_new(connection, file):
            for statement in _TABLES:
                connection.execute(statement)
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise
