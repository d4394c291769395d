"""The supervisor: it performs what the recovery machine asks for on Spark, and tells it what happened.

One thread feeds the machine. Starting, stopping and setting aside take time, so other threads do that and report
back through a queue, as Spark's listener does: whatever one segment does, the others are looked after.

What is told goes through the queue as a function, which the one thread calls. So the machine, the gauges and the
list of attempts have one owner and need no lock. What other threads use is an `Attempt`, which has a lock, or what
never changes: the record, the logs' windows (`pending`), the `view`, which is replaced as a whole.

It sleeps until it is told something: a batch came, waits or left (its gate tells), an epoch is committed or a
query has ended (Spark tells), a start has come to something. What nobody tells has a moment at which it is
looked at: a segment is to be started again (`Machine.wake_at`), something has hung for too long
(`Attempt.look_at`). Spark may lose its events, and may be gone: so there is a heart-beat, at which checkpoints,
queries and executors are looked at.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial

from tidelock.epochs import BEFORE_FIRST, Epoch, EpochRange
from tidelock.errands import Ending, all_end
from tidelock.errors import BackendUnavailable, BatchFailed, InternalError, TidelockError
from tidelock.home.events import Events, Trouble
from tidelock.home.home import Home
from tidelock.log import EpochLog
from tidelock.pipeline.declaration import RunSettings
from tidelock.recovery import (
    Action,
    EpochCommitted,
    Fact,
    GiveUp,
    InputsReady,
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
    TimePassed,
    has_room,
)
from tidelock.running.attempts import STOP_WITHIN, Attempt, cut_off, outcome, stop
from tidelock.running.dead_letters import set_aside
from tidelock.running.draining import Draining, Undrained
from tidelock.running.gates import SegmentGate
from tidelock.running.gauges import Gauge, SegmentView, View
from tidelock.running.pending import PendingLog
from tidelock.running.ports.ports import Query, Told, World
from tidelock.running.retrying import patiently
from tidelock.spark.query.batches import Stopped
from tidelock.spark.query.failures import told_if_gone
from tidelock.spark.query.listening import Losses, Progress
from tidelock.spark.segments.describing import Functions
from tidelock.spark.stories.stories import Storyteller
from tidelock.topology import Cutting

_HEARTBEAT = 1.0
_ASK_AGAIN_AFTER = 0.05
_LAST_WORDS = 10.0
_LAST_SNAPSHOT = 30.0


class Supervisor:
    """Runs the segments of one pipeline until they have ended. Use it once.

    The thread that calls `run` owns the machine, the gauges and the attempts. Any thread may call `stop`, and look
    at `view`, `record` and `pending`.
    """

    def __init__(
        self,
        cutting: Cutting,
        functions: Functions,
        world: World,
        home: Home,
        settings: RunSettings,
        events: Events,
        *,
        last_epoch: Epoch | None = None,
        drain: Draining | None = None,
        stopping: Callable[[], None] = lambda: None,
        last_words: float = _LAST_WORDS,
    ) -> None:
        self._cutting = cutting
        self._engine = world.engine
        self._positions = world.positions
        self._threads = world.threads
        self._inbox = world.inbox
        self._stopping = stopping
        self._last_words = last_words
        self._home = home
        self._settings = settings
        self._events = events
        self._last_epoch = last_epoch
        self._drain = drain
        record = home.known()
        self.record = record
        self.machine = Machine(record.shape(), settings.policy)
        self.gauges = {segment.name: Gauge() for segment in record.segments}
        self.attempts: dict[str, Attempt] = {}
        self.pending: Mapping[str, PendingLog] = {
            s.writes: PendingLog(EpochLog.open(home.log(s.writes)), record.readers(s.writes))
            for s in cutting.segments
            if s.writes
        }
        self._workers: list[Ending] = []
        self._undone: list[Callable[[], None]] = []
        self._stories = Storyteller(functions)
        self._losses = Losses(0, ())
        self._beats_at = 0.0
        self._asking = Trouble(events, "status failed", "status recovered")
        self._reading = Trouble(events, "status failed", "status recovered")
        self._over = threading.Event()
        self._stop_asked = False
        self._asks = False
        self._asks_at = 0.0
        self.view = self._viewed()

    # -- for others

    def stop(self, *, drain: bool) -> None:
        """Ask the pipeline to stop at epoch boundaries, with ``drain`` after reading all logs empty."""
        self._tell(lambda: StopAsked(drain))

    def run(self) -> None:
        """Run until every segment has ended.

        Raises:
            BackendUnavailable: Spark's JVM is gone.
        """
        self._engine.listen(self._progressed, lambda run: self._tell(lambda: self._doubt(run)))
        self._losses = self._engine.losses()
        self._home.drain(False)
        try:
            with told_if_gone(self._engine.is_gone):
                self._go_on()
        finally:
            self._end()
            self.view = self._viewed()

    def _go_on(self) -> None:
        self._begin()
        while not self.machine.done:
            self._take(self._wake_at())
            self._watch()
            if self._is_due(self.machine.wake_at()):
                self._handle(TimePassed())
            if self._last_epoch is not None:
                self._stop_at_last_epoch(self._last_epoch)
            if self._drain is not None:
                self._go_on_draining(self._drain)
            self._do_undone()
            self.view = self._viewed()

    def _viewed(self) -> View:
        machine = self.machine
        state = "failed" if machine.gave_up else "stopped" if machine.done else "running"
        return View(state, {name: self._viewed_segment(name) for name in self.gauges})

    def _viewed_segment(self, name: str) -> SegmentView:
        machine, attempt = self.machine, self.attempts.get(name)
        return SegmentView(
            machine.state(name),
            attempt is not None and attempt.gate.paused,
            machine.epoch(name),
            machine.restarts(name),
            machine.last_error(name),
            self.gauges[name],
        )

    # -- facts

    def _begin(self) -> None:
        for segment in self.record.segments:
            position = self._positions.position(segment.name)
            if position > BEFORE_FIRST:
                self._handle(EpochCommitted(segment.name, position))
        for segment in self.record.segments:
            self._handle(InputsReady(segment.name))

    def _tell(self, told: Told) -> None:
        self._inbox.put(told)

    def _take(self, until: float) -> None:
        """Handle what was told, and wait for it up to the time ``until``."""
        while (told := self._inbox.take(until)) is not None:
            until = self._inbox.now()  # one thing was waited for; what else is there is taken with it
            fact = told()
            if fact is not None:
                self._handle(fact)

    def _handle(self, fact: Fact) -> None:
        if isinstance(fact, QueryFailed | QueryEnded):
            self._catch_up()  # what was committed before comes first, also if Spark's word of it is lost
        self._events.of_fact(fact, self.machine)
        if isinstance(fact, StopAsked):
            self._stop_asked = True
            self._do(self._stopping)
        if self._is_last_input(fact):
            self._do(lambda: self._home.drain(True))
        for action in self.machine.handle(fact, self._inbox.now()):
            self._events.of_action(action, self.machine)
            self._perform(action)

    def _do(self, what: Callable[[], None]) -> None:
        """Put something into the home, now or when there is room."""
        self._undone.append(what)
        self._do_undone()

    def _do_undone(self) -> None:
        while self._undone:
            try:
                self._undone[0]()
            except OSError as error:
                self._events.home_fails(error)
                return
            del self._undone[0]

    def _is_last_input(self, fact: Fact) -> bool:
        """Whether it means that nothing more comes from the sources."""
        match fact:
            case StopAsked(drain):
                return drain
            case QueryEnded(segment):
                return self._cutting.segment(segment).is_head
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
                if self._drain is not None and self._drain.is_resting(segment):
                    self._tell(lambda: QueryEnded(segment))
            case SetAside(segment, epoch):
                gate, story = self.attempts[segment].gate, self.machine.last_error(segment)
                setting = partial(self._set_aside, segment, epoch, gate, story)
                self._work(segment, lambda: patiently(setting, self._settings.policy, self._over), final=True)
            case GiveUp():
                pass  # the machine stops the others, and the events have the story

    def _work(
        self,
        segment: str,
        what: Callable[[], Fact | None],
        *,
        starting: Attempt | None = None,
        final: bool = False,
    ) -> None:
        """Do something in another thread; its failure is a failure of the segment, perhaps a ``final`` one.

        ``starting``: an attempt that is being started, and may be abandoned.
        """

        def work() -> None:
            try:
                fact = what()
            except BaseException as failure:  # whatever it is, sys.exit() too, it becomes the segment's story
                failed = self._failed(segment, None, failure)
                fact = replace(failed, final=failed.final or final, outage=failed.outage and not final)
            self._tell(lambda: fact if starting is None else outcome(starting, fact))

        self._begin_work(f"tidelock {segment}", work)

    def _begin_work(self, name: str, what: Callable[[], None]) -> None:
        worker = self._threads.begin(name, what)
        self._workers = [one for one in self._workers if one.is_alive()] + [worker]

    def _start(self, segment: str) -> None:
        cut, drain = self._cutting.segment(segment), self._drain
        now = self._inbox.now
        gate = SegmentGate(
            lambda: self._has_room(segment),
            self._bounded(segment),
            self._engine.rest,
            now,
            tell=lambda: self._tell(lambda: None),
        )
        self.attempts[segment] = attempt = Attempt(gate, now)
        if drain is not None and cut.is_head:
            drain.starts(segment)

        def start() -> Fact | None:
            if drain is not None and cut.is_head:
                gate.admit(partial(drain.admits, segment, drain.newest_begun(segment)))
            try:
                self._engine.start(cut, attempt.gate, attempt, draining=drain is not None)
            except Stopped:
                return QueryEnded(segment)
            return QueryStarted(segment)

        self._work(segment, start, starting=attempt)

    def _bounded(self, segment: str) -> Epoch | None:
        return self._last_epoch if self._cutting.segment(segment).is_head else None

    def _has_room(self, segment: str) -> bool:
        pending = self.pending.get(segment)
        if pending is None:
            return True
        head = self._cutting.segment(segment).is_head
        return has_room(*pending.measure(), self._settings.bound, pending.share_used(), head=head)

    def _set_aside(self, segment: str, epoch: Epoch, gate: SegmentGate, story: str | None) -> Fact:
        inputs = self.record.segment(segment).inputs
        if not inputs:
            raise BatchFailed(f"epoch {epoch} cannot be set aside, because it comes from a source: {story}")
        rows, covers = 0, _poisoned(segment, epoch, gate)
        for log, lag in inputs:
            last = covers.last - lag
            if last >= 0:
                taken = EpochRange(Epoch(max(0, covers.first - lag)), Epoch(last))
                source = EpochLog.open(self._home.log(log))
                rows += set_aside(source, segment, taken, self._home.dead(segment, log))
        self._events.add("set aside", segment, f"epoch {epoch}: {rows} rows are in {self._home.root}/dead", epoch)
        return SetAsideDone(segment, epoch)

    # -- watching the queries

    def _wake_at(self) -> float:
        """When it matters next to look, if nothing is told before: at a bound, a retry, or the next heart-beat."""
        bound, retry = self._settings.hang_after, self.machine.wake_at()
        moments = [attempt.look_at(bound) for attempt in self.attempts.values()]
        if retry is not None:
            moments.append(retry)
        if not self._is_due(self._asks_at):
            moments.append(self._asks_at)
        return min([self._beats_at, *moments])

    def _is_due(self, moment: float | None) -> bool:
        return moment is not None and moment <= self._inbox.now()

    def _doubt(self, run: str) -> None:
        """Look at a query of which Spark tells that it has ended."""
        for attempt in self.attempts.values():
            attempt.doubtful = attempt.doubtful or attempt.run == run

    def _watch(self) -> None:
        """Look at what may have changed; at a heart-beat also at what Spark should have told."""
        if self._is_due(self._beats_at):
            self._beats_at = self._inbox.now() + _HEARTBEAT
            for attempt in self.attempts.values():
                attempt.doubtful = True
            self._look_at_spark()
        for segment, attempt in list(self.attempts.items()):
            if not attempt.ending:
                self._look_at(segment, attempt)

    def _look_at(self, segment: str, attempt: Attempt) -> None:
        query, gate, bound = attempt.query, attempt.gate, self._settings.hang_after
        if not attempt.started:
            self._look_at_start(segment, attempt)
        elif query is None:
            return
        elif self._has_ended(attempt, query):
            attempt.ending = True
            self._take(self._inbox.now())  # what Spark committed before the end comes first
            self._tell(lambda: self._ended(segment, attempt, query))
        elif gate.closed and gate.at_rest():
            attempt.ending = True
            self._work(segment, lambda: stop(segment, attempt, query))
        elif (inside := gate.inside()) and inside[1] >= bound:
            attempt.ending, epoch = True, inside[0].covers.last
            story = f"epoch {epoch} did not end within {bound:g} s"
            self._work(segment, lambda: cut_off(segment, attempt, query, epoch, story))
        elif (computed := self._uncommitted(gate)) is not None:
            attempt.ending = True
            story = f"epoch {computed} was computed, but Spark did not commit it within {bound:g} s"
            self._work(segment, lambda: cut_off(segment, attempt, query, None, story))

    def _has_ended(self, attempt: Attempt, query: Query) -> bool:
        """Whether a query has ended; Spark is asked only if it may have, or before it is stopped."""
        gate = attempt.gate
        asks, attempt.doubtful = attempt.doubtful or gate.closed or gate.failed is not None, False
        return asks and not query.isActive

    def _uncommitted(self, gate: SegmentGate) -> Epoch | None:
        """The epoch that has been waiting for its commit for too long, if there is one."""
        left = gate.uncommitted()
        if left is None or left[1] < self._settings.hang_after:
            return None
        self._catch_up()  # what Spark has told of it may be lost
        return left[0] if gate.uncommitted() else None

    def _look_at_start(self, segment: str, attempt: Attempt) -> None:
        """End a start that is not wanted any more, or hangs.

        Its thread, which may hang, is not waited for: it changes nothing more, and if it brings up a query after
        all, it stops that.
        """
        bound = self._settings.hang_after
        if attempt.gate.closed and attempt.gate.at_rest():
            attempt.ending, query = True, attempt.abandon()
            self._work(segment, lambda: stop(segment, attempt, query))
        elif attempt.lasted() >= bound:
            attempt.ending, query = True, attempt.abandon()
            story = f"its query was not up within {bound:g} s"
            self._work(segment, lambda: cut_off(segment, attempt, query, None, story))

    def _ended(self, segment: str, attempt: Attempt, query: Query) -> Fact | None:
        """A query that has ended by itself."""
        attempt.forget()
        if attempt.gate.failed is not None:
            work, failure = attempt.gate.failed
            return self._failed(segment, work.covers.last, failure)
        failure_of_query = query.exception()
        if failure_of_query is None and self._drain is not None and not attempt.gate.closed:
            self._drain.ended(segment)
            return None
        if failure_of_query is None or (attempt.gate.closed and Stopped.__name__ in str(failure_of_query)):
            return QueryEnded(segment)
        return self._failed(segment, None, failure_of_query)

    def _failed(self, segment: str, epoch: Epoch | None, failure: BaseException) -> QueryFailed:
        cut = self._cutting.segment(segment)
        try:
            story = self._stories.tell(failure, [name for name in cut.operators if name != cut.sink])
        except Exception:  # Spark is asked for it and may be gone; a failure without a story is still one
            return QueryFailed(segment, epoch, f"{type(failure).__name__}: {failure}")
        return QueryFailed(segment, epoch, str(story), story.final, story.outage)

    def _look_at_spark(self) -> None:
        self._catch_up()
        try:
            now = self._engine.losses()
        except Exception as error:  # it is only told: what it means for the queries shows there
            if self._engine.is_gone():
                raise
            self._asking.met(error, f"Spark does not say how its executors are: {error}")
            return
        self._asking.over("Spark says again how its executors are")
        if now.failed_tasks > self._losses.failed_tasks:
            count = now.failed_tasks - self._losses.failed_tasks
            self._events.add("task retry", None, f"{count} task{'s' * (count > 1)} failed inside Spark")
        for executor in now.lost_executors:
            if executor not in self._losses.lost_executors:
                self._events.add("executor lost", None, f"executor {executor} is gone")
        self._losses = now

    def _catch_up(self) -> None:
        """Learn of commits from the checkpoints: Spark's listener may drop events when there is much to do."""
        try:
            found = [
                (segment, attempt, batch)
                for segment, attempt in self.attempts.items()
                for batch in attempt.gate.unconfirmed()
                if self._positions.is_committed(segment, batch)
            ]
        except (OSError, TidelockError) as error:  # nothing is lost by it: they are read again with the next look
            self._reading.met(error, f"the checkpoints cannot be read: {error}; this is tried again")
            return
        self._reading.over("the checkpoints can be read again")
        for segment, attempt, batch in found:
            epoch = attempt.gate.epoch_of(batch)
            if epoch is not None:
                self._handle(EpochCommitted(segment, epoch))

    def _stop_at_last_epoch(self, last: Epoch) -> None:
        heads = [s.name for s in self._cutting.segments if s.is_head]
        if all(self.machine.epoch(head) >= last for head in heads) and any(
            self.machine.state(head) is State.RUNNING for head in heads
        ):
            self._last_epoch = None
            self._handle(StopAsked(drain=True, why=f"epoch {last} was to be the last: "))

    def _go_on_draining(self, drain: Draining) -> None:
        """Let everybody finish what was there; then stop, unless another epoch would bring something."""
        last = drain.last
        if last is None or self._stop_asked or self._asks or not self._is_due(self._asks_at):
            return
        if any(self.machine.epoch(segment.name) < last for segment in self.record.segments):
            try:
                self._home.drain(True)
            except OSError as error:  # it is tried again
                self._events.home_fails(error)
            return
        self._asks = True
        may_add, ready = last != self._last_epoch, drain.is_ready(waiting=self._waits)
        asking = partial(self._drained, drain, may_add=may_add, ready=ready)
        self._begin_work("tidelock draining", lambda: self._tell(asking()))

    def _drained(self, drain: Draining, *, may_add: bool, ready: bool) -> Callable[[], None]:
        """Ask whether another epoch would bring something, and go for it; what is to be done about the answer.

        Stores and files are asked, in a thread of its own: whatever hangs there holds up nobody.
        """
        try:
            more = may_add and drain.needs_one_more()
            again = drain.one_more() if more and ready and not self._over.is_set() else []
        except BackendUnavailable:
            return self._ask_again
        except OSError as error:
            self._events.home_fails(error)
            return self._ask_again
        except Undrained as failure:
            return partial(self._cannot_drain, failure)
        return partial(self._go_for, again, more=more)

    def _ask_again(self) -> None:
        self._asks, self._asks_at = False, self._inbox.now() + _ASK_AGAIN_AFTER

    def _go_for(self, again: list[str], *, more: bool) -> None:
        self._ask_again()
        if self._stop_asked:
            return
        for head in again:
            self._start(head)
        if not more:
            self._handle(StopAsked(drain=True, why="all that was there has gone through: "))

    def _cannot_drain(self, failure: Undrained) -> None:
        """Give up: without an answer nobody knows when to stop, and another start would find the same."""
        self.attempts[failure.segment].gate.close()
        self._handle(replace(self._failed(failure.segment, None, failure.error), final=True, outage=False))

    def _waits(self, segment: str) -> bool:
        """Whether a batch of the segment stands at its gate."""
        return self.attempts[segment].gate.paused

    def _end(self) -> None:
        """Leave no query behind, whatever ended the loop; wait for what hangs no longer than it says."""
        self._over.set()
        for attempt in self.attempts.values():
            attempt.gate.close()
        all_end([self._last_stop(attempt) for attempt in self.attempts.values()], STOP_WITHIN)
        all_end(self._workers, self._last_words)  # one that hangs ends with the process
        if not self._engine.close(_LAST_SNAPSHOT):
            text = f"the one under way did not end within {_LAST_SNAPSHOT:g} s, and the run ends without it"
            self._events.add("snapshot failed", None, text)

    def _last_stop(self, attempt: Attempt) -> Ending:
        """Stop a query in a thread of its own: its code may go on whatever happens."""
        query = attempt.abandon()

        def stop_it() -> None:
            with suppress(Exception):  # it cannot be interrupted and ends with the process, or Spark is gone
                if query is not None and query.isActive:
                    query.stop()

        return self._threads.begin("tidelock stopping", stop_it)


def _poisoned(segment: str, epoch: Epoch, gate: SegmentGate) -> EpochRange:
    """All the epochs of the batch that failed."""
    failed = gate.failed
    if failed is None or failed[0].covers.last != epoch:
        raise InternalError(f"segment {segment}: epoch {epoch} is to be set aside, but has not failed")
    return failed[0].covers
