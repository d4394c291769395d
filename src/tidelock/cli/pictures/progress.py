"""How far a running pipeline is, in one line: epochs, rows per second, what is behind, and what it waits for."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

_STILL = 5.0
"""After how many seconds without an epoch it is worth saying so."""
_USUAL = "running"
"""The state of a segment that needs no word."""


@dataclass(frozen=True)
class Goal:
    """When a run ends by itself.

    Attributes:
        last_epoch: With this epoch, if it is not None.
        drain: When it has taken what is there.
    """

    last_epoch: int | None = None
    drain: bool = False


@dataclass(frozen=True)
class Progress:
    """How far a pipeline is.

    Attributes:
        epoch: The newest epoch that has gone through everywhere; -1 if there is none.
        newest: The newest epoch that was begun by all that read sources.
        rows_per_second: What comes in from the sources.
        lag: How many epochs the segment that is furthest behind has still to read.
        behind: That segment, if it is behind.
        still: For how many seconds the sources have made no epoch.
        last_epoch: The epoch with which the run is going to end, if that was said.
        not_running: The segments that are not running, each with its state.
    """

    epoch: int
    newest: int
    rows_per_second: float
    lag: int
    behind: str | None
    still: float
    last_epoch: int | None
    not_running: dict[str, str]

    def fields(self) -> dict[str, Any]:
        """All of it, for machines."""
        return asdict(self)


class Meter:
    """Makes progress of one status after the other. One thread at a time."""

    def __init__(self, goal: Goal, clock: Callable[[], float] = time.monotonic) -> None:
        self._goal = goal
        self._clock = clock
        self._newest = -2
        self._moved = clock()

    def read(self, status: Mapping[str, Any]) -> Progress:
        """How far it is now."""
        segments = status["segments"]
        heads = [segment for segment in segments if not segment["inputs"]] or segments[:1]
        slowest = max(segments, key=lambda segment: segment["lag"])
        newest = min(head["epoch"] for head in heads)
        if newest != self._newest:
            self._newest, self._moved = newest, self._clock()
        return Progress(
            epoch=status["epoch"],
            newest=newest,
            rows_per_second=sum(head.get("rows_in_per_second", 0.0) for head in heads),
            lag=slowest["lag"],
            behind=slowest["name"] if slowest["lag"] else None,
            still=round(self._clock() - self._moved, 1),
            last_epoch=self._goal.last_epoch,
            not_running={s["name"]: s["state"] for s in segments if s["state"] != _USUAL},
        )

    def told(self, progress: Progress) -> str:
        """The same for people, without the epoch itself."""
        parts = [f"{progress.rows_per_second:,.0f} rows/s", _lag(progress)]
        parts += [f"{name} is {state}" for name, state in progress.not_running.items()]
        if self._is_still(progress):
            missed = "no first epoch yet, after" if progress.newest < 0 else "no new data for"
            parts.append(f"{missed} {progress.still:.0f} s{self._waits(progress)}")
        elif progress.last_epoch is not None and progress.newest <= progress.last_epoch:
            parts.append(f"ends with epoch {progress.last_epoch}")
        elif self._goal.drain:
            parts.append("ends when it has taken what is there")
        return ", ".join(parts)

    def _is_still(self, progress: Progress) -> bool:
        """Whether it waits for its sources: everything else is ready for more."""
        done = progress.last_epoch is not None and progress.newest >= progress.last_epoch
        return progress.still >= _STILL and not (progress.lag or progress.not_running or done)

    def _waits(self, progress: Progress) -> str:
        if progress.last_epoch is None:
            return ""
        missing = progress.last_epoch - progress.newest
        return f": waits for {missing} more epoch{'s' * (missing > 1)}, up to {progress.last_epoch}"


def _lag(progress: Progress) -> str:
    if progress.behind is None:
        return "nothing behind"
    return f"{progress.behind} {progress.lag} epoch{'s' * (progress.lag > 1)} behind"


def segments_told(status: Mapping[str, Any]) -> str:
    """Each segment with its state, where that is not the usual one, its epoch, and how it does."""
    return " | ".join(_segment(segment) for segment in status["segments"])


def _segment(segment: Mapping[str, Any]) -> str:
    state = "" if segment["state"] == _USUAL else f" {segment['state']}"
    epoch = "no epoch" if segment["epoch"] < 0 else f"epoch {segment['epoch']}"
    rates = f"{segment['rows_per_second']:,.0f} rows/s, {segment['batch_seconds']:g} s per batch"
    behind = f", {segment['lag']} behind" if segment["lag"] else ""
    return f"{segment['name']}{state}: {epoch}{behind}, {rates}"
