"""How a watch notices a change: the little that it remembers of a path, and a pure comparison.

Two glimpses are equal only if nothing happened to the path in between. For a node that exists three
numbers that only grow are enough. A path without a node needs care: a node may have come and gone
since, and whoever watches may have seen it. Then its nearest living ancestor has changed.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from tidelock.coordination.paths import ROOT, ancestors
from tidelock.coordination.tree import EventKind

__all__ = ["Glimpse", "differences", "glimpse"]


@dataclass(frozen=True, slots=True)
class Glimpse:
    """What a path looked like; the numbers are the nearest living ancestor's if not `exists`."""

    exists: bool
    created: int
    version: int
    child_changes: int


def differences(before: Glimpse, after: Glimpse) -> list[EventKind]:
    """Return the kinds of events that lead from one glimpse of a path to the next.

    >>> absent, present = Glimpse(False, 1, 0, 4), Glimpse(True, 7, 0, 0)
    >>> differences(absent, present)
    [<EventKind.CREATED: 'created'>]
    >>> differences(present, Glimpse(True, 7, 3, 1))
    [<EventKind.CHANGED: 'changed'>, <EventKind.CHILDREN: 'children'>]
    >>> differences(present, Glimpse(True, 9, 0, 0))
    [<EventKind.DELETED: 'deleted'>, <EventKind.CREATED: 'created'>]
    >>> differences(absent, Glimpse(False, 1, 0, 6))
    [<EventKind.DELETED: 'deleted'>]
    """
    if before.exists and after.exists and before.created == after.created:
        changed = [EventKind.CHANGED] if before.version != after.version else []
        moved = before.child_changes != after.child_changes
        return changed + ([EventKind.CHILDREN] if moved else [])
    if not before.exists and not after.exists:
        # Its version is the ancestor's own business.
        same = (before.created, before.child_changes) == (after.created, after.child_changes)
        return [] if same else [EventKind.DELETED]
    gone = [EventKind.DELETED] if before.exists else []
    return gone + ([EventKind.CREATED] if after.exists else [])


def glimpse(rows: sqlite3.Connection, path: str) -> Glimpse:
    """Take a glimpse of a path inside the caller's transaction."""
    candidates = [ROOT, *ancestors(path), path]
    marks = ", ".join("?" * len(candidates))
    found, *numbers = rows.execute(
        "SELECT path, created, version, child_changes FROM nodes"
        f" WHERE path IN ({marks}) ORDER BY length(path) DESC LIMIT 1",
        candidates,
    ).fetchone()
    return Glimpse(found == path, *numbers)
