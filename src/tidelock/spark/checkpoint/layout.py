"""What Spark calls the files of a checkpoint, and which of them belong to which batch. Pure: written here only.

Paths are relative to the checkpoint:

    metadata                                     the query's identity
    offsets/<batch>, commits/<batch>             a batch is committed when it has both
    sources/<source>/...                         what sources remember
    state/<operator>/<partition>/[<store>/]      <version>.delta, .changelog: what one batch changed
                                                 <version>.snapshot, .zip: all of it
                                                 SSTs/, logs/: what a .zip refers to
    state/<operator>/_metadata/...               how to read it

Batch *b* leaves state version *b* + 1. Beside a file may lie a checksum of Hadoop's, `.<name>.crc`; what is being
written has a name that begins with a dot, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

METADATA = "metadata"
OFFSETS = "offsets"
COMMITS = "commits"
SOURCES = "sources"
STATE = "state"
OF_QUERY_RUN = (OFFSETS, COMMITS, STATE)
"""What has to be empty for a query to begin anew; the rest stays."""
FIRST_BATCH = 0
COMPACTED = ".compact"
"""What the name of a step of a file source ends with that has all steps before in it."""

_CHANGES = ("delta", "changelog")
_FULL = ("snapshot", "zip")
_STATE_NAME = re.compile(rf"(\d+)\.({'|'.join((*_CHANGES, *_FULL))})")
_REFERRED_TO = ("SSTs", "logs")
"""What the state files of RocksDB refer to; the names in there are RocksDB's own."""


def offsets_file(batch: int) -> str:
    """Where a batch begins and ends; written before it runs."""
    return f"{OFFSETS}/{batch}"


def commit_file(batch: int) -> str:
    """That a batch is done."""
    return f"{COMMITS}/{batch}"


def batch_numbers(names: Iterable[str]) -> set[int]:
    """The batches, or steps of a source, whose files have these names in their folder.

    >>> sorted(batch_numbers(["7", "8", ".8.crc", ".9.1f.tmp"]))
    [7, 8]
    """
    return {int(name) for name in names if name.isdecimal()}


@dataclass(frozen=True, order=True)
class LogFile:
    """A file of one of Spark's two logs; they sort in the order in which Spark writes them.

    >>> [file.path for file in sorted([LogFile(8, False), LogFile(7, True), LogFile(7, False)])]
    ['offsets/7', 'commits/7', 'offsets/8']
    """

    batch: int
    is_commit: bool

    @property
    def path(self) -> str:
        """Where it is."""
        return commit_file(self.batch) if self.is_commit else offsets_file(self.batch)


def log_file(path: str) -> LogFile | None:
    """What a path says of a file of Spark's two logs; None if it is no such file.

    >>> log_file("commits/7"), log_file("offsets/.7.crc"), log_file("state/0/0/7.delta")
    (LogFile(batch=7, is_commit=True), None, None)
    """
    folder, _, name = path.partition("/")
    return LogFile(int(name), folder == COMMITS) if folder in (OFFSETS, COMMITS) and name.isdecimal() else None


def checksum_name(name: str) -> str:
    """The name of the checksum that Hadoop may keep beside a file of this name."""
    return f".{name}.crc"


@dataclass(frozen=True)
class StateFile:
    """One version of a state store, or what has changed since the one before."""

    store: str
    version: int
    is_full: bool


def state_file(path: str) -> StateFile | None:
    """What a path says of a file of state; None if it is no version of a store.

    >>> state_file("state/0/3/left/8.zip")
    StateFile(store='state/0/3/left', version=8, is_full=True)
    >>> state_file("state/0/3/8.delta").is_full, state_file("state/0/_metadata/metadata"), state_file("offsets/8")
    (False, None, None)
    """
    store, _, name = path.rpartition("/")
    found = _STATE_NAME.fullmatch(name)
    if found is None or not store.startswith(f"{STATE}/"):
        return None
    return StateFile(store, int(found[1]), found[2] in _FULL)


def is_known_state(path: str) -> bool:
    """Whether a file of state has a name that is understood; of other files that is not asked."""
    folder, *inside = path.split("/")
    if folder != STATE or any(part.startswith((".", "_")) or part in _REFERRED_TO for part in inside):
        return True
    return _STATE_NAME.fullmatch(inside[-1]) is not None


def version_after(batch: int) -> int:
    """The version of state that a batch leaves."""
    return batch + 1


def is_numbered(path: str) -> bool:
    """Whether a file belongs to one batch, so that others can do without it."""
    return state_file(path) is not None or log_file(path) is not None


def belongs(path: str, batch: int) -> bool:
    """Whether a file of a checkpoint belongs to its batches up to ``batch``.

    >>> [belongs(path, 7) for path in ("offsets/7", "commits/8", "state/0/0/8.delta", "state/0/0/9.delta")]
    [True, False, True, False]
    >>> [belongs(path, 7) for path in ("metadata", "sources/0/12", "state/0/0/.8.delta.crc", "offsets/.8.tmp")]
    [True, True, False, False]
    """
    if any(part.startswith(".") for part in path.split("/")):
        return False
    if (state := state_file(path)) is not None:
        return state.version <= version_after(batch)
    if (logged := log_file(path)) is not None:
        return logged.batch <= batch
    return path == METADATA or path.startswith((f"{SOURCES}/", f"{STATE}/"))
