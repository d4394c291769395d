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

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from tidelock.epochs import BEFORE_FIRST, Epoch
from tidelock.errors import BackendUnavailable
from tidelock.home.events import Events
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
    SegmentState,
    SetAside,
    StartSegment,
    StopAsked,
    StopSegment,
    TimePassed,
    has_room,
)
from tidelock.running.attempts import Attempt
from tidelock.running.draining import Draining, Undrained
from tidelock.running.gauges import Gauge, RunView, SegmentView
from tidelock.running.pending import PendingLog
from tidelock.running.ports.ports import Told, World
from tidelock.running.supervision.performer import Performer
from tidelock.running.supervision.watcher import Watcher
from tidelock.spark.query.failures import told_if_gone
from tidelock.spark.query.listening import BatchProgress
from tidelock.spark.segments.describing import Functions
from tidelock.spark.stories.stories import Storyteller
from tidelock.topology import Cutting

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
        self.pending: Mapping[str, PendingLog] = {
            s.writes: PendingLog(EpochLog.open(home.log(s.writes)), record.readers(s.writes))
            for s in cutting.segments
            if s.writes
        }
        self._undone: list[Callable[[], None]] = []
        self._performer = Performer(
            cutting,
            Storyteller(functions),
            world,
            home,
            settings,
            events,
            has_room=self._has_room,
            last_epoch=last_epoch,
            drain=drain,
        )
        self._watcher = Watcher(self._performer, world, settings.hang_after, events, self._handle)
        self.attempts: Mapping[str, Attempt] = self._performer.attempts
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
        self._engine.listen(self._progressed, lambda run: self._tell(lambda: self._watcher.doubt(run)))
        self._watcher.begin()
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
            self._watcher.look()
            if self._is_due(self.machine.wake_at()):
                self._handle(TimePassed())
            if self._last_epoch is not None:
                self._stop_at_last_epoch(self._last_epoch)
            if self._drain is not None:
                self._go_on_draining(self._drain)
            self._do_undone()
            self.view = self._viewed()

    def _viewed(self) -> RunView:
        machine = self.machine
        state = "failed" if machine.gave_up else "stopped" if machine.done else "running"
        return RunView(state, {name: self._viewed_segment(name) for name in self.gauges})

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
            self._watcher.catch_up()  # what was committed before comes first, also if Spark's word of it is lost
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

    def _progressed(self, progress: BatchProgress) -> None:
        self._tell(lambda: self._committed(progress))

    def _committed(self, progress: BatchProgress) -> Fact | None:
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
                self._performer.start(segment)
            case StopSegment(segment):
                self._performer.close(segment)
            case SetAside(segment, epoch):
                self._performer.set_aside(segment, epoch, self.machine.last_error(segment))
            case GiveUp():
                pass  # the machine stops the others, and the events have the story

    def _wake_at(self) -> float:
        """When it matters next to do something, if nothing is told before that."""
        moments = [self._watcher.look_at()]
        if (retry := self.machine.wake_at()) is not None:
            moments.append(retry)
        if not self._is_due(self._asks_at):
            moments.append(self._asks_at)
        return min(moments)

    def _is_due(self, moment: float | None) -> bool:
        return moment is not None and moment <= self._inbox.now()

    def _has_room(self, segment: str) -> bool:
        pending = self.pending.get(segment)
        if pending is None:
            return True
        head = self._cutting.segment(segment).is_head
        return has_room(*pending.measure(), self._settings.bound, pending.share_used(), head=head)

    def _stop_at_last_epoch(self, last: Epoch) -> None:
        heads = [s.name for s in self._cutting.segments if s.is_head]
        if all(self.machine.epoch(head) >= last for head in heads) and any(
            self.machine.state(head) is SegmentState.RUNNING for head in heads
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
        self._performer.begin("tidelock draining", lambda: self._tell(asking()))

    def _drained(self, drain: Draining, *, may_add: bool, ready: bool) -> Callable[[], None]:
        """Ask whether another epoch would bring something, and go for it; what is to be done about the answer.

        Stores and files are asked, in a thread of its own: whatever hangs there holds up nobody.
        """
        try:
            more = may_add and drain.needs_one_more()
            again = drain.one_more() if more and ready and not self._performer.over.is_set() else []
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
            self._performer.start(head)
        if not more:
            self._handle(StopAsked(drain=True, why="all that was there has gone through: "))

    def _cannot_drain(self, failure: Undrained) -> None:
        """Give up: without an answer nobody knows when to stop, and another start would find the same."""
        self.attempts[failure.segment].gate.close()
        failed = self._performer.failed(failure.segment, None, failure.error)
        self._handle(replace(failed, final=True, outage=False))

    def _waits(self, segment: str) -> bool:
        """Whether a batch of the segment stands at its gate."""
        return self.attempts[segment].gate.paused

    def _end(self) -> None:
        """Leave nothing behind, whatever ended the loop; wait for what hangs no longer than it says."""
        self._performer.end(self._last_words)
        if not self._engine.close(_LAST_SNAPSHOT):
            text = f"the one under way did not end within {_LAST_SNAPSHOT:g} s, and the run ends without it"
            self._events.add("snapshot failed", None, text)
