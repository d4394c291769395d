"""What can go wrong in the shared tree, apart from a backend that does not answer.

    TidelockError
    ├── NodeError                      the node at `path` does not allow it; nothing was changed
    │   ├── NodeExists                 create: the path is taken
    │   ├── NoNode                     the node, or its parent, does not exist
    │   ├── BadVersion                 compare-and-set: somebody was faster
    │   ├── NotEmpty                   delete: the node has children
    │   └── NoChildrenForEphemerals    create: the parent is an ephemeral node
    ├── SessionExpired                 this client is over: open a new one
    └── LeaseHeld                      acquire: another holder did not let go in time

The arguments are kept as they are (``error.path``), so every error survives a trip through pickle.
A store that is busy raises ``BackendUnavailable``, damaged data ``LogCorrupt``, a wrong call
``PipelineError``: those live in ``tidelock.errors``.
"""

from __future__ import annotations

from tidelock.errors import TidelockError

__all__ = [
    "BadVersion",
    "LeaseHeld",
    "NoChildrenForEphemerals",
    "NoNode",
    "NodeError",
    "NodeExists",
    "NotEmpty",
    "SessionExpired",
]


class NodeError(TidelockError):
    """A node does not allow what was asked; nothing was changed."""

    def __init__(self, path: str, *details: object) -> None:
        super().__init__(path, *details)
        self.path = path


class NodeExists(NodeError):
    """A node with this path exists already."""

    def __str__(self) -> str:
        return f"node {self.path} exists already: use set() to change it, or create another path"


class NoNode(NodeError):
    """There is no node with this path."""

    def __str__(self) -> str:
        return (
            f"there is no node {self.path}: create it first, or let create(..., make_parents=True) "
            "do it; use find() where it may be absent"
        )


class BadVersion(NodeError):
    """The node is not at the expected version any more."""

    def __init__(self, path: str, expected: int) -> None:
        super().__init__(path, expected)
        self.expected = expected

    def __str__(self) -> str:
        return (
            f"node {self.path} is not at version {self.expected}: another client changed it; "
            "get() it again and decide anew"
        )


class NotEmpty(NodeError):
    """The node has children and cannot be deleted alone."""

    def __str__(self) -> str:
        return f"node {self.path} has children: delete them first, or pass recursive=True"


class NoChildrenForEphemerals(NodeError):
    """An ephemeral node cannot have children."""

    def __str__(self) -> str:
        return f"node {self.path} is ephemeral and cannot have children: create them elsewhere"


class SessionExpired(TidelockError):
    """The session of this client is over, and its ephemeral nodes are gone."""

    def __init__(self, tree: str) -> None:
        super().__init__(tree)
        self.tree = tree

    def __str__(self) -> str:
        return (
            f"the session with {self.tree} is over (closed, or not renewed within its time-out) "
            "and its ephemeral nodes are gone: open a new client and claim them again"
        )


class LeaseHeld(TidelockError):
    """Another holder kept the lease for the whole time-out."""

    def __init__(self, path: str, owner: str) -> None:
        super().__init__(path, owner)
        self.path = path
        self.owner = owner

    def __str__(self) -> str:
        return (
            f"lease {self.path} is held by {self.owner}: stop that holder, or wait longer "
            "(a dead one loses it after its session's time-out)"
        )
