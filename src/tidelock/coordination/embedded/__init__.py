"""The shared tree in one SQLite file, for any number of processes on one machine."""

from tidelock.coordination.embedded.client import EmbeddedTree

__all__ = ["EmbeddedTree"]
