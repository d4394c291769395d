"""What nobody tells is looked at: starts and batches that hang, ends and commits of which Spark's word is lost.

Every attempt has a moment at which that matters next (`Attempt.look_at`). Beside that there is a heart-beat, at
which queries and checkpoints are asked for what Spark should have told, and Spark for what it has coped with.
"""

from __future__ import annotations

from collections.abc import Callable

from tidelock.errors import TidelockError
from tidelock.home.events import Events, Trouble
from tidelock.recovery import EpochCommitted
from tidelock.running.attempts import Attempt
from tidelock.running.ports.ports import Query, World
from tidelock.running.supervision.performer import Performer
from tidelock.spark.query.listening import Losses

_HEARTBEAT = 1.0


class Watcher:
    """Looks at what a performer has started. The supervisor's thread owns it.

    Args:
        bound: the seconds after which something counts as hanging.
        committed: takes a commit that was found.
    """

    def __init__(
        self,
        performer: Performer,
        world: World,
        bound: float,
        events: Events,
        committed: Callable[[EpochCommitted], None],
    ) -> None:
        self._performer = performer
        self._engine = world.engine
        self._positions = world.positions
        self._inbox = world.inbox
        self._bound = bound
        self._events = events
        self._committed = committed
        self._beats_at = 0.0
        self._losses = Losses(0, ())
        self._asking = Trouble(events, "status failed", "status recovered")
        self._reading = Trouble(events, "status failed", "status recovered")

    def begin(self) -> None:
        """Tell nothing of what Spark had coped with before."""
        self._losses = self._engine.losses()

    def look_at(self) -> float:
        """When it matters next to look, if nothing is told before."""
        moments = [attempt.look_at(self._bound) for attempt in self._performer.attempts.values()]
        return min([self._beats_at, *moments])

    def doubt(self, run: str) -> None:
        """Look next at a query of which Spark tells that it has ended."""
        for attempt in self._performer.attempts.values():
            attempt.doubtful = attempt.doubtful or attempt.run == run

    def look(self) -> None:
        """Look at what may have changed; at a heart-beat also at what Spark should have told."""
        if self._beats_at <= self._inbox.now():
            self._beats_at = self._inbox.now() + _HEARTBEAT
            for attempt in self._performer.attempts.values():
                attempt.doubtful = True
            self.catch_up()
            self._look_at_spark()
        for segment, attempt in list(self._performer.attempts.items()):
            if not attempt.ending:
                self._look_at(segment, attempt)

    def catch_up(self) -> None:
        """Learn of commits from the checkpoints: Spark's listener may drop events when there is much to do."""
        try:
            found = [
                (segment, attempt, batch)
                for segment, attempt in self._performer.attempts.items()
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
                self._committed(EpochCommitted(segment, epoch))

    def _look_at(self, segment: str, attempt: Attempt) -> None:
        query, gate = attempt.query, attempt.gate
        if attempt.started and query is None:
            return
        if attempt.started and query is not None and self._has_ended(attempt, query):
            attempt.ending = True
            self._inbox.put(lambda: self._performer.ended(segment, attempt, query))
        elif gate.closed and gate.at_rest():
            self._performer.stop(segment)
        elif attempt.hangs(self._bound):
            self.catch_up()  # what Spark has told of a commit may be lost
            hanging = attempt.hangs(self._bound)
            if hanging is not None:
                self._performer.cut_off(segment, hanging)

    def _has_ended(self, attempt: Attempt, query: Query) -> bool:
        """Whether a query has ended; Spark is asked only if it may have, or before it is stopped."""
        gate = attempt.gate
        asks, attempt.doubtful = attempt.doubtful or gate.closed or gate.failed is not None, False
        return asks and not query.isActive

    def _look_at_spark(self) -> None:
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
