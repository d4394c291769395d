"""How a watch notices a change: the little that it remembers of a node, and a pure comparison."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from tidelock.coordination.tree import EventKind

__all__ = ["Glimpse", "differences", "glimpse"]


@dataclass(frozen=True, slots=True)
class Glimpse:
    """The three numbers of a node of which at least one changes whenever a watch must fire."""

    created: int
    version: int
    child_changes: int


def differences(before: Glimpse | None, after: Glimpse | None) -> list[EventKind]:
    """Return the kinds of events that lead from one glimpse to the next; None is "no node".

    >>> differences(None, Glimpse(7, 0, 0))
    [<EventKind.CREATED: 'created'>]
    >>> differences(Glimpse(7, 0, 0), Glimpse(7, 3, 1))
    [<EventKind.CHANGED: 'changed'>, <EventKind.CHILDREN: 'children'>]
    >>> differences(Glimpse(7, 0, 0), Glimpse(9, 0, 0))
    [<EventKind.DELETED: 'deleted'>, <EventKind.CREATED: 'created'>]
    """
    if before is None or after is None or before.created != after.created:
        gone = [EventKind.DELETED] if before is not None else []
        return gone + ([EventKind.CREATED] if after is not None else [])
    changed = [EventKind.CHANGED] if before.version != after.version else []
    moved = before.child_changes != after.child_changes
    return changed + ([EventKind.CHILDREN] if moved else [])


def glimpse(rows: sqlite3.Connection, path: str) -> Glimpse | None:
    """Take a glimpse of a path inside the caller's transaction."""
    row = rows.execute(
        "SELECT created, version, child_changes FROM nodes WHERE path = ?", (path,)
    ).fetchone()
    return None if row is None else Glimpse(*row)
