"""A run that takes what is there and ends: what its heads are told, and when it is over.

The rules are in `recovery.draining`. Here is what they are fed with: the offsets of batches say whether a head
moves, checkpoints say whether the last epoch has moved a watermark, and the newest entries of feedback logs say
whether a loop has come to rest.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from tidelock.epochs import Epoch
from tidelock.log import EpochLog
from tidelock.recovery import Drain
from tidelock.runtime.home import Home
from tidelock.spark.batches import Work
from tidelock.spark.checkpoint import Checkpoint
from tidelock.spark.segments import Segments
from tidelock.spark.ticks import is_tick


class Draining:
    """The drain of one run. Thread-safe: batches ask in their own threads, the supervisor in its own."""

    def __init__(self, segments: Segments, home: Home) -> None:
        self._segments = segments
        self._home = home
        self._heads = [segment.name for segment in segments.cutting.segments if segment.is_head]
        self._drain = Drain({head: self._checkpoint(head).position() for head in self._heads})
        self._begun = dict.fromkeys(self._heads, -1)
        self._resting: set[str] = set()
        self._lock = threading.Lock()

    # -- for one head

    def starts(self, head: str) -> None:
        """The query of a head is about to be started."""
        with self._lock:
            self._resting.discard(head)
            self._begun[head] = self._checkpoint(head).newest_begun()

    def admits(self, head: str, work: Work) -> bool:
        """Whether a batch of a head has its turn."""
        with self._lock:
            return self._drain.admits(head, work.covers.last, moves=self._moves(head, work))

    def ended(self, head: str) -> None:
        """The query of a head has ended by itself; it rests until it is started again, or for good."""
        with self._lock:
            self._drain.ended(head)
            self._resting.add(head)

    def is_resting(self, head: str) -> bool:
        """Whether a head has no query because that has ended by itself."""
        with self._lock:
            return head in self._resting

    def _moves(self, head: str, work: Work) -> bool:
        # A head without ticks has no batch without news. And where a batch ends that was begun earlier says
        # nothing about what is there now.
        if not self._segments.needs_ticks or work.batch <= self._begun[head]:
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
        """
        with self._lock:
            resting = sorted(self._resting)
        for head in resting:  # first what may fail, and may be done twice
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
        names = [segment.name for segment in self._segments.cutting.segments]
        return any(self._checkpoint(name).watermark_has_moved() for name in names)

    def _matters(self) -> bool:
        """Whether a watermark decides what comes out, here or in a job that follows this one."""
        topology, described = self._segments.cutting.topology, self._segments.described
        published = [node.name for node in topology.nodes if node.subject is not None]
        return any(found.traits.event_time_state for found in described.values()) or any(
            described[name].event_time for name in published
        )

    def _loop_is_busy(self) -> bool:
        logs = [EpochLog.open(self._home.log(name)) for name in self._segments.cutting.topology.feedback]
        newest = [log.manifest(ranges[-1]) for log in logs if (ranges := log.ranges())]
        return any(part.rows for manifest in newest for part in manifest.parts)

    def _checkpoint(self, segment: str) -> Checkpoint:
        return Checkpoint(None, self._home.checkpoint(segment))
