"""Which release this is."""

from __future__ import annotations

from importlib import metadata


def version() -> str:
    """The version of the package that is installed; of a source tree that is not, that it is none."""
    try:
        return metadata.version("tidelock")
    except metadata.PackageNotFoundError:
        return "0+source"
