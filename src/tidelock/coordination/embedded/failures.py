"""What an error of SQLite means to a user of the tree."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tidelock.errors import BackendUnavailable, InternalError, LogCorrupt, TidelockError

__all__ = ["is_busy", "translated"]

_RETRYABLE = {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_PROTOCOL,
    sqlite3.SQLITE_READONLY,
}


@contextmanager
def translated(file: Path) -> Iterator[None]:
    """Turn errors of SQLite and of the file system about `file` into Tidelock's own."""
    try:
        yield
    except sqlite3.Error as error:
        raise _translation(error, file) from error
    except OSError as error:
        raise BackendUnavailable(
            f"{file} cannot be used ({error}): check the folder and its permissions"
        ) from error


def is_busy(error: sqlite3.Error) -> bool:
    """Say whether another process held a lock for too long."""
    return _code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _translation(error: sqlite3.Error, file: Path) -> TidelockError:
    if is_busy(error):
        return BackendUnavailable(
            f"{file} is locked by another process ({error}): try again, or look for a process that "
            "is stopped in the middle of a change"
        )
    if _code(error) in _RETRYABLE:
        return BackendUnavailable(
            f"{file} cannot be used ({error}): check free space and permissions, then try again"
        )
    if isinstance(error, sqlite3.IntegrityError | sqlite3.ProgrammingError):
        return InternalError(f"{file}: a rule of the embedded tree was broken ({error}); report it")
    return LogCorrupt(
        f"{file} is damaged ({error}): stop every process that uses it and restore a copy, or move "
        "it away to start with an empty tree"
    )


def _code(error: sqlite3.Error) -> int | None:
    """Return the primary result code; errors of the Python layer have none."""
    extended = getattr(error, "sqlite_errorcode", None)
    return None if extended is None else extended & 0xFF
