"""The supervising machine against an environment that starts, commits, fails, hangs, ends and repeats itself.

The environment performs every action and keeps the promises of `tidelock.recovery.facts`, nothing more: answers
come in any order and as late as it likes, and what it has told it may tell again.
"""

from __future__ import annotations

from collections.abc import Collection

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tidelock.epochs import BEFORE_FIRST, Epoch
from tidelock.recovery import (
    Action,
    EpochCommitted,
    Fact,
    GiveUp,
    InputsReady,
    Link,
    Machine,
    Policy,
    QueryEnded,
    QueryFailed,
    QueryStarted,
    SegmentState,
    SetAside,
    SetAsideDone,
    Shape,
    StartSegment,
    StopAsked,
    StopSegment,
    TimePassed,
    life,
)

SHAPES: tuple[Shape, ...] = (
    {"a": (), "b": (Link("a"),), "c": (Link("b"),)},
    {"a": (), "b": (), "c": (Link("a"), Link("b")), "d": (Link("b"),)},
    {"a": (Link("c", lag=1),), "b": (Link("a"),), "c": (Link("b"),)},
    {"a": (), "b": (Link("a"),), "c": (Link("a"),), "d": (Link("b"), Link("c"), Link("d", lag=1))},
)
ENDED = {SegmentState.STOPPED, SegmentState.FAILED}
PLACES = st.integers(0, 3)
REMEMBERED = 2
"""So few failures that the bound is always met: `validate` sees that it is kept."""


def pick(segments: Collection[str], place: int) -> str:
    """One of the segments, whichever these are by now."""
    return sorted(segments)[place % len(segments)]


class Environment(RuleBasedStateMachine):
    """Queries that really exist (`asked` to start, then `running`), and what was asked of them."""

    @initialize(
        shape=st.sampled_from(SHAPES),
        attempts=st.integers(1, 4),
        poison=st.sampled_from(["stop", "dead-letter"]),
        patience=st.sampled_from([0.0, 5.0, 1000.0]),
    )
    def begin(self, shape: Shape, attempts: int, poison: str, patience: float) -> None:
        self.shape = shape
        self.policy = Policy(
            attempts,
            first_delay=1.0,
            factor=2.0,
            longest_delay=3.0,
            on_poison=poison,  # type: ignore[arg-type]
            patience=patience,
        )
        self.remembered, life.REMEMBERED_FAILURES = life.REMEMBERED_FAILURES, REMEMBERED
        self.machine = Machine(shape, self.policy)
        self.now = 0.0
        self.asked: set[str] = set()
        self.running: set[str] = set()
        self.stop_asked: set[str] = set()
        self.to_set_aside: set[tuple[str, Epoch]] = set()
        self.committed = dict.fromkeys(shape, BEFORE_FIRST)
        self.told: list[Fact] = []
        self.row = dict.fromkeys(shape, 0)
        self.away: dict[str, list[float]] = {segment: [] for segment in shape}

    # -- telling, and doing what is asked

    def tell(self, fact: Fact) -> tuple[Action, ...]:
        before = {segment: self.machine.state(segment) for segment in self.shape}
        actions = self.machine.handle(fact, self.now)
        self.machine.validate()
        for action in actions:
            assert before[action.segment] not in ENDED, "an action for a segment that has ended"
            self.perform(action)
        for segment, state in before.items():
            assert state not in ENDED or self.machine.state(segment) is state, "an end is an end"
        self.told.append(fact)
        return actions

    def perform(self, action: Action) -> None:
        segment = action.segment
        match action:
            case StartSegment():
                assert segment not in self.asked | self.running, "two queries for one segment"
                assert 1 <= action.attempt <= self.policy.attempts
                self.asked.add(segment)
            case StopSegment():
                assert segment in self.asked | self.running, "nothing there to stop"
                assert segment not in self.stop_asked, "stopped twice"
                self.stop_asked.add(segment)
            case SetAside():
                assert self.policy.on_poison == "dead-letter"
                self.to_set_aside.add((segment, action.epoch))
            case GiveUp():
                assert segment not in self.asked | self.running
                assert self.machine.gave_up == (segment, action.story)

    def lives(self, segment: str) -> bool:
        return segment in self.asked or segment in self.running

    def gone(self, segment: str) -> None:
        for group in (self.asked, self.running, self.stop_asked):
            group.discard(segment)

    # -- what happens to queries

    @rule(place=PLACES)
    def inputs_are_ready(self, place: int) -> None:
        self.tell(InputsReady(pick(self.shape, place)))

    @precondition(lambda self: self.asked)
    @rule(place=PLACES)
    def some_query_starts(self, place: int) -> None:
        self.starts(pick(self.asked, place))

    def starts(self, segment: str) -> None:
        self.asked.remove(segment)
        self.running.add(segment)
        self.tell(QueryStarted(segment))

    @precondition(lambda self: self.ready_to_commit())
    @rule(place=PLACES)
    def some_query_commits(self, place: int) -> None:
        self.commits(pick(self.ready_to_commit(), place))

    def commits(self, segment: str) -> None:
        self.committed[segment] = Epoch(self.committed[segment] + 1)
        self.row[segment] = 0
        self.away[segment] = []
        self.tell(EpochCommitted(segment, self.committed[segment]))

    def ready_to_commit(self) -> set[str]:
        return {segment for segment in self.running if self.can_commit(segment)}

    def can_commit(self, segment: str) -> bool:
        following = self.committed[segment] + 1
        return all(following - link.lag <= self.committed[link.upstream] for link in self.shape[segment])

    @precondition(lambda self: self.asked | self.running)
    @rule(place=PLACES, known=st.integers(0, 3), final=st.integers(0, 19), outage=st.booleans())
    def some_query_fails(self, place: int, known: int, final: int, outage: bool) -> None:
        self.fails(pick(self.asked | self.running, place), known=known > 0, final=final == 19, outage=outage)

    def fails(self, segment: str, *, known: bool, final: bool, outage: bool) -> None:
        stopping = self.machine.state(segment) is SegmentState.STOPPING
        self.gone(segment)
        epoch = Epoch(self.committed[segment] + 1) if known else None
        actions = self.tell(QueryFailed(segment, epoch, "boom", final, outage))
        if stopping:
            assert self.machine.state(segment) is SegmentState.STOPPED
            return
        if outage:
            self.away[segment].append(self.now)
            too_long = self.now - self.away[segment][0] > self.policy.patience
            assert any(isinstance(action, GiveUp) for action in actions) == (final or too_long)
        else:
            self.row[segment] += 1
        if not any(isinstance(action, GiveUp) for action in actions):
            assert all(action == SetAside(segment, epoch) for action in actions), "others are left alone"
        self.check_delay(segment, len(self.away[segment]) if outage else self.row[segment])

    @precondition(lambda self: self.asked)
    @rule(place=PLACES)
    def a_start_hangs_again_and_again(self, place: int) -> None:
        """It is cut off, which is told as a failure at no epoch; if its thread wakes up, nothing is told of it."""
        segment = pick(self.asked, place)
        stopping = self.machine.state(segment) is SegmentState.STOPPING
        left = self.policy.attempts - self.row[segment]
        for _ in range(left):
            assert segment in self.asked, "a start that was cut off is made again"
            self.fails(segment, known=False, final=False, outage=False)
            if stopping:
                break
            self.time_passes(3)
        assert self.machine.state(segment) is (SegmentState.STOPPED if stopping else SegmentState.FAILED), (
            "it is not tried for ever"
        )

    @precondition(lambda self: self.ready_to_commit())
    @rule(place=PLACES, outage=st.booleans())
    def a_commit_is_told_after_the_failure_behind_it(self, place: int, outage: bool) -> None:
        segment = pick(self.ready_to_commit(), place)
        self.committed[segment] = Epoch(self.committed[segment] + 1)
        self.fails(segment, known=True, final=False, outage=outage)
        self.tell(EpochCommitted(segment, self.committed[segment]))
        self.row[segment] = int(not outage)
        self.away[segment] = [self.now] if outage else []

    def check_delay(self, segment: str, failures: int) -> None:
        """Back-off grows with the failures of its kind: none, 1, 2, then 3 seconds at most."""
        life = self.machine._lives[segment]
        if life.retry_at is not None:
            assert life.retry_at - self.now == (0.0 if failures == 1 else min(3.0, 2.0 ** (failures - 2)))
            wake_at = self.machine.wake_at()
            assert wake_at is not None
            assert wake_at <= life.retry_at

    @precondition(lambda self: self.stop_asked)
    @rule(place=PLACES)
    def some_query_ends_as_asked(self, place: int) -> None:
        self.ends(pick(self.stop_asked, place))

    @precondition(lambda self: self.lives("a") and len(self.told) > 20)
    @rule()
    def the_source_of_a_head_ends(self) -> None:
        self.ends("a")

    def ends(self, segment: str) -> None:
        self.gone(segment)
        self.tell(QueryEnded(segment))
        assert self.machine.state(segment) is SegmentState.STOPPED

    @precondition(lambda self: self.to_set_aside)
    @rule()
    def an_epoch_is_set_aside(self) -> None:
        segment, epoch = min(self.to_set_aside)
        self.to_set_aside.remove((segment, epoch))
        if self.tell(SetAsideDone(segment, epoch)):
            self.row[segment] = 0

    @rule(seconds=st.integers(0, 4))
    def time_passes(self, seconds: int) -> None:
        self.now += seconds
        due = [s for s in self.shape if (at := self.machine._lives[s].retry_at) is not None and at <= self.now]
        assert [action.segment for action in self.tell(TimePassed())] == due

    @rule(data=st.data())
    def a_fact_is_told_again(self, data: st.DataObject) -> None:
        """Old facts change nothing; the end of a query is not told again once there is a new query."""
        old = [f for f in self.told if not isinstance(f, TimePassed | InputsReady | StopAsked)]
        old = [f for f in old if not (isinstance(f, QueryFailed | QueryEnded) and self.lives(f.segment))]
        old = [f for f in old if not (isinstance(f, QueryStarted) and f.segment in self.asked)]
        if old:
            before = self.summary()
            assert self.tell(data.draw(st.sampled_from(old))) == ()
            assert self.summary() == before

    def summary(self) -> list[object]:
        machine = self.machine
        return [
            (machine.state(s), machine.epoch(s), machine.restarts(s), machine.failures(s)) for s in self.shape
        ] + [machine.wake_at(), machine.done, machine.gave_up]

    # -- the end

    @precondition(lambda self: len(self.told) > 20)
    @rule(drain=st.booleans())
    def somebody_asks_to_stop(self, drain: bool) -> None:
        self.tell(StopAsked(drain))

    def teardown(self) -> None:
        """Whatever happened: a stop, with or without a drain, ends if the environment does its part."""
        if not hasattr(self, "machine"):
            return
        try:
            self.ends_after_a_stop()
        finally:
            life.REMEMBERED_FAILURES = self.remembered

    def ends_after_a_stop(self) -> None:
        self.tell(StopAsked(drain=len(self.told) % 2 == 0))
        for _ in range(200):
            if self.machine.done:
                break
            self.do_its_part()
        assert self.machine.done
        assert self.machine.wake_at() is None
        assert not self.asked | self.running

    def do_its_part(self) -> None:
        self.time_passes(3)
        while self.to_set_aside:
            self.an_epoch_is_set_aside()
        for segment in self.shape:
            self.tell(InputsReady(segment))
            if segment in self.asked:
                self.starts(segment)
            if segment in self.stop_asked:
                self.ends(segment)
            elif segment in self.ready_to_commit():
                self.commits(segment)


Environment.TestCase.settings = settings(max_examples=200, stateful_step_count=60, deadline=None)
TestSupervision = Environment.TestCase
