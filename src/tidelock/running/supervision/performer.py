"""What the recovery machine asks for, performed: segments are started, stopped, cut off, their input set aside.

All of that takes time, so other threads do it, and what has come of it is told through the inbox. A failure of
what they do is a failure of the segment.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial

from tidelock.epochs import Epoch, EpochRange
from tidelock.errands import Ending, all_end
from tidelock.errors import BatchFailed, InternalError
from tidelock.home.events import Events
from tidelock.home.home import Home
from tidelock.pipeline.declaration import RunSettings
from tidelock.recovery import Fact, QueryEnded, QueryFailed, QueryStarted, SetAsideDone
from tidelock.running.attempts import STOP_WITHIN, Attempt, Hanging, cut_off, outcome, stop
from tidelock.running.dead_letters import set_aside_inputs
from tidelock.running.draining import Draining
from tidelock.running.gates import SegmentGate
from tidelock.running.ports.ports import Query, World
from tidelock.running.retrying import patiently
from tidelock.spark.query.batches import Stopped
from tidelock.spark.stories.stories import Storyteller
from tidelock.topology import Cutting


class Performer:
    """Performs actions on the segments of one pipeline. The supervisor's thread owns it, and its attempts.

    Args:
        has_room: whether the log that a segment writes can take more; asked in threads of batches.
        last_epoch: the epoch behind which no head goes.
        drain: what says how far heads go in a run that takes what is there.
    """

    def __init__(
        self,
        cutting: Cutting,
        stories: Storyteller,
        world: World,
        home: Home,
        settings: RunSettings,
        events: Events,
        *,
        has_room: Callable[[str], bool],
        last_epoch: Epoch | None,
        drain: Draining | None,
    ) -> None:
        self._cutting = cutting
        self._stories = stories
        self._engine = world.engine
        self._threads = world.threads
        self._inbox = world.inbox
        self._home = home
        self._settings = settings
        self._events = events
        self._has_room = has_room
        self._last_epoch = last_epoch
        self._drain = drain
        self.attempts: dict[str, Attempt] = {}
        """The newest attempt of every segment that was ever started."""
        self._workers: list[Ending] = []
        self.over = threading.Event()
        """Nothing more is to be done; any thread may look at it."""

    # -- actions

    def start(self, segment: str) -> None:
        """Start the query of a segment, or tell how that failed."""
        cut, drain = self._cutting.segment(segment), self._drain
        attempt = self.attempts[segment] = self._attempt(segment)
        if drain is not None and cut.is_head:
            drain.starts(segment)

        def begin() -> Fact | None:
            if drain is not None and cut.is_head:
                attempt.gate.admit(partial(drain.admits, segment, drain.newest_begun(segment)))
            try:
                self._engine.start(cut, attempt.gate, attempt, draining=drain is not None)
            except Stopped:
                return QueryEnded(segment)
            return QueryStarted(segment)

        self._work(segment, begin, starting=attempt)

    def _attempt(self, segment: str) -> Attempt:
        gate = SegmentGate(
            lambda: self._has_room(segment),
            self._last_epoch if self._cutting.segment(segment).is_head else None,
            self._engine.rest,
            self._inbox.now,
            tell=lambda: self._inbox.put(lambda: None),
        )
        return Attempt(gate, self._inbox.now)

    def close(self, segment: str) -> None:
        """Let no further batch of a segment in; a head that rests for a drain has ended with that."""
        self.attempts[segment].gate.close()
        if self._drain is not None and self._drain.is_resting(segment):
            self._inbox.put(lambda: QueryEnded(segment))

    def stop(self, segment: str) -> None:
        """Stop a segment that is at rest."""
        attempt = self.attempts[segment]
        query = self._taken(attempt)
        self._work(segment, lambda: stop(segment, attempt, query))

    def cut_off(self, segment: str, hanging: Hanging) -> None:
        """Stop a segment that hangs."""
        attempt = self.attempts[segment]
        query = self._taken(attempt)
        self._work(segment, lambda: cut_off(segment, attempt, query, hanging.epoch, hanging.story))

    def _taken(self, attempt: Attempt) -> Query | None:
        """The query that is to be ended, if there is one.

        The thread of a start, which may hang, is not waited for: it changes nothing more, and if it brings up a
        query after all, it stops that.
        """
        attempt.ending = True
        return attempt.query if attempt.started else attempt.abandon()

    def set_aside(self, segment: str, epoch: Epoch, story: str | None) -> None:
        """Set the input of the batch aside that ended with ``epoch``, for as long as its store has patience."""
        gate = self.attempts[segment].gate
        setting = partial(self._set_aside, segment, epoch, gate, story)
        self._work(segment, lambda: patiently(setting, self._settings.policy, self.over), final=True)

    def _set_aside(self, segment: str, epoch: Epoch, gate: SegmentGate, story: str | None) -> Fact:
        reader = self._cutting.segment(segment)
        if not reader.inputs:
            raise BatchFailed(f"epoch {epoch} cannot be set aside, because it comes from a source: {story}")
        rows = set_aside_inputs(self._home, reader, _poisoned(segment, epoch, gate))
        self._events.add("set aside", segment, f"epoch {epoch}: {rows} rows are in {self._home.root}/dead", epoch)
        return SetAsideDone(segment, epoch)

    # -- what they share

    def begin(self, name: str, what: Callable[[], None]) -> None:
        """Do something in a thread of its own, which is waited for in the end."""
        worker = self._threads.begin(name, what)
        self._workers = [one for one in self._workers if one.is_alive()] + [worker]

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
                failed = self.failed(segment, None, failure)
                fact = replace(failed, final=failed.final or final, outage=failed.outage and not final)
            self._inbox.put(lambda: fact if starting is None else outcome(starting, fact))

        self.begin(f"tidelock {segment}", work)

    # -- what it means that something has ended

    def ended(self, segment: str, attempt: Attempt, query: Query) -> Fact | None:
        """What it means that a query has ended by itself."""
        attempt.forget()
        if attempt.gate.failed is not None:
            work, failure = attempt.gate.failed
            return self.failed(segment, work.covers.last, failure)
        failure_of_query = query.exception()
        if failure_of_query is None and self._drain is not None and not attempt.gate.closed:
            self._drain.ended(segment)
            return None
        if failure_of_query is None or (attempt.gate.closed and Stopped.__name__ in str(failure_of_query)):
            return QueryEnded(segment)
        return self.failed(segment, None, failure_of_query)

    def failed(self, segment: str, epoch: Epoch | None, failure: BaseException) -> QueryFailed:
        """What a failure means."""
        cut = self._cutting.segment(segment)
        try:
            story = self._stories.tell(failure, [name for name in cut.operators if name != cut.sink])
        except Exception:  # Spark is asked for it and may be gone; a failure without a story is still one
            return QueryFailed(segment, epoch, f"{type(failure).__name__}: {failure}")
        return QueryFailed(segment, epoch, str(story), story.final, story.outage)

    # -- the end

    def end(self, last_words: float) -> None:
        """Leave no query behind; wait for what else is under way no longer than ``last_words`` seconds."""
        self.over.set()
        for attempt in self.attempts.values():
            attempt.gate.close()
        all_end([self._last_stop(attempt) for attempt in self.attempts.values()], STOP_WITHIN)
        all_end(self._workers, last_words)  # one that hangs ends with the process

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
