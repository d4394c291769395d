"""Putting files in place: they are written aside and renamed, so everybody finds the old or the new one, whole.

And removing whole folders, so that it is noticed if that fails.
"""

from __future__ import annotations

import errno
import os
import shutil
import uuid
from contextlib import nullcontext, suppress
from itertools import takewhile
from pathlib import Path

_OPEN_TO_ALL = 0o666
_FOLDER_OPEN_TO_ALL = 0o777
_kept: set[Path] = set()
"""The folders that this process knows to survive a loss of power, with all above them. Used by any thread."""


def has_no_room(error: OSError) -> bool:
    """Whether that is what a full disk, or one's share of it, answers."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def put_file(path: Path, data: bytes, *, durable: bool, mode: int = _OPEN_TO_ALL) -> None:
    """Put a file with ``data`` at ``path``, in place of any that is there; its folder is made.

    Args:
        path: where.
        data: all that it holds.
        durable: it survives a loss of power from the moment on at which this returns.
        mode: who may do what, before the process's own mask.
    """
    if durable:
        make_folder(path.parent)
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
    write_aside(path, data, durable=durable, mode=mode).replace(path)
    if durable:
        sync_folder(path.parent)


def add_file(path: Path, data: bytes) -> bool:
    """Put a durable file with ``data`` at ``path``, whole, unless one is there: of many who try one succeeds."""
    make_folder(path.parent)
    aside = write_aside(path, data, durable=True)
    try:
        os.link(aside, path)
    except FileExistsError:
        return False
    finally:
        aside.unlink()
    sync_folder(path.parent)
    return True


def write_aside(path: Path, data: bytes, *, durable: bool, mode: int = _OPEN_TO_ALL) -> Path:
    """Write ``data`` to a hidden file beside ``path``; nothing is left of it if that fails."""
    aside = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with os.fdopen(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(data)
            if durable:
                file.flush()
                os.fsync(file.fileno())
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
    return aside


def remove_tree(folder: Path, *, durable: bool = False) -> None:
    """Remove a folder with all that is in it; one that is not there is not missed.

    Args:
        folder: which.
        durable: that it is gone survives a loss of power from the moment on at which this returns.

    Raises:
        OSError: something of it could not be removed.
    """
    try:
        shutil.rmtree(folder)
    except FileNotFoundError:
        if folder.exists():  # somebody else removes files in there at the same time
            raise
    finally:
        gone = folder.absolute()
        _kept.difference_update(kept for kept in _kept.copy() if kept.is_relative_to(gone))
    if durable and folder.parent.exists():
        sync_folder(folder.parent)


def sync_tree(folder: Path) -> None:
    """Make a folder durable with all that is in it."""
    for below, _, names in os.walk(folder):
        for name in names:
            sync_folder(Path(below) / name)
        sync_folder(Path(below))


def make_folder(folder: Path, *, mode: int = _FOLDER_OPEN_TO_ALL) -> None:
    """Make a folder, and those above it that are missing; that they are there survives a loss of power.

    A folder that is there already may have been made a moment ago, and those above it too, by somebody who has not
    synced them. So each process syncs every one of them once; where it may not, they belong to others.

    Args:
        folder: which.
        mode: who may do what in those that are made, before the process's own mask.
    """
    folder = folder.absolute()
    if folder in _kept and folder.is_dir():
        return
    chain = (folder, *folder.parents)
    missing = {above for above in chain if not above.exists()}
    for above in reversed([above for above in chain[1:] if above in missing]):
        above.mkdir(mode=mode, exist_ok=True)
    folder.mkdir(mode=mode, parents=True, exist_ok=True)
    unsynced = list(takewhile(lambda above: above in missing or above not in _kept, chain))
    for made in unsynced:
        with nullcontext() if made in missing else suppress(OSError):
            sync_folder(made.parent)
    _kept.update(unsynced)  # not before all of it is kept: others rely on what they find there


def sync_folder(folder: Path) -> None:
    """Make durable which files a folder has; of a file, what it holds.

    There are disks, mostly mounted from elsewhere, that cannot be asked to do that for a folder: they do it or
    not.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP) or not folder.is_dir():
            raise
    finally:
        os.close(descriptor)
