"""Whether a machine keeps the interval between epochs that a pipeline asks for. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median

_IN_A_ROW = 20
"""So many batches in a row that take too long are no accident."""


@dataclass
class BatchPace:
    """Watches how long batches take beside the time that they have. Owned by one thread.

    Attributes:
        due: the seconds that a batch of each segment has, by the segments' names.
    """

    due: Mapping[str, float]
    _slow: dict[str, list[float]] = field(default_factory=dict)
    _last: dict[str, float] = field(default_factory=dict)
    _told: set[str] = field(default_factory=set)

    def look(self, segment: str, at: float, seconds: float, *, waits: bool = False) -> str | None:
        """What to say when the newest batch of a segment, committed ``at``, took ``seconds``; None if nothing.

        A batch that is looked at twice counts once. Said once for each segment. What a batch takes includes that
        it ``waits`` for room, which is the doing of others: the batches before it are not held against it.
        """
        if waits:
            self._slow.pop(segment, None)
        if at <= self._last.get(segment, 0.0):
            return None
        self._last[segment] = at
        slow = self._slow.setdefault(segment, [])
        if seconds <= self.due[segment]:
            slow.clear()
            return None
        slow.append(seconds)
        if len(slow) < _IN_A_ROW or segment in self._told:
            del slow[:-_IN_A_ROW]
            return None
        self._told.add(segment)
        return (
            f"the last {len(slow)} batches of {segment} took {median(slow):.3g} s each, and one is due every "
            f"{self.due[segment]:.3g} s: epochs come later than asked for and latency grows. Give the pipeline a "
            f"longer interval (epoch=), at least {_rounded(median(slow))} s, fewer segments, or more cores"
        )


def _rounded(seconds: float) -> str:
    """A little more than this, in two digits."""
    return f"{seconds * 1.2:.2g}"
