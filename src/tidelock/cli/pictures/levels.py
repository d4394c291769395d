"""How often something failed in the life of a home, by level: from a task to the whole machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any


def levels(events: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Count the failures that a home's events tell of, oldest event first.

    >>> levels([{"kind": "run started"}, {"kind": "task retry"}, {"kind": "run resumed"}])["process_restarts"]
    1
    """
    kinds = [event["kind"] for event in events]
    count = Counter(kinds)
    return {
        "task_retries": count["task retry"],
        "executors_lost": count["executor lost"],
        "segment_restarts": count["segment restart"],
        "process_restarts": _process_restarts(kinds),
        "restores": count["restored"],
    }


def _process_restarts(kinds: Iterable[str]) -> int:
    """How often a run came after one that had not ended, because its process was killed."""
    found, unended = 0, False
    for kind in kinds:
        if kind in ("run started", "run resumed"):
            found += unended
            unended = True
        elif kind in ("run ended", "restored"):
            unended = False
    return found
