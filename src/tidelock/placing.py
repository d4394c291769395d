"""Putting files in place: they are written aside and renamed, so everybody finds the old or the new one, whole."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

_OPEN_TO_ALL = 0o666


def put_file(path: Path, data: bytes, *, durable: bool, mode: int = _OPEN_TO_ALL) -> None:
    """Put a file with ``data`` at ``path``, in place of any that is there; its folder is made.

    Args:
        path: where.
        data: all that it holds.
        durable: it survives a loss of power from the moment on at which this returns.
        mode: who may do what, before the process's own mask.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    write_aside(path, data, durable=durable, mode=mode).replace(path)
    if durable:
        sync_folder(path.parent)


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


def sync_folder(folder: Path) -> None:
    """Make durable which files a folder has."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
