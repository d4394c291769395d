"""Paths that are made of stored names: never outside of where they belong."""

from __future__ import annotations

from pathlib import Path

from tidelock.errors import LogCorrupt
from tidelock.stored_names import relative_name


def inside(root: Path, name: str) -> Path:
    """The path of a stored relative name below ``root``; links that are there already lead out of it neither.

    Raises:
        LogCorrupt: it would be outside.
    """
    path = root / relative_name(name)
    if not path.resolve().is_relative_to(root.resolve()):
        raise LogCorrupt(f"{path} leads outside of {root} through a link: remove the link")
    return path
