"""The shared tree: where independent jobs agree on names, epochs and who may write.

`open_tree` picks the backend by the scheme of a URL. The interface is `Tree`; leases with fencing
tokens (`Lease`) are built on it once, for every backend. See ``docs/coordination.md``.
"""

from __future__ import annotations

from collections.abc import Callable

from tidelock.backends import Registry
from tidelock.coordination.embedded import EmbeddedTree
from tidelock.coordination.errors import (
    BadVersion,
    LeaseHeld,
    NoChildrenForEphemerals,
    NodeError,
    NodeExists,
    NoNode,
    NotEmpty,
    SessionExpired,
)
from tidelock.coordination.lease import Lease
from tidelock.coordination.tree import Event, EventKind, Node, Tree, Watch
from tidelock.errors import PipelineError

__all__ = [
    "BadVersion",
    "EmbeddedTree",
    "Event",
    "EventKind",
    "Lease",
    "LeaseHeld",
    "NoChildrenForEphemerals",
    "NoNode",
    "Node",
    "NodeError",
    "NodeExists",
    "NotEmpty",
    "SessionExpired",
    "Tree",
    "Watch",
    "check_tree_url",
    "open_tree",
]


_TREES: Registry[Callable[[float], Tree]] = Registry(
    "tidelock.trees",
    {
        "embedded": "tidelock.coordination.embedded:EmbeddedTree.at",
        "zookeeper": "tidelock.coordination.zookeeper:ZooKeeperTree.at",
    },
)
"""What reads a URL, and gives what opens the tree there."""


def open_tree(url: str, *, session_timeout: float = 10.0) -> Tree:
    """Open a client of the tree at `url`: ``embedded:/var/lib/tidelock/tree.db`` or ``zookeeper://host:2181``.

    `session_timeout` is how many seconds this client may be dead or stopped before its ephemeral
    nodes vanish. Close the client, or use it as a context manager.

    Raises:
        PipelineError: the URL is malformed or its scheme unknown.
        BackendUnavailable: the backend does not answer.
    """
    return _placed(url)(session_timeout)


def check_tree_url(url: str) -> None:
    """See that `url` names a tree that could be opened; nothing is.

    Raises:
        PipelineError: the URL is malformed, its scheme unknown, or the package for it not installed.
    """
    _placed(url)


def _placed(url: str) -> Callable[[float], Tree]:
    scheme, colon, _ = url.partition(":")
    backend = _TREES.find(url) if colon else None
    if backend is None:
        known = ", ".join(f"{name}:" for name in _TREES.schemes())
        # What follows the scheme may hold a password.
        shown = f"{scheme}://..." if "@" in url else url
        raise PipelineError(f"no coordination backend for {shown!r}: use one of {known}")
    return backend(url)
