"""What the demo knows of the pipeline: what its home shows, and what was done to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tidelock.home.home import Home


@dataclass(frozen=True)
class DemoEvent:
    """Something that happened, ``seconds`` after the demo began; ``loud`` if the demo did it."""

    seconds: float
    text: str
    loud: bool = False

    def __str__(self) -> str:
        return f"{self.seconds:5.1f} s  {self.text}"


@dataclass
class DemoSegment:
    """One segment as a person sees it."""

    name: str
    operators: Sequence[str]
    state: str = "waiting"
    epochs: int = 0
    lag: int = 0
    """How many epochs it is behind its input."""
    restarts: int = 0

    def take(self, told: Mapping[str, Any]) -> None:
        """Take over what a status document says."""
        self.state, self.lag, self.restarts = told["state"], told["lag"], told["restarts"]
        self.epochs = max(self.epochs, told["epoch"] + 1)


@dataclass
class DemoView:
    """All that a screen shows."""

    goal: int
    segments: Sequence[DemoSegment]
    seconds: float = 0.0
    events: list[DemoEvent] = field(default_factory=list)

    def segment(self, name: str) -> DemoSegment:
        """The segment of that name."""
        return next(segment for segment in self.segments if segment.name == name)

    def epochs(self) -> dict[str, int]:
        """How many epochs each segment has finished."""
        return {segment.name: segment.epochs for segment in self.segments}


class DemoWatch:
    """Looks into the home of a pipeline, as `tidelock status` does."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._seen = 0

    def status(self, since: float) -> Mapping[str, Any] | None:
        """The newest status; None if the run that began after ``since`` has not told any."""
        status = self._home.document("status")
        return status if status is not None and status["at"] >= since else None

    def news(self) -> list[dict[str, Any]]:
        """The events that were not there at the last look."""
        events = self._home.events()
        new, self._seen = events[self._seen :], len(events)
        return new
