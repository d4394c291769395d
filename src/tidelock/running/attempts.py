"""One attempt to run the query of a segment, and the threads that have to do with it.

A query is started in a thread of its own, because that takes time: the code of the operators is called, and every
source gets a process. Before that, cached state and checkpoint are brought together. All of this can hang. So a
start can be abandoned: whoever waits for it goes on, and the thread finds out before its next step that changes
anything. The query that it has made until then, it stops, and its gate lets no batch in.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf

from tidelock.epochs import Epoch
from tidelock.errands import Errands
from tidelock.errors import BatchFailed
from tidelock.recovery import Fact, QueryEnded, QueryFailed, QueryStarted
from tidelock.running.gates import SegmentGate
from tidelock.running.ports.ports import Query
from tidelock.spark.query.batches import Stopped
from tidelock.spark.query.queries import waited_for_by

STOP_WITHIN = 60.0
_SOON = 0.1
_LEAST_PAUSE = 0.001


@dataclass(frozen=True)
class Hanging:
    """What has not come to its end for too long: the epoch, if it is a batch, and the story."""

    epoch: Epoch | None
    story: str


class Attempt:
    """One run of a segment's query, from the wish to start it to its end.

    Thread-safe: the thread that starts the query and the supervisor meet here, under a lock. Only ``started``,
    ``doubtful`` and ``ending`` have no lock: they are the supervisor's own.
    """

    def __init__(self, gate: SegmentGate, clock: Callable[[], float] = time.monotonic) -> None:
        self.gate = gate
        self.started = False
        """The query is up: the thread that started it is done with it."""
        self.doubtful = True
        """Its query may have ended, and has not been asked since."""
        self.ending = False
        """Somebody is stopping it."""
        self._lock = threading.Lock()
        self._query: Query | None = None
        self._run = ""
        self._abandoned = False
        self._turns: list[threading.Semaphore] = []
        self._clock = clock
        self._since = clock()
        """When it was wished for, later by the time for which it has waited for turns."""
        self._waits_since: float | None = None

    # -- the side of the thread that starts it

    @contextmanager
    def turn(self, turns: threading.Semaphore) -> Iterator[None]:
        """Wait for a turn, and have it inside; to wait is not to hang. Turns of several kinds may be had at once.

        Raises:
            Stopped: nobody wants the query any more.
        """
        with self._lock:
            self._waits_since = self._clock()
        turns.acquire()
        with self._lock:
            self._turns.append(turns)
            self._since, self._waits_since = self._clock() - self._lasted(), None
        try:
            self.check()
            with waited_for_by(self):
                yield
        finally:
            with self._lock:
                self._give_back(turns)

    def check(self) -> None:
        """See that the query is still wanted.

        Raises:
            Stopped: it is not.
        """
        if self.gate.closed or self.abandoned:
            raise Stopped("stopped while it started")

    def begun(self, query: Query) -> None:
        """The query is there, though its sources are not yet.

        Raises:
            Stopped: the start was abandoned meanwhile; the query is stopped.
        """
        run = str(query.runId)
        with self._lock:
            if not self._abandoned:
                self._query, self._run = query, run
                return
        query.stop()
        raise Stopped("abandoned while it started")

    # -- the supervisor's side

    @property
    def query(self) -> Query | None:
        """The query, while there is one."""
        with self._lock:
            return self._query

    @property
    def run(self) -> str:
        """Spark's name for this run of the query; empty before there is one."""
        with self._lock:
            return self._run

    @property
    def abandoned(self) -> bool:
        """Whether nobody waits for the start any more."""
        with self._lock:
            return self._abandoned

    def lasted(self) -> float:
        """For how many seconds it has been starting; waiting for a turn does not count."""
        with self._lock:
            return self._lasted()

    def _lasted(self) -> float:
        return (self._clock() if self._waits_since is None else self._waits_since) - self._since

    def look_at(self, bound: float) -> float:
        """When it matters next to look at it, if nothing is told of it before.

        That is now if it can be stopped, soon if its query is about to end, and otherwise when what is under way
        has lasted for ``bound`` seconds.
        """
        now, gate = self._clock(), self.gate
        if self.ending or (self.started and self.query is None):
            return inf
        if gate.closed and gate.at_rest():
            return now
        if not self.started:
            return now + max(bound - self.lasted(), _LEAST_PAUSE)
        if self.doubtful:
            return now
        under_way = [found[1] for found in (gate.inside(), gate.uncommitted()) if found]
        left = [max(bound - lasted, _LEAST_PAUSE) for lasted in under_way]
        return now + min([*left, _SOON if gate.failed else inf])

    def hangs(self, bound: float) -> Hanging | None:
        """What has been under way for ``bound`` seconds: its start, a batch, or the commit of one."""
        if not self.started:
            late = self.lasted() >= bound
            return Hanging(None, f"its query was not up within {bound:g} s") if late else None
        inside, computed = self.gate.inside(), self.gate.uncommitted()
        if inside is not None and inside[1] >= bound:
            epoch = inside[0].covers.last
            return Hanging(epoch, f"epoch {epoch} did not end within {bound:g} s")
        if computed is not None and computed[1] >= bound:
            story = f"epoch {computed[0]} was computed, but Spark did not commit it within {bound:g} s"
            return Hanging(None, story)
        return None

    def forget(self) -> None:
        """The query has ended."""
        with self._lock:
            self._query = None

    def abandon(self) -> Query | None:
        """Wait for the start no longer; the query that is to be stopped, if there is one already."""
        self.gate.close()
        with self._lock:
            self._abandoned = True
            for turns in list(self._turns):  # the thread may hang for ever, and others want to start
                self._give_back(turns)
            query, self._query = self._query, None
            return query

    def _give_back(self, turns: threading.Semaphore) -> None:
        if turns in self._turns:
            self._turns.remove(turns)
            turns.release()


def outcome(attempt: Attempt, fact: Fact | None) -> Fact | None:
    """What a start has come to; nothing, if it was abandoned: then its end was told before."""
    if attempt.abandoned:
        return None
    attempt.started, attempt.ending = True, not isinstance(fact, QueryStarted)
    return fact


def stop(segment: str, attempt: Attempt, query: Query | None) -> Fact:
    """End a query between two epochs, or one that has not begun.

    Raises:
        TimeoutError: it has not ended.
    """
    if query is not None:
        end_query(query)
    attempt.forget()
    return QueryEnded(segment)


def cut_off(segment: str, attempt: Attempt, query: Query | None, epoch: Epoch | None, story: str) -> Fact:
    """End a query that hangs; if it cannot be ended, another one beside it would be no help."""
    try:
        if query is not None:
            end_query(query)
    except TimeoutError:
        attempt.forget()
        story = f"{story}, and its code cannot be interrupted: end this process and run the pipeline again"
        return QueryFailed(segment, epoch, story, final=True)
    except Exception as failure:  # Spark's own, as it is going down
        raise BatchFailed(f"{story}, and its query cannot be stopped: {failure}") from failure
    attempt.forget()
    return QueryFailed(segment, epoch, story)


def end_query(query: Query) -> None:
    """Stop a query and wait until it has ended, but no longer than `STOP_WITHIN`.

    Spark waits without end by default, and takes its setting for that from the user's session when it stops.

    Raises:
        TimeoutError: its code goes on and cannot be interrupted.
    """
    try:
        Errands("tidelock stopping").run(query.stop).result(STOP_WITHIN)
    except TimeoutError:
        raise TimeoutError(f"the query has not ended within {STOP_WITHIN:g} s, although it was stopped") from None
