"""The world of a run: queries on Spark, checkpoints in its home, real threads and real time."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from tidelock.epochs import Epoch
from tidelock.errands import Ending
from tidelock.home.home import Home
from tidelock.running.ports.ports import Told, World
from tidelock.spark.checkpoint.checkpoint import Checkpoint
from tidelock.spark.query.batches import Gate
from tidelock.spark.query.failures import is_gone, keep_stops_untold, rest_until_stopped
from tidelock.spark.query.listening import BatchProgress, Listener, Losses, losses
from tidelock.spark.query.queries import LENDING
from tidelock.spark.segments.segment_queries import SegmentQueries, Starting
from tidelock.topology import Segment


def world_of(segments: SegmentQueries, home: Home) -> World:
    """The world in which ``segments`` run on their session, with checkpoints in ``home``."""
    return World(SparkEngine(segments), HomePositions(home), DaemonThreads(), QueueInbox())


class SparkEngine:
    """Spark, for the segments of one pipeline. Thread-safe as Spark is; the owner alone listens and closes."""

    def __init__(self, segments: SegmentQueries) -> None:
        self._segments = segments
        self._spark = segments.spark
        self._listener: Listener | None = None

    def start(self, segment: Segment, gate: Gate, starting: Starting, *, draining: bool) -> None:
        """Start the query of a segment, for whoever waits for it."""
        self._segments.start(segment, gate, starting=starting, draining=draining)

    def rest(self) -> str:
        """Wait, in the thread of a batch, until its query is stopped."""
        return rest_until_stopped(self._spark)

    def listen(self, progressed: Callable[[BatchProgress], None], ended: Callable[[str], None]) -> None:
        """Hear of batches and ends from threads of Spark. Events may be lost when there is much to do."""
        self._listener = Listener(progressed, ended)
        self._spark.streams.addListener(self._listener)
        keep_stops_untold()

    def losses(self) -> Losses:
        """The tasks that failed and the executors that went away."""
        return losses(self._spark)

    def is_gone(self) -> bool:
        """Whether the JVM has ended."""
        return is_gone(self._spark)

    def close(self, timeout: float) -> bool:
        """Open no cache any more, put the session's settings back and hear nothing more."""
        ended = self._segments.caches.close(timeout)
        with suppress(Exception):  # Spark may be gone
            LENDING.clear()
            if self._listener is not None:
                self._spark.streams.removeListener(self._listener)
        return ended


class HomePositions:
    """The checkpoints of a home. Immutable."""

    def __init__(self, home: Home) -> None:
        self._home = home

    def position(self, segment: str) -> Epoch:
        """The newest epoch that a segment has committed."""
        return self._checkpoint(segment).position()

    def is_committed(self, segment: str, batch: int) -> bool:
        """Whether a batch is in the commit log."""
        return self._checkpoint(segment).is_committed(batch)

    def _checkpoint(self, segment: str) -> Checkpoint:
        return Checkpoint(None, self._home.checkpoint(segment))


class DaemonThreads:
    """A thread for each thing. Not a pool: one that hangs keeps neither others waiting nor the process alive."""

    def begin(self, name: str, what: Callable[[], None]) -> Ending:
        """Do something in a thread of its own."""
        thread = threading.Thread(target=what, name=name, daemon=True)
        thread.start()
        return thread


class QueueInbox:
    """An inbox in real time. Thread-safe; one thread takes."""

    def __init__(self) -> None:
        self._told: queue.SimpleQueue[Told] = queue.SimpleQueue()

    def now(self) -> float:
        """The time of a clock that is never put back."""
        return time.monotonic()

    def put(self, told: Told) -> None:
        """Tell something; whoever waits for it wakes up."""
        self._told.put(told)

    def take(self, until: float) -> Told | None:
        """What was told next, as soon as it is."""
        try:
            return self._told.get(timeout=max(0.0, until - self.now()))
        except queue.Empty:
            return None
