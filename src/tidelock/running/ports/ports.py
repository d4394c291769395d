"""What the supervisor needs of the world: something that runs queries, checkpoints, threads, and an inbox.

Each of them is small, so that a test can play the whole world, and with it every race between failing, stopping
and time, without Spark and without waiting.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from tidelock.epochs import Epoch
from tidelock.errands import Ending
from tidelock.recovery import Fact
from tidelock.spark.query.batches import Gate
from tidelock.spark.query.listening import BatchProgress, Losses
from tidelock.spark.segments.segment_queries import Starting
from tidelock.topology import Segment

Told = Callable[[], Fact | None]
"""What another thread has to say: the supervisor's thread calls it, and hands on the fact that it returns."""


class Query(Protocol):
    """A streaming query, as far as it is looked at; the names are Spark's."""

    @property
    def runId(self) -> object:
        """The name of this run of it."""

    @property
    def isActive(self) -> bool:
        """Whether it has not ended."""

    def exception(self) -> Exception | None:
        """Why it has ended, if it failed."""

    def stop(self) -> None:
        """Interrupt it, and wait until it has ended."""


class Engine(Protocol):
    """What runs the queries of segments. Thread-safe."""

    def start(self, segment: Segment, gate: Gate, starting: Starting, *, draining: bool) -> None:
        """Start the query of a segment; ``starting`` is handed the query and may raise when nobody waits for it.

        ``draining``: its sources give what is there now and no more.
        """

    def rest(self) -> str:
        """Wait, as a batch that is not let in, until its query is stopped; the words by which that is known."""

    def listen(self, progressed: Callable[[BatchProgress], None], ended: Callable[[str], None]) -> None:
        """Tell of every batch that is committed, and of every run that has ended, until it is closed."""

    def losses(self) -> Losses:
        """What it has coped with by itself."""

    def is_gone(self) -> bool:
        """Whether it has ended with all its queries."""

    def close(self, timeout: float) -> bool:
        """Nothing more is started; whether what was under way beside queries ended within ``timeout`` seconds."""


class Positions(Protocol):
    """What checkpoints say of the segments."""

    def position(self, segment: str) -> Epoch:
        """The newest epoch that a segment has committed."""

    def is_committed(self, segment: str, batch: int) -> bool:
        """Whether a batch is in the commit log."""


class Threads(Protocol):
    """Where things are done that take time."""

    def begin(self, name: str, what: Callable[[], None]) -> Ending:
        """Do something; one that hangs keeps neither others waiting nor the process alive."""


class Inbox(Protocol):
    """What the supervisor is told, and the clock by which it waits for that. Any thread may tell something."""

    def now(self) -> float:
        """The time, in seconds from whenever."""

    def put(self, told: Told) -> None:
        """Tell something."""

    def take(self, until: float) -> Told | None:
        """What was told next; None if that is nothing up to the time ``until``."""


@dataclass(frozen=True)
class World:
    """All that a supervisor acts on, and learns from."""

    engine: Engine
    positions: Positions
    threads: Threads
    inbox: Inbox
