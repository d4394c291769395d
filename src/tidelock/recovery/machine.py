"""The supervising machine: facts in, actions out, time an argument. Pure; Spark and the simulator drive it.

Theory of operation
-------------------
Every segment lives for itself (`life`): it starts when its logs exist, and a failure restarts it and nothing
else. What is between segments is only how a pipeline ends, and that is all this file adds:

* *giving up* on one segment stops every other one at its next boundary, without a drain;
* a *stop* does the same to all; it cuts a drain short;
* a *drain* ends the heads, and then, down the topology, each segment that has nothing left to read. The
  second half is no mode: it also happens when sources end by themselves.

A segment has nothing left to read when all its upstream segments are stopped and it has committed as much as
they all have. Inputs are taken epoch by epoch from all logs together, so what one upstream segment has beyond
the others cannot be read now; it stays in its log for the next run. Feedback links do not count, neither here
nor for being a head: in a loop everybody would wait for everybody.

Invariants (`validate`, checked by the tests after every fact), beside those of each life:

* a segment is FAILED exactly if the machine gave it up, and then, or after a stop, no segment is left that
  waits, runs or backs off; after a drain was asked for, no head is;
* no segment that has nothing left to read is left running.

A fact costs O(segments + links). Not thread-safe: one driver thread feeds it.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidelock.epochs import Epoch
from tidelock.errors import InternalError
from tidelock.recovery.adjust import Shape
from tidelock.recovery.facts import Action, Fact, GiveUp, StopAsked, TimePassed
from tidelock.recovery.life import ENDED, Failure, Life, SegmentState
from tidelock.recovery.policy import Policy

_LEAVING = ENDED | {SegmentState.STOPPING}


class Machine:
    """Decides what happens to the segments of one running pipeline.

    >>> from tidelock.recovery import InputsReady, Link, QueryFailed
    >>> machine = Machine({"words": (), "counts": (Link("words"),)}, Policy())
    >>> machine.handle(InputsReady("counts"), now=0.0)
    (StartSegment(segment='counts', attempt=1),)
    >>> machine.handle(QueryFailed("counts", Epoch(0), "division by zero"), now=1.0)
    ()
    >>> machine.wake_at()
    1.0
    >>> machine.handle(TimePassed(), now=1.0)
    (StartSegment(segment='counts', attempt=2),)
    """

    def __init__(self, shape: Shape, policy: Policy) -> None:
        self._lives = {segment: Life(segment, policy) for segment in shape}
        self._upstreams = {
            segment: tuple(link.upstream for link in inputs if not link.lag) for segment, inputs in shape.items()
        }
        self._check_order()
        self._stopping = False
        self._draining = False
        self._gave_up: tuple[str, str] | None = None

    def handle(self, fact: Fact, now: float) -> tuple[Action, ...]:
        """Take one fact, learned at time ``now``, and say what is to be done, in order.

        Late and repeated facts change nothing (see `facts` for what a driver has to promise).

        Raises:
            InternalError: the fact cannot be true, or is about a segment that does not exist.
        """
        match fact:
            case StopAsked(drain=True):
                actions = self._drain()
            case StopAsked():
                actions = self._stop()
            case TimePassed():
                actions = [action for life in self._lives.values() for action in life.look(now)]
            case _:
                actions = self._with_consequences(self._life(fact.segment).handle(fact, now))
        return (*actions, *self._end_what_is_read())

    # -- views

    def state(self, segment: str) -> SegmentState:
        """Where the segment is in its life."""
        return self._life(segment).state

    def epoch(self, segment: str) -> Epoch:
        """The newest epoch that the segment is known to have committed."""
        return self._life(segment).epoch

    def restarts(self, segment: str) -> int:
        """How often the segment was started again after a failure."""
        return self._life(segment).restarts

    def failures(self, segment: str) -> list[Failure]:
        """The newest failures of the segment, oldest first; `restarts` counts them all."""
        return list(self._life(segment).failures)

    def last_error(self, segment: str) -> str | None:
        """The story of the segment's newest failure."""
        failures = self._life(segment).failures
        return failures[-1].story if failures else None

    @property
    def done(self) -> bool:
        """Whether every segment is STOPPED or FAILED."""
        return all(life.state in ENDED for life in self._lives.values())

    @property
    def gave_up(self) -> tuple[str, str] | None:
        """The segment that the pipeline was given up for, and its story."""
        return self._gave_up

    def wake_at(self) -> float | None:
        """The earliest time at which `TimePassed` would act; None if no segment waits for a time."""
        return min((life.retry_at for life in self._lives.values() if life.retry_at is not None), default=None)

    def validate(self) -> None:
        """Check the invariants of the machine and of each segment.

        Raises:
            InternalError: one of them does not hold.
        """
        for life in self._lives.values():
            life.validate()
            self._check_leaves(life)
        failed = [segment for segment, life in self._lives.items() if life.state is SegmentState.FAILED]
        if failed != ([self._gave_up[0]] if self._gave_up else []):
            raise InternalError(f"failed segments {failed}, but the pipeline was given up for {self._gave_up}")

    # -- what happens between segments

    def _with_consequences(self, actions: Iterable[Action]) -> list[Action]:
        """The actions, and a stop of everything else if they give a segment up."""
        result = list(actions)
        for action in tuple(result):
            if isinstance(action, GiveUp):
                self._gave_up = (action.segment, action.story)
                result += self._stop()
        return result

    def _stop(self) -> list[Action]:
        self._stopping = True
        return [action for life in self._lives.values() for action in life.stop()]

    def _drain(self) -> list[Action]:
        self._draining = True
        return [action for segment in self._heads() for action in self._lives[segment].stop()]

    def _heads(self) -> list[str]:
        return [segment for segment, upstreams in self._upstreams.items() if not upstreams]

    def _end_what_is_read(self) -> list[Action]:
        # In topological order, so that a segment that stops at once lets those behind it stop in the same turn.
        return [
            action
            for segment, life in self._lives.items()
            if self._has_read_all(segment)
            for action in life.stop()
        ]

    def _has_read_all(self, segment: str) -> bool:
        upstreams = [self._lives[name] for name in self._upstreams[segment]]
        if not upstreams or any(upstream.state is not SegmentState.STOPPED for upstream in upstreams):
            return False
        return self._lives[segment].epoch >= min(upstream.epoch for upstream in upstreams)

    # -- checks

    def _life(self, segment: str) -> Life:
        if segment not in self._lives:
            raise InternalError(f"there is no segment {segment!r}, only {', '.join(self._lives)}")
        return self._lives[segment]

    def _check_order(self) -> None:
        seen: set[str] = set()
        for segment, upstreams in self._upstreams.items():
            if not seen.issuperset(upstreams):
                raise InternalError(
                    f"segment {segment!r} comes before an upstream segment: {', '.join(upstreams)}"
                )
            seen.add(segment)

    def _check_leaves(self, life: Life) -> None:
        asked = self._stopping or (self._draining and not self._upstreams[life.segment])
        if (asked or self._has_read_all(life.segment)) and life.state not in _LEAVING:
            raise InternalError(f"segment {life.segment!r} is {life.state.value} although it has to end")
