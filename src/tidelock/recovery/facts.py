"""What the supervising machine is told (facts, past tense) and what it asks for (actions, imperative).

Both are plain values. The driver, be it the supervisor on Spark or the simulator, reports facts in the order in
which it learns them and performs actions in the order in which it gets them. What it promises:

* it tells the epochs that it found committed (`EpochCommitted`) before a segment's `InputsReady`;
* it reports the end of a query (`QueryEnded`, `QueryFailed`) after the commits that it knows of, and not once
  more after it has been asked to start that segment again: the facts do not say which attempt they are about.

Repeated and late facts are harmless otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidelock.epochs import Epoch


@dataclass(frozen=True)
class InputsReady:
    """The logs that the segment reads exist (for a head: at once), so it can be started."""

    segment: str


@dataclass(frozen=True)
class QueryStarted:
    """The segment's query runs."""

    segment: str


@dataclass(frozen=True)
class EpochCommitted:
    """The segment has durably finished everything up to ``epoch``."""

    segment: str
    epoch: Epoch


@dataclass(frozen=True)
class QueryFailed:
    """The segment's query stopped with an error, at ``epoch`` if that is known.

    ``final``: retrying cannot help, as with a wrong declaration, or when a newer run took over.
    ``outage``: what failed is a store or a server, not this epoch; it helps to wait.
    """

    segment: str
    epoch: Epoch | None
    story: str
    final: bool = False
    outage: bool = False


@dataclass(frozen=True)
class QueryEnded:
    """The segment's query ended without a failure: as asked, or because its source ended."""

    segment: str


@dataclass(frozen=True)
class SetAsideDone:
    """The input of ``epoch`` is in the dead-letter log; the segment will find that epoch empty."""

    segment: str
    epoch: Epoch


@dataclass(frozen=True)
class StopAsked:
    """Somebody wants the pipeline to stop at epoch boundaries; with ``drain`` the logs are read empty first.

    ``why`` is for people: what it was that wanted it, if it was not one of them.
    """

    drain: bool
    why: str = ""


@dataclass(frozen=True)
class TimePassed:
    """Only time has passed."""


SegmentFact = InputsReady | QueryStarted | EpochCommitted | QueryFailed | QueryEnded | SetAsideDone
Fact = SegmentFact | StopAsked | TimePassed


@dataclass(frozen=True)
class StartSegment:
    """Start the segment's query from its newest committed epoch; ``attempt`` is 1 after progress, then grows."""

    segment: str
    attempt: int


@dataclass(frozen=True)
class SetAside:
    """Move the input of ``epoch`` to the dead-letter log, then report `SetAsideDone`."""

    segment: str
    epoch: Epoch


@dataclass(frozen=True)
class StopSegment:
    """End the segment's query at an epoch boundary, then report `QueryEnded`."""

    segment: str


@dataclass(frozen=True)
class GiveUp:
    """The segment will not be started again; ``story`` is for the person who has to act."""

    segment: str
    story: str


Action = StartSegment | SetAside | StopSegment | GiveUp
