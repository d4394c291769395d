"""How a watch notices a change: the little that it remembers of a path, and a pure comparison.

Two states are equal only if nothing happened to the path in between. For a node that exists three
numbers that only grow are enough. A path without a node needs care: a node may have come and gone
since, and whoever watches may have seen it. So an absent node has numbers too, and whatever may have
passed meanwhile makes them differ; each backend has its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidelock.coordination.tree import EventKind

__all__ = ["PathState", "differences"]


@dataclass(frozen=True, slots=True)
class PathState:
    """What a path looked like."""

    exists: bool
    created: int
    version: int
    child_changes: int


def differences(before: PathState, after: PathState) -> list[EventKind]:
    """Return the kinds of events that lead from one state of a path to the next.

    >>> absent, present = PathState(False, 1, 0, 4), PathState(True, 7, 0, 0)
    >>> differences(absent, present)
    [<EventKind.CREATED: 'created'>]
    >>> differences(present, PathState(True, 7, 3, 1))
    [<EventKind.CHANGED: 'changed'>, <EventKind.CHILDREN: 'children'>]
    >>> differences(present, PathState(True, 9, 0, 0))
    [<EventKind.DELETED: 'deleted'>, <EventKind.CREATED: 'created'>]
    >>> differences(absent, PathState(False, 1, 0, 6))
    [<EventKind.DELETED: 'deleted'>]
    """
    if before.exists and after.exists and before.created == after.created:
        changed = [EventKind.CHANGED] if before.version != after.version else []
        moved = before.child_changes != after.child_changes
        return changed + ([EventKind.CHILDREN] if moved else [])
    if not before.exists and not after.exists:
        same = (before.created, before.child_changes) == (after.created, after.child_changes)
        return [] if same else [EventKind.DELETED]
    gone = [EventKind.DELETED] if before.exists else []
    return gone + ([EventKind.CREATED] if after.exists else [])
