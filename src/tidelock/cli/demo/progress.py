"""What the demo knows of its queries: what their logs show, and what it did to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from tidelock.epochs import BEFORE_FIRST, EpochRange
from tidelock.errors import LogCorrupt, LogNotFound
from tidelock.log import EpochLog


class State(Enum):
    """What a query is doing."""

    STARTING = "starting"
    RUNNING = "running"
    KILLED = "killed"
    RESTARTING = "restarting"
    DONE = "done"


@dataclass(frozen=True)
class Event:
    """Something that happened, ``seconds`` after the demo began."""

    seconds: float
    text: str

    def __str__(self) -> str:
        return f"{self.seconds:5.1f} s  {self.text}"


class LogWatch:
    """What one log shows at each look; it goes on counting the rows of entries that the log has dropped."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._rows: dict[EpochRange, int] = {}
        self.newest: int = BEFORE_FIRST
        self.kept: tuple[EpochRange, ...] = ()
        self.cursor: int = BEFORE_FIRST

    @property
    def rows(self) -> int:
        """The rows of all entries seen so far."""
        return sum(self._rows.values())

    def look(self) -> None:
        """Take in what the log holds now; a log that is not there yet holds nothing."""
        try:
            log = EpochLog.open(self._url)
        except LogNotFound:
            return
        self.kept = tuple(log.ranges())
        self.newest = self.kept[-1].last if self.kept else BEFORE_FIRST
        self.cursor = min(log.cursors().values(), default=BEFORE_FIRST)
        for covers in self.kept:
            self._count(log, covers)

    def _count(self, log: EpochLog, covers: EpochRange) -> None:
        if covers in self._rows:
            return
        try:
            self._rows[covers] = log.manifest(covers).rows
        except LogCorrupt:
            if covers in log.ranges():  # if not, it was dropped while we looked
                raise


@dataclass
class QueryView:
    """One query as a person sees it."""

    name: str
    pid: int = 0
    state: State = State.STARTING
    epochs: int = 0
    rows: int = 0
    lag: int | None = None


@dataclass
class View:
    """All that a screen shows."""

    goal: int
    queries: Sequence[QueryView]
    kept: Sequence[EpochRange] = ()
    finished: int = BEFORE_FIRST
    seconds: float = 0.0
    events: list[Event] = field(default_factory=list)
