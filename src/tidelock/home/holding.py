"""One process at a time in a home: a lock that is taken by who runs it, and looked at by who asks.

The lock is the kernel's, so it goes with the process, however that ends. It is taken twice, in two ways that do
not know of each other: with `flock`, which every release has taken and which decides, and as a lock of the open
file, which can be asked for without being taken. To take a lock only to see whether it is free would make a start
fail that comes at that moment.

Where nobody can tell without taking it (a system without locks of open files, or a process of release 0.1.0 that
runs there), it is taken for an instant, shared with others who ask; so whoever starts tries again for a moment.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from tidelock.errors import PipelineError

_NO_PLACE = {
    errno.EEXIST,
    errno.ENOENT,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.ELOOP,
    errno.ENAMETOOLONG,
}
"""What the system says of a path that cannot be a home, whoever tries again."""
_PATIENCE = 1.0
_TRY_EVERY = 0.02
_CAN_BE_ASKED = sys.platform == "linux" and hasattr(fcntl, "F_OFD_GETLK")
_FLOCK = "@hhqqi0q"
"""The kernel's description of a lock: type, origin, first byte, length (0: all), process."""


@contextmanager
def held(root: Path) -> Iterator[None]:
    """Hold the home at ``root`` for this process; it is made if it is not there.

    Raises:
        PipelineError: another process holds it, or it cannot be a home.
    """
    with _lock_file(root) as file:
        if not _taken(file):
            file.seek(0)
            raise PipelineError(
                f"{root} is in use by process {file.read().strip() or 'unknown'}: stop it with "
                f"`tidelock stop --home {root}`, or use another home"
            )
        with suppress(OSError):  # no room: who holds it is only told
            _sign(file)
        yield


def check_place(root: Path) -> None:
    """See that a home is or could be at ``root``: nothing is made.

    Raises:
        PipelineError: it is no directory, or below something that is none.
    """
    nearest = next(path for path in (root, *root.parents) if os.path.lexists(path))
    if not nearest.is_dir():
        raise _no_place(root, errno.EEXIST if nearest == root else errno.ENOTDIR)


def is_held(root: Path) -> bool:
    """Whether a process holds the home at ``root`` now. Takes nothing, so nobody who starts notices."""
    try:
        with (root / "lock").open("r") as file:
            if _CAN_BE_ASKED and _is_signed(file):
                return _is_locked(file)
            return not _is_free(file)
    except (FileNotFoundError, NotADirectoryError):
        return False


def _lock_file(root: Path) -> IO[str]:
    try:
        root.mkdir(parents=True, exist_ok=True)
        return (root / "lock").open("a+")
    except OSError as error:
        if error.errno not in _NO_PLACE:
            raise
        raise _no_place(root, error.errno) from error


def _no_place(root: Path, number: int) -> PipelineError:
    return PipelineError(
        f"{root} cannot be a home, {os.strerror(number).lower()}: give --home a directory that this user may make "
        "or write to"
    )


def _taken(file: IO[str]) -> bool:
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            # Perhaps by somebody who only asks, and lets go at once.
            if time.monotonic() > deadline or (_is_signed(file) and _is_locked(file)):
                return False
            time.sleep(_TRY_EVERY)
    if _CAN_BE_ASKED:
        fcntl.fcntl(file, fcntl.F_OFD_SETLK, _whole_file(fcntl.F_WRLCK))
    return True


def _sign(file: IO[str]) -> None:
    """Write down who holds the lock; the line's end says that the lock can be asked for."""
    # Past the file's buffer: what has no room must not stay there until the file is closed.
    os.ftruncate(file.fileno(), 0)
    os.write(file.fileno(), f"{os.getpid()}\n".encode())


def _is_signed(file: IO[str]) -> bool:
    file.seek(0)
    return file.read().endswith("\n")


def _is_locked(file: IO[str]) -> bool:
    if not _CAN_BE_ASKED:
        return False
    answer = fcntl.fcntl(file, fcntl.F_OFD_GETLK, _whole_file(fcntl.F_WRLCK))
    kind: int = struct.unpack(_FLOCK, answer)[0]
    return kind != fcntl.F_UNLCK


def _is_free(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _whole_file(kind: int) -> bytes:
    return struct.pack(_FLOCK, kind, os.SEEK_SET, 0, 0, 0)
