"""The shared tree: what independent processes agree on, as nodes with versions.

Theory of operation. Every node has a path, some bytes and a version. A version starts at 0 and
grows by exactly 1 at every `Tree.set`, so "set if the version is still 7" is an atomic step that
exactly one of many clients can win. Likewise exactly one of many clients can win the `create` of a
path. Everything else (leases, the alignment of jobs) is built from these two steps.

A client has a *session*. Its ephemeral nodes live as long as the session: until `Tree.close`, or
until the session was not renewed for its time-out because the process is dead, stopped or cut off.
Whoever loses the session learns it from `SessionExpired`, raised by every later call.

A watch tells that something changed, never what: an event means "look again". Events may be merged
(ten changes, one event) and repeated, but after the last change there is always one more event. So
watch first and read afterwards, and no change can slip through.

What every back end promises is written once more as tests: `tidelock.testing.contracts.trees`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Self

from tidelock.coordination.errors import NoNode

__all__ = ["Event", "EventKind", "Node", "Tree", "Watch"]


@dataclass(frozen=True, slots=True)
class Node:
    """One node as it was at one moment.

    `created` grows with every creation in the tree: a node that was deleted and created again under
    the same path has the same version 0 but another `created`.
    """

    data: bytes
    version: int
    created: int
    ephemeral: bool


class EventKind(Enum):
    """What a watch noticed about its path."""

    CREATED = "created"
    CHANGED = "changed"
    DELETED = "deleted"
    """The node is gone; a watch on a path without a node may get this when a neighbour changed."""
    CHILDREN = "children"
    """A child was created or deleted; a child's own data does not count."""
    EXPIRED = "expired"
    """The session is over, lost or closed; the last event of every watch that is still open."""


@dataclass(frozen=True, slots=True)
class Event:
    """A hint to look again at `path`; it carries no data on purpose, for it may be late."""

    kind: EventKind
    path: str


class Watch(ABC):
    """A running watch; closing it twice is allowed, as is closing it from its own callback."""

    @abstractmethod
    def close(self) -> None:
        """Stop watching; a callback that is starting at this very moment may still run."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Tree(ABC):
    """A client of the shared tree; thread-safe, but not usable in a forked child.

    Every method may raise `BackendUnavailable` (retry), `SessionExpired` (open a new client) and
    `PipelineError` (a bad path or value). A change is durable and visible to every client once the
    method has returned.
    """

    @abstractmethod
    def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        make_parents: bool = False,
    ) -> str:
        """Create a node at version 0 and return its path; of many clients exactly one succeeds.

        Args:
            path: where; the parent must exist unless `make_parents` is set.
            data: at most `MAX_DATA` bytes.
            ephemeral: delete the node when this client's session ends.
            sequential: append a number of ten digits that grows within the parent (gaps happen).
            make_parents: create missing ancestors first, persistent and empty.

        Raises:
            NodeExists: the path is taken.
            NoNode: the parent does not exist.
            NoChildrenForEphemerals: the parent is ephemeral.
        """

    @abstractmethod
    def get(self, path: str) -> Node:
        """Return the node; raise `NoNode` if there is none."""

    def find(self, path: str) -> Node | None:
        """Return the node, or None if there is none."""
        try:
            return self.get(path)
        except NoNode:
            return None

    @abstractmethod
    def set(self, path: str, data: bytes, *, version: int | None = None) -> int:
        """Replace the data and return the new version, which is the old one plus 1.

        With `version`, do so only if the node still has that version (compare-and-set).

        Raises:
            NoNode: there is no such node.
            BadVersion: the node has another version.
        """

    @abstractmethod
    def delete(self, path: str, *, version: int | None = None, recursive: bool = False) -> None:
        """Delete a node, with `version` only if it still has that version.

        `recursive` deletes everything below it too. Readers may see a recursive deletion half done,
        because not every backend can do it in one step; for the same reason it takes no `version`.

        Raises:
            NoNode: there is no such node.
            BadVersion: the node has another version.
            NotEmpty: it has children and `recursive` is not set.
            PipelineError: the root, or `version` together with `recursive`.
        """

    @abstractmethod
    def children(self, path: str) -> list[str]:
        """Return the names (not paths) of the children, sorted; raise `NoNode` if there is none."""

    @abstractmethod
    def watch(self, path: str, callback: Callable[[Event], None]) -> Watch:
        """Call `callback` after every change of `path` or of its list of children.

        The node need not exist. Changes made after this returns are reported, those before may be.
        Callbacks run one after another on a background thread of this client; they may use the tree
        but should be quick. One that raises is logged, and its watch goes on.
        """

    @abstractmethod
    def close(self) -> None:
        """End the session: ephemeral nodes vanish, watches end. Idempotent."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
