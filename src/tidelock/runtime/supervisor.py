"""The supervisor: it performs what the recovery machine asks for on Spark, and tells it what happened.

One thread feeds the machine. Starting, stopping and setting aside take time, so other threads do that and report
back through a queue, as Spark's listener does: whatever one segment does, the others are looked after.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

from tidelock.epochs import BEFORE_FIRST, Epoch, EpochRange
from tidelock.errors import BatchFailed, InternalError
from tidelock.log import EpochLog
from tidelock.recovery import (
    Action,
    EpochCommitted,
    Fact,
    GiveUp,
    InputsReady,
    Looked,
    Machine,
    QueryEnded,
    QueryFailed,
    QueryStarted,
    SetAside,
    SetAsideDone,
    StartSegment,
    State,
    StopAsked,
    StopSegment,
    has_room,
)
from tidelock.runtime.dead_letters import set_aside
from tidelock.runtime.events import Events
from tidelock.runtime.gates import SegmentGate, Stopped
from tidelock.runtime.home import Home
from tidelock.runtime.patience import patiently
from tidelock.runtime.pending import PendingLog
from tidelock.runtime.pipeline import Care
from tidelock.spark.checkpoint import Checkpoint
from tidelock.spark.frames import PySparkException, StreamingQuery
from tidelock.spark.listening import Listener, Losses, Progress, losses
from tidelock.spark.segments import Segments
from tidelock.spark.stories import Storyteller

_LOOK_EVERY = 0.1
_LOOK_AT_SPARK_EVERY = 1.0
_SETTLED = 4
_REMEMBERED = 30


@dataclass
class Attempt:
    """One run of a segment's query."""

    gate: SegmentGate
    query: StreamingQuery | None = None
    run: str = ""
    ending: bool = False
    """Somebody is stopping it."""


@dataclass
class Gauge:
    """What Spark last said about a segment."""

    rows_per_second: float = 0.0
    batch_seconds: float = 0.0
    state_rows: int = 0
    state_bytes: int = 0
    at: float = field(default=0.0)
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

    def after(self, progress: Progress) -> Gauge:
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


class Supervisor:
    """Runs the segments of one pipeline until they have ended. Use it once."""

    def __init__(
        self,
        segments: Segments,
        home: Home,
        care: Care,
        events: Events,
        *,
        last_epoch: Epoch | None = None,
        stopping: Callable[[], None] = lambda: None,
    ) -> None:
        self._segments = segments
        self._stopping = stopping
        self._home = home
        self._care = care
        self._events = events
        self._last_epoch = last_epoch
        record = home.known()
        self.record = record
        self.machine = Machine(record.shape(), care.policy)
        self.gauges = {segment.name: Gauge() for segment in record.segments}
        self.attempts: dict[str, Attempt] = {}
        self.pending = {
            s.writes: PendingLog(EpochLog.open(home.log(s.writes)), record.readers(s.writes))
            for s in segments.cutting.segments
            if s.writes
        }
        self._told: queue.Queue[Callable[[], Fact | None]] = queue.Queue()
        self._workers = ThreadPoolExecutor(max_workers=2 * len(record.segments), thread_name_prefix="tidelock")
        self._stories = Storyteller(segments.functions)
        self._losses = Losses(0, ())
        self._looked_at_spark = 0.0
        self._over = threading.Event()

    # -- for others

    def stop(self, *, drain: bool) -> None:
        """Ask the pipeline to stop at epoch boundaries, with ``drain`` after reading all logs empty."""
        self._tell(lambda: StopAsked(drain))

    def run(self, look: Callable[[], None]) -> None:
        """Run until every segment has ended; ``look`` is called again and again meanwhile."""
        listener = Listener(self._progressed, lambda run: self._tell(lambda: None))
        self._segments.spark.streams.addListener(listener)
        self._losses = losses(self._segments.spark)
        self._home.drain(False)
        try:
            self._begin()
            while not self.machine.done:
                self._take(_LOOK_EVERY)
                self._watch()
                self._handle(Looked())
                if self._last_epoch is not None:
                    self._stop_at_last_epoch(self._last_epoch)
                look()
        finally:
            self._end()
            self._segments.spark.streams.removeListener(listener)
            self._workers.shutdown(wait=True)
        look()

    # -- facts

    def _begin(self) -> None:
        for segment in self.record.segments:
            position = Checkpoint(None, self._home.checkpoint(segment.name)).position()
            if position > BEFORE_FIRST:
                self._handle(EpochCommitted(segment.name, position))
        for segment in self.record.segments:
            self._handle(InputsReady(segment.name))

    def _tell(self, fact: Callable[[], Fact | None]) -> None:
        self._told.put(fact)

    def _take(self, patience: float) -> None:
        """Handle what was told, waiting for it a little."""
        try:
            told = self._told.get(timeout=patience)
            while True:
                fact = told()
                if fact is not None:
                    self._handle(fact)
                told = self._told.get_nowait()
        except queue.Empty:
            return

    def _handle(self, fact: Fact) -> None:
        self._events.of_fact(fact, self.machine)
        if isinstance(fact, StopAsked):
            self._stopping()
        if self._is_last_input(fact):
            self._home.drain(True)
        for action in self.machine.handle(fact, time.monotonic()):
            self._events.of_action(action, self.machine)
            self._perform(action)

    def _is_last_input(self, fact: Fact) -> bool:
        """Whether it means that nothing more comes from the sources."""
        match fact:
            case StopAsked(drain):
                return drain
            case QueryEnded(segment):
                return self._segments.cutting.segment(segment).is_head
        return False

    def _progressed(self, progress: Progress) -> None:
        self._tell(lambda: self._committed(progress))

    def _committed(self, progress: Progress) -> Fact | None:
        for name, attempt in self.attempts.items():
            if attempt.run == progress.run:
                epoch = attempt.gate.epoch_of(progress.batch)
                self.gauges[name] = self.gauges[name].after(progress)
                return None if epoch is None else EpochCommitted(name, epoch)
        return None

    # -- actions

    def _perform(self, action: Action) -> None:
        match action:
            case StartSegment(segment):
                self._start(segment)
            case StopSegment(segment):
                self.attempts[segment].gate.close()
            case SetAside(segment, epoch):
                setting = partial(self._set_aside, segment, epoch)
                self._work(segment, lambda: patiently(setting, self._care.policy, self._over), final=True)
            case GiveUp():
                pass  # the machine stops the others, and the events have the story

    def _work(self, segment: str, what: Callable[[], Fact | None], *, final: bool = False) -> None:
        """Do something in another thread; its failure is a failure of the segment, perhaps a ``final`` one."""

        def work() -> None:
            try:
                fact = what()
            except Exception as failure:  # whatever it is, it becomes the segment's story
                fact = self._failed(segment, None, failure)
                fact = replace(fact, final=fact.final or final, outage=fact.outage and not final)
            self._tell(lambda: fact)

        self._workers.submit(work)

    def _start(self, segment: str) -> None:
        attempt = Attempt(SegmentGate(lambda: self._has_room(segment), self._bounded(segment)))
        self.attempts[segment] = attempt

        def start() -> Fact | None:
            query = self._segments.start(self._segments.cutting.segment(segment), attempt.gate)
            attempt.run, attempt.query = str(query.runId), query
            return QueryStarted(segment)

        self._work(segment, start)

    def _bounded(self, segment: str) -> Epoch | None:
        return self._last_epoch if self._segments.cutting.segment(segment).is_head else None

    def _has_room(self, segment: str) -> bool:
        pending = self.pending.get(segment)
        if pending is None:
            return True
        head = self._segments.cutting.segment(segment).is_head
        return has_room(*pending.measure(), self._care.bound, pending.share_used(), head=head)

    def _set_aside(self, segment: str, epoch: Epoch) -> Fact:
        inputs = self.record.segment(segment).inputs
        if not inputs:
            story = self.machine.last_error(segment)
            raise BatchFailed(f"epoch {epoch} cannot be set aside, because it comes from a source: {story}")
        rows, covers = 0, self._poisoned(segment, epoch)
        for log, lag in inputs:
            last = covers.last - lag
            if last >= 0:
                taken = EpochRange(Epoch(max(0, covers.first - lag)), Epoch(last))
                source = EpochLog.open(self._home.log(log))
                rows += set_aside(source, segment, taken, self._home.dead(segment, log))
        self._events.add("set aside", segment, f"epoch {epoch}: {rows} rows are in {self._home.root}/dead", epoch)
        return SetAsideDone(segment, epoch)

    def _poisoned(self, segment: str, epoch: Epoch) -> EpochRange:
        """All the epochs of the batch that failed."""
        failed = self.attempts[segment].gate.failed
        if failed is None or failed[0].covers.last != epoch:
            raise InternalError(f"segment {segment}: epoch {epoch} is to be set aside, but has not failed")
        return failed[0].covers

    # -- watching the queries

    def _watch(self) -> None:
        for segment, attempt in list(self.attempts.items()):
            if attempt.query is not None and not attempt.ending:
                self._look_at(segment, attempt, attempt.query)
        if time.monotonic() - self._looked_at_spark > _LOOK_AT_SPARK_EVERY:
            self._looked_at_spark = time.monotonic()
            self._look_at_spark()

    def _look_at(self, segment: str, attempt: Attempt, query: StreamingQuery) -> None:
        if not query.isActive:
            attempt.ending = True
            self._take(0)  # what Spark committed before the end comes first
            self._tell(lambda: self._ended(segment, attempt, query))
        elif attempt.gate.closed and attempt.gate.at_rest():
            attempt.ending = True
            self._work(segment, lambda: self._stop(segment, query))
        elif (inside := attempt.gate.inside()) and inside[1] > self._care.hang_after:
            attempt.ending = True
            self._work(segment, lambda: self._cut_off(segment, query, inside[0].covers.last))

    def _ended(self, segment: str, attempt: Attempt, query: StreamingQuery) -> Fact:
        """A query that has ended by itself."""
        attempt.query = None
        if attempt.gate.failed is not None:
            work, failure = attempt.gate.failed
            return self._failed(segment, work.covers.last, failure)
        failure_of_query = query.exception()
        if failure_of_query is None or (attempt.gate.closed and Stopped.__name__ in str(failure_of_query)):
            return QueryEnded(segment)
        return self._failed(segment, None, failure_of_query)

    def _stop(self, segment: str, query: StreamingQuery) -> Fact:
        query.stop()
        self.attempts[segment].query = None
        return QueryEnded(segment)

    def _cut_off(self, segment: str, query: StreamingQuery, epoch: Epoch) -> Fact:
        """End a query that hangs."""
        story = f"epoch {epoch} did not end within {self._care.hang_after:g} s"
        try:
            query.stop()
        except Exception as failure:  # the thread of the query cannot be interrupted
            raise BatchFailed(f"{story}, and its code cannot be interrupted: run the pipeline again") from failure
        self.attempts[segment].query = None
        return QueryFailed(segment, epoch, story)

    def _failed(self, segment: str, epoch: Epoch | None, failure: BaseException) -> QueryFailed:
        cut = self._segments.cutting.segment(segment)
        story = self._stories.tell(failure, [name for name in cut.operators if name != cut.sink])
        return QueryFailed(segment, epoch, str(story), story.final, story.outage)

    def _look_at_spark(self) -> None:
        self._catch_up()
        now = losses(self._segments.spark)
        if now.failed_tasks > self._losses.failed_tasks:
            count = now.failed_tasks - self._losses.failed_tasks
            self._events.add("task retry", None, f"{count} task{'s' * (count > 1)} failed inside Spark")
        for executor in now.lost_executors:
            if executor not in self._losses.lost_executors:
                self._events.add("executor lost", None, f"executor {executor} is gone")
        self._losses = now

    def _catch_up(self) -> None:
        """Learn of commits from the checkpoints: Spark's listener may drop events when there is much to do."""
        for segment, attempt in self.attempts.items():
            for batch in attempt.gate.unconfirmed():
                if Checkpoint(None, self._home.checkpoint(segment)).is_committed(batch):
                    epoch = attempt.gate.epoch_of(batch)
                    if epoch is not None:
                        self._handle(EpochCommitted(segment, epoch))

    def _stop_at_last_epoch(self, last: Epoch) -> None:
        heads = [s.name for s in self._segments.cutting.segments if s.is_head]
        if all(self.machine.epoch(head) >= last for head in heads) and any(
            self.machine.state(head) is State.RUNNING for head in heads
        ):
            self._last_epoch = None
            self._handle(StopAsked(drain=True))

    def _end(self) -> None:
        """Leave no query behind, whatever ended the loop."""
        self._over.set()
        for attempt in self.attempts.values():
            attempt.gate.close()
        for attempt in self.attempts.values():
            query = attempt.query
            if query is not None and query.isActive:
                with suppress(PySparkException):  # it cannot be interrupted, and ends with the process
                    query.stop()
        self._segments.caches.close()
