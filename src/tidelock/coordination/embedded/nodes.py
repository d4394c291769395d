"""The rules of the tree in SQL; each function runs inside a transaction of its caller.

`rows` is the connection of that transaction. Paths and data were checked by the caller. A parent's
``child_changes`` grows whenever a child comes or goes, and it numbers sequential nodes: that makes
their numbers grow, with gaps.
"""

from __future__ import annotations

import sqlite3

from tidelock.coordination.errors import (
    BadVersion,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
)
from tidelock.coordination.path_states import PathState
from tidelock.coordination.paths import ROOT, ancestors, parent
from tidelock.coordination.tree import Node

__all__ = [
    "children",
    "create",
    "create_missing_parents",
    "delete",
    "delete_owned_by",
    "delete_tree",
    "get",
    "path_state",
    "set_data",
]


def get(rows: sqlite3.Connection, path: str) -> Node:
    """Return the node or raise `NoNode`."""
    row = rows.execute("SELECT data, version, created, session FROM nodes WHERE path = ?", (path,)).fetchone()
    if row is None:
        raise NoNode(path)
    data, version, created, session = row
    return Node(data, version, created, ephemeral=session is not None)


def children(rows: sqlite3.Connection, path: str) -> list[str]:
    """Return the sorted names of the children, or raise `NoNode`."""
    get(rows, path)
    found = rows.execute("SELECT path FROM nodes WHERE parent = ?", (path,))
    return sorted(child.rpartition("/")[2] for (child,) in found)


def path_state(rows: sqlite3.Connection, path: str) -> PathState:
    """Take the state of a path or, without a node, of its nearest living ancestor."""
    candidates = [ROOT, *ancestors(path), path]
    marks = ", ".join("?" * len(candidates))
    found, *numbers = rows.execute(
        "SELECT path, created, version, child_changes FROM nodes"
        f" WHERE path IN ({marks}) ORDER BY length(path) DESC LIMIT 1",
        candidates,
    ).fetchone()
    return PathState(found == path, *numbers)


def create(rows: sqlite3.Connection, path: str, data: bytes, *, session: int | None, sequential: bool) -> str:
    """Insert a node, ephemeral if it has a `session`, and return its final path."""
    above = parent(path)
    row = rows.execute("SELECT child_changes, session FROM nodes WHERE path = ?", (above,)).fetchone()
    if row is None:
        raise NoNode(above)
    number, owner = row
    if owner is not None:
        raise NoChildrenForEphemerals(above)
    final = f"{path}{number:010d}" if sequential else path
    _insert(rows, final, above, data, session)
    return final


def create_missing_parents(rows: sqlite3.Connection, path: str) -> None:
    """Create every missing ancestor of `path`, persistent and empty."""
    for ancestor in ancestors(path):
        if not _exists(rows, ancestor):
            create(rows, ancestor, b"", session=None, sequential=False)


def set_data(rows: sqlite3.Connection, path: str, data: bytes, version: int | None) -> int:
    """Replace the data, if `version` allows, and return the new version."""
    current = _require_version(rows, path, version)
    rows.execute("UPDATE nodes SET data = ?, version = ? WHERE path = ?", (data, current + 1, path))
    return current + 1


def delete(rows: sqlite3.Connection, path: str, version: int | None) -> None:
    """Delete one childless node, if `version` allows."""
    _require_version(rows, path, version)
    if rows.execute("SELECT 1 FROM nodes WHERE parent = ? LIMIT 1", (path,)).fetchone():
        raise NotEmpty(path)
    rows.execute("DELETE FROM nodes WHERE path = ?", (path,))
    _count_child_change(rows, parent(path))


def delete_tree(rows: sqlite3.Connection, path: str) -> None:
    """Delete a node and everything below it."""
    get(rows, path)
    # "0" follows "/" in the alphabet: the range is exactly the paths that start with `path` + "/".
    rows.execute(
        "DELETE FROM nodes WHERE path = ? OR (path > ? AND path < ?)",
        (path, f"{path}/", f"{path}0"),
    )
    _count_child_change(rows, parent(path))


def delete_owned_by(rows: sqlite3.Connection, session: int) -> None:
    """Delete the ephemeral nodes of a session; they have no children."""
    owned = rows.execute("SELECT parent FROM nodes WHERE session = ?", (session,)).fetchall()
    rows.execute("DELETE FROM nodes WHERE session = ?", (session,))
    for (above,) in owned:
        _count_child_change(rows, above)


def _insert(rows: sqlite3.Connection, path: str, above: str, data: bytes, session: int | None) -> None:
    if _exists(rows, path):
        raise NodeExists(path)
    rows.execute(
        "INSERT INTO nodes (path, parent, data, session) VALUES (?, ?, ?, ?)",
        (path, above, data, session),
    )
    _count_child_change(rows, above)


def _exists(rows: sqlite3.Connection, path: str) -> bool:
    return rows.execute("SELECT 1 FROM nodes WHERE path = ?", (path,)).fetchone() is not None


def _require_version(rows: sqlite3.Connection, path: str, expected: int | None) -> int:
    """Return the current version, or raise `NoNode` or `BadVersion`."""
    current = get(rows, path).version
    if expected is not None and current != expected:
        raise BadVersion(path, expected)
    return current


def _count_child_change(rows: sqlite3.Connection, path: str) -> None:
    rows.execute("UPDATE nodes SET child_changes = child_changes + 1 WHERE path = ?", (path,))
