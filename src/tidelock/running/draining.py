"""A run that takes what is there and ends: what its heads are told, and when it is over.

The rules are in `recovery.draining`. Here is what they are fed with: the offsets of batches say whether a head
moves, checkpoints say whether the last epoch has moved a watermark, and the newest entries of feedback logs say
whether a loop has come to rest. All of that is read without a lock: files or a store that do not answer hold up
whoever asks them, and nobody else.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tidelock.epochs import Epoch
from tidelock.errors import BackendUnavailable, TidelockError
from tidelock.home.home import Home
from tidelock.log import EpochLog
from tidelock.recovery import Drain
from tidelock.spark.checkpoint.checkpoint import Checkpoint
from tidelock.spark.connector.ticks import is_tick
from tidelock.spark.query.batches import Work
from tidelock.spark.segments.segment_queries import SegmentQueries


class Undrained(TidelockError):
    """Nobody can tell whether a segment needs another epoch, and why."""

    def __init__(self, segment: str, error: Exception) -> None:
        super().__init__(f"{segment}: {error}")
        self.segment = segment
        self.error = error


class Draining:
    """The drain of one run. Thread-safe: batches ask in their own threads, the supervisor in its own and others.

    A lock guards what it remembers; nobody holds it while anything is read.
    """

    def __init__(self, segments: SegmentQueries, home: Home) -> None:
        self._segments = segments
        self._home = home
        self._heads = [segment.name for segment in segments.cutting.segments if segment.is_head]
        self._drain = Drain({head: self._checkpoint(head).position() for head in self._heads})
        self._resting: set[str] = set()
        self._lock = threading.Lock()

    # -- for one head

    def starts(self, head: str) -> None:
        """The query of a head is about to be started."""
        with self._lock:
            self._resting.discard(head)

    def newest_begun(self, head: str) -> int:
        """The newest batch that was begun before a query of the head is started; -1 if there is none."""
        return self._checkpoint(head).newest_begun()

    def admits(self, head: str, begun: int, work: Work) -> bool:
        """Whether a batch of a head has its turn, in a query before which batches up to ``begun`` were begun."""
        moves = self._moves(head, begun, work)
        with self._lock:
            return self._drain.admits(head, work.covers.last, moves=moves)

    def ended(self, head: str) -> None:
        """The query of a head has ended by itself; it rests until it is started again, or for good."""
        with self._lock:
            self._drain.ended(head)
            self._resting.add(head)

    def is_resting(self, head: str) -> bool:
        """Whether a head has no query because that has ended by itself."""
        with self._lock:
            return head in self._resting

    def _moves(self, head: str, begun: int, work: Work) -> bool:
        # A head without ticks has no batch without news. And where a batch ends that was begun earlier says
        # nothing about what is there now.
        if not self._segments.needs_ticks or work.batch <= begun:
            return True
        before = self._checkpoint(head).offsets(work.batch - 1).sources if work.batch else ()
        return any(offset not in before for offset in work.offsets if not is_tick(offset))

    # -- for all

    @property
    def last(self) -> Epoch | None:
        """The epoch that everybody has to commit now; None as long as sources give something."""
        with self._lock:
            return self._drain.last

    def needs_one_more(self) -> bool:
        """Whether another epoch, without data, would bring something. To be asked when all are at `last`.

        Raises:
            BackendUnavailable: the store of a feedback log does not answer.
            OSError: a checkpoint cannot be read.
            Undrained: a checkpoint or a feedback log is damaged.
        """
        return self._can_add and (self._watermark_has_moved() or self._loop_is_busy())

    def is_ready(self, *, waiting: Callable[[str], bool]) -> bool:
        """Whether each head can make one more: it ticks, or its query has ended, or a batch is ``waiting``."""
        if self._segments.needs_ticks:
            return True
        return all(self.is_resting(head) or waiting(head) for head in self._heads)

    def one_more(self) -> list[str]:
        """Go for one more epoch; returns the heads whose queries have ended, which now have to be started again.

        Raises:
            OSError: a checkpoint could not be written. Nothing has changed for the heads; to be asked again.
            Undrained: a checkpoint is damaged.
        """
        with self._lock:
            resting = sorted(self._resting)
        for head in resting:  # first what may fail, and may be done twice
            with _about(head):
                self._checkpoint(head).begin_empty_batch()
        with self._lock:
            self._drain.one_more()
        return resting

    @property
    def _can_add(self) -> bool:
        """Whether epochs are this job's own: one that does nothing but follow subjects has theirs."""
        sources = {name for head in self._heads for name in self._segments.cutting.segment(head).sources}
        return self._segments.needs_ticks or not sources <= self._segments.followed.keys()

    def _watermark_has_moved(self) -> bool:
        if not self._matters():
            return False
        return any(self._moved(segment.name) for segment in self._segments.cutting.segments)

    def _moved(self, segment: str) -> bool:
        with _about(segment):
            return self._checkpoint(segment).watermark_has_moved()

    def _matters(self) -> bool:
        """Whether a watermark decides what comes out, here or in a job that follows this one."""
        topology, described = self._segments.cutting.topology, self._segments.described
        published = [node.name for node in topology.nodes if node.subject is not None]
        return any(found.traits.event_time_state for found in described.values()) or any(
            described[name].event_time for name in published
        )

    def _loop_is_busy(self) -> bool:
        feedback = self._segments.cutting.topology.feedback
        writers = {one.writes: one.name for one in self._segments.cutting.segments if one.writes}
        return any(self._brings_back(writers[log], log) for log in feedback)

    def _brings_back(self, segment: str, log: str) -> bool:
        with _about(segment):
            written = EpochLog.open(self._home.log(log))
            ranges = written.ranges()
            return bool(ranges) and any(part.rows for part in written.manifest(ranges[-1]).parts)

    def _checkpoint(self, segment: str) -> Checkpoint:
        return Checkpoint(None, self._home.checkpoint(segment))


@contextmanager
def _about(segment: str) -> Iterator[None]:
    """What is wrong inside, and stays wrong, is told of a segment."""
    try:
        yield
    except (BackendUnavailable, OSError):
        raise  # it may pass
    except Exception as error:
        raise Undrained(segment, error) from error
