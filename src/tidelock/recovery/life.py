"""One segment under supervision: its state, and how it answers to each fact.

Theory of operation
-------------------
`REACTIONS`, at the end of this file, is the whole machine of one segment: for each state, what each fact does.
`Life.ignore` marks facts that are late or repeated and mean nothing any more; a fact that is not in the table
cannot happen if the driver performs what it is asked, so it raises `InternalError` with the segment's story.

    WAITING ──► STARTING ──► RUNNING          a commit or `QueryStarted` makes a starting segment a running one
                 ▲   │          │
                 │   ▼          ▼
                BACKING_OFF ◄───┘             a failure: later again, or after its input was set aside
                     │
                     ▼
    STOPPING ──► STOPPED      FAILED          both final; `stop` leads here from every state

Invariants (`validate`):

* a segment that backs off waits for exactly one thing: its time, or the dead-letter log; no other waits at all;
* failures in a row never exceed the policy's attempts; each newly committed epoch ends the row;
* an outage has a beginning exactly as long as it lasts; each newly committed epoch ends it;
* what is remembered is bounded, however long the segment lives: the newest failures, and which epochs were set
  aside that are not committed yet;
* nothing leaves STOPPED or FAILED.

An outage (a store or a server that does not answer) says nothing about the epoch. Such failures stand beside the
row and are not of it: neither do they bring an epoch nearer to being poison, nor do they begin the row anew. Their
own delays grow in the same way, and what bounds them is time, the policy's patience.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum

from tidelock.epochs import BEFORE_FIRST, Epoch
from tidelock.errors import InternalError
from tidelock.recovery.facts import (
    Action,
    EpochCommitted,
    GiveUp,
    InputsReady,
    QueryEnded,
    QueryFailed,
    QueryStarted,
    SegmentFact,
    SetAside,
    SetAsideDone,
    StartSegment,
    StopSegment,
)
from tidelock.recovery.policy import Policy

REMEMBERED_FACTS = 10
REMEMBERED_FAILURES = 20


class SegmentState(Enum):
    """Where a segment is in its life."""

    WAITING = "waiting"
    """Its logs are not all there yet."""
    STARTING = "starting"
    RUNNING = "running"
    BACKING_OFF = "backing off"
    """It failed, and will be started again."""
    STOPPING = "stopping"
    STOPPED = "stopped"
    FAILED = "failed"


ENDED = frozenset({SegmentState.STOPPED, SegmentState.FAILED})
LIVE = frozenset({SegmentState.STARTING, SegmentState.RUNNING})


@dataclass(frozen=True)
class Failure:
    """One failure of a segment: when, at which epoch (None if unknown), and what happened."""

    at: float
    epoch: Epoch | None
    story: str
    outage: bool = False


@dataclass(frozen=True)
class Outage:
    """A store or a server is away: since when, and how many attempts of the segment have met that."""

    since: float
    failures: int = 1

    def again(self) -> Outage:
        """The outage when one more attempt has met it."""
        return replace(self, failures=self.failures + 1)


class Life:
    """The state of one segment. Not thread-safe; only `Machine` changes it."""

    def __init__(self, segment: str, policy: Policy) -> None:
        self.segment = segment
        self.state = SegmentState.WAITING
        self.epoch = BEFORE_FIRST
        self.restarts = 0
        self.failures: deque[Failure] = deque(maxlen=REMEMBERED_FAILURES)
        self.retry_at: float | None = None
        self._policy = policy
        self._met = 0  # failures in all, also those that are not remembered any more
        self._row = 0  # failures since the last commit, those of an outage not among them
        self._outage: Outage | None = None
        self._setting_aside: Epoch | None = None
        self._set_aside: set[Epoch] = set()
        self._facts: deque[str] = deque(maxlen=REMEMBERED_FACTS)

    def handle(self, fact: SegmentFact, now: float) -> tuple[Action, ...]:
        """Take a fact about this segment and say what is to be done for it.

        Raises:
            InternalError: the fact cannot be true of a segment in this state.
        """
        self._facts.append(f"at {now:g} {self.state.value}: {fact}")
        reaction = REACTIONS[self.state].get(type(fact))
        if reaction is None:
            raise self._broken(f"{type(fact).__name__} in state {self.state.value!r}")
        return reaction(self, fact, now)

    def stop(self) -> tuple[Action, ...]:
        """Stop at the next boundary; what does not run is stopped at once."""
        if self.state in LIVE:
            self.state = SegmentState.STOPPING
            return (StopSegment(self.segment),)
        if self.state in (SegmentState.WAITING, SegmentState.BACKING_OFF):
            self._rest(SegmentState.STOPPED)
        return ()

    def look(self, now: float) -> tuple[Action, ...]:
        """Start again if the time to do so has come."""
        if self.retry_at is None or now < self.retry_at:
            return ()
        return self._restart()

    def validate(self) -> None:
        """Check the invariants.

        Raises:
            InternalError: one of them does not hold.
        """
        waits = (self.retry_at is not None) + (self._setting_aside is not None)
        if waits != (self.state is SegmentState.BACKING_OFF):
            raise self._broken(f"waits for {waits} things in state {self.state.value!r}")
        if not 0 <= self._row <= min(self._met, self._policy.attempts):
            raise self._broken(f"{self._row} failures in a row out of {self._met}")
        if self._outage and not 1 <= self._outage.failures <= self._met - self._row:
            raise self._broken(f"an outage that {self._outage.failures} of {self._met} attempts have met")
        if len(self.failures) != min(self._met, REMEMBERED_FAILURES):
            raise self._broken(f"{len(self.failures)} failures are remembered of {self._met}")
        if any(epoch <= self.epoch for epoch in self._set_aside):
            raise self._broken(f"epochs {sorted(self._set_aside)} are set aside, and {self.epoch} is committed")

    # -- reactions

    def ignore(self, _fact: SegmentFact, _now: float) -> tuple[Action, ...]:
        """Nothing: the fact is late, or was told before."""
        return ()

    def start(self, _fact: InputsReady, _now: float) -> tuple[Action, ...]:
        """Start for the first time."""
        self.state = SegmentState.STARTING
        return (StartSegment(self.segment, attempt=1),)

    def run(self, _fact: QueryStarted, _now: float) -> tuple[Action, ...]:
        """Count as running."""
        self.state = SegmentState.RUNNING
        return ()

    def learn(self, fact: EpochCommitted, _now: float) -> tuple[Action, ...]:
        """Know how far the segment has come, whatever it is doing."""
        self.epoch = max(self.epoch, fact.epoch)
        self._set_aside = {epoch for epoch in self._set_aside if epoch > self.epoch}
        return ()

    def advance(self, fact: EpochCommitted, now: float) -> tuple[Action, ...]:
        """Progress: the row of failures is over, and so is an outage."""
        if fact.epoch > self.epoch:
            self._row, self._outage = 0, None
            if self.state is SegmentState.STARTING:
                self.state = SegmentState.RUNNING
        return self.learn(fact, now)

    def advance_late(self, fact: EpochCommitted, now: float) -> tuple[Action, ...]:
        """Progress that was made before the newest failure: that one was the first of its row, or outage."""
        if fact.epoch > self.epoch:
            newest = self.failures[-1]
            self._row = 0 if newest.outage else 1
            self._outage = Outage(newest.at) if newest.outage else None
        return self.learn(fact, now)

    def fail(self, fact: QueryFailed, now: float) -> tuple[Action, ...]:
        """Try again later, set the epoch aside, or give up, as the policy says."""
        self._keep(fact, now)
        if fact.final:
            return self._give_up(f"failed and cannot be retried: {fact.story}")
        if fact.outage:
            return self._wait_for_the_store(fact, now)
        self._row += 1
        if self._row < self._policy.attempts:
            return self._back_off(self._row, now)
        return self._poisoned(fact)

    def fail_for_good(self, fact: QueryFailed, now: float) -> tuple[Action, ...]:
        """Give up if the failure is final; a failure of a query that does not run is old news otherwise."""
        if not fact.final:
            return ()
        self._keep(fact, now)
        return self._give_up(f"cannot be started: {fact.story}")

    def fail_before_start(self, fact: QueryFailed, now: float) -> tuple[Action, ...]:
        """Give up on what can never be started; nothing else can fail before it was started."""
        if not fact.final:
            raise self._broken("a query failed that was never started")
        return self.fail_for_good(fact, now)

    def fail_stopping(self, fact: QueryFailed, now: float) -> tuple[Action, ...]:
        """Be stopped all the same, and remember how."""
        self._keep(fact, now)
        self._rest(SegmentState.STOPPED)
        return ()

    def end(self, _fact: QueryEnded, _now: float) -> tuple[Action, ...]:
        """Be stopped: as asked, or because the source ended."""
        self._rest(SegmentState.STOPPED)
        return ()

    def resume(self, fact: SetAsideDone, now: float) -> tuple[Action, ...]:
        """Start again, without the input that was set aside."""
        if fact.epoch != self._setting_aside:
            return self.check_set_aside(fact, now)
        self._set_aside.add(fact.epoch)
        self._row = 0
        return self._restart()

    def check_set_aside(self, fact: SetAsideDone, _now: float) -> tuple[Action, ...]:
        """Nothing, if it was asked for once."""
        if fact.epoch > self.epoch and fact.epoch not in self._set_aside:
            raise self._broken(f"nobody asked to set epoch {fact.epoch} aside")
        return ()

    # -- what they share

    def _wait_for_the_store(self, fact: QueryFailed, now: float) -> tuple[Action, ...]:
        self._outage = self._outage.again() if self._outage else Outage(now)
        lasted = now - self._outage.since
        if lasted <= self._policy.patience:
            return self._back_off(self._outage.failures, now)
        return self._give_up(
            f"has waited {lasted:.0f} s for a store or server that does not answer, which is longer than its "
            f"patience of {self._policy.patience:g} s: {fact.story}. No epoch is lost: bring the store back and "
            "start the pipeline again, it goes on where it was"
        )

    def _back_off(self, failures: int, now: float) -> tuple[Action, ...]:
        self.state, self.retry_at = SegmentState.BACKING_OFF, now + self._policy.delay(failures)
        return ()

    def _restart(self) -> tuple[Action, ...]:
        self._rest(SegmentState.STARTING)
        self.restarts += 1
        return (StartSegment(self.segment, attempt=self._row + 1),)

    def _poisoned(self, fact: QueryFailed) -> tuple[Action, ...]:
        if fact.epoch in self._set_aside:
            return self._give_up(f"failed at epoch {fact.epoch} although its input was set aside: {fact.story}")
        if self._policy.on_poison == "dead-letter" and fact.epoch is not None:
            self.state, self._setting_aside = SegmentState.BACKING_OFF, fact.epoch
            return (SetAside(self.segment, fact.epoch),)
        where = "at an unknown epoch" if fact.epoch is None else f"at epoch {fact.epoch}"
        return self._give_up(f"failed {self._row} times in a row, the last time {where}: {fact.story}")

    def _give_up(self, story: str) -> tuple[Action, ...]:
        self._rest(SegmentState.FAILED)
        return (GiveUp(self.segment, f"segment {self.segment!r} {story}"),)

    def _rest(self, state: SegmentState) -> None:
        """Go to a state that waits neither for a time nor for the dead-letter log."""
        self.state, self.retry_at, self._setting_aside = state, None, None

    def _keep(self, fact: QueryFailed, now: float) -> None:
        self._met += 1
        self.failures.append(Failure(now, fact.epoch, fact.story, fact.outage))

    def _broken(self, what: str) -> InternalError:
        return InternalError(
            f"segment {self.segment!r}: {what}; its last facts: {'; '.join(self._facts) or 'none'}"
        )


Reaction = Callable[..., tuple[Action, ...]]

_LIVE: Mapping[type[SegmentFact], Reaction] = {
    InputsReady: Life.ignore,
    QueryStarted: Life.run,
    EpochCommitted: Life.advance,
    QueryFailed: Life.fail,
    QueryEnded: Life.end,
    SetAsideDone: Life.check_set_aside,
}

_OVER: Mapping[type[SegmentFact], Reaction] = {
    InputsReady: Life.ignore,
    QueryStarted: Life.ignore,
    EpochCommitted: Life.learn,
    QueryFailed: Life.ignore,
    QueryEnded: Life.ignore,
    SetAsideDone: Life.ignore,
}

REACTIONS: Mapping[SegmentState, Mapping[type[SegmentFact], Reaction]] = {
    SegmentState.WAITING: {
        InputsReady: Life.start,
        EpochCommitted: Life.learn,
        QueryFailed: Life.fail_before_start,
    },
    SegmentState.STARTING: _LIVE,
    SegmentState.RUNNING: _LIVE,
    SegmentState.BACKING_OFF: {
        InputsReady: Life.ignore,
        QueryStarted: Life.ignore,
        EpochCommitted: Life.advance_late,
        QueryFailed: Life.fail_for_good,
        QueryEnded: Life.ignore,
        SetAsideDone: Life.resume,
    },
    SegmentState.STOPPING: {
        InputsReady: Life.ignore,
        QueryStarted: Life.ignore,
        EpochCommitted: Life.advance,
        QueryFailed: Life.fail_stopping,
        QueryEnded: Life.end,
        SetAsideDone: Life.check_set_aside,
    },
    SegmentState.STOPPED: _OVER,
    SegmentState.FAILED: _OVER,
}
