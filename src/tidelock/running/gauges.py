"""What a running pipeline shows of itself: values, made by the supervisor's thread and read by any other."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from tidelock.epochs import Epoch
from tidelock.recovery import SegmentState
from tidelock.spark.query.listening import BatchProgress

_SETTLED = 4
_REMEMBERED = 30


@dataclass(frozen=True)
class Gauge:
    """What Spark last said about a segment. Immutable."""

    rows_per_second: float = 0.0
    batch_seconds: float = 0.0
    state_rows: int = 0
    state_bytes: int = 0
    at: float = 0.0
    taken: tuple[tuple[float, int], ...] = ()
    """When the newest batches were committed, and their rows."""

    @property
    def is_settled(self) -> bool:
        """Whether it has seen enough batches to speak of a rate."""
        return len(self.taken) >= _SETTLED

    @property
    def rows_in_per_second(self) -> float:
        """The rows that come in, over the newest batches."""
        if len(self.taken) < 2:
            return 0.0
        (first, _), *later = self.taken
        return sum(rows for _, rows in later) / max(later[-1][0] - first, 1e-3)

    def after(self, progress: BatchProgress) -> Gauge:
        """The gauge when a batch was committed."""
        now = time.monotonic()
        return Gauge(
            progress.rows_per_second,
            progress.seconds,
            progress.state_rows,
            progress.state_bytes,
            now,
            (*self.taken, (now, progress.rows))[-_REMEMBERED:],
        )


@dataclass(frozen=True)
class SegmentView:
    """A segment at one moment. Immutable."""

    state: SegmentState
    paused: bool
    """Its batch waits for room in the log that it writes."""
    epoch: Epoch
    restarts: int
    last_error: str | None
    gauge: Gauge


@dataclass(frozen=True)
class RunView:
    """A running pipeline at one moment. Immutable, so whoever shows it asks nobody who works."""

    state: str
    """`running`, `stopped` or `failed`."""
    segments: Mapping[str, SegmentView]
