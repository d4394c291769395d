"""Recovery, as pure rules: where to restart from (`adjust`), when to restart (`machine`), when to wait."""

from tidelock.recovery.adjust import (
    Adjusted,
    Link,
    Remains,
    Shape,
    Step,
    Unrecoverable,
    adjust,
    violations,
)
from tidelock.recovery.backpressure import Bound, has_room
from tidelock.recovery.draining import Drain
from tidelock.recovery.facts import (
    Action,
    EpochCommitted,
    Fact,
    GiveUp,
    InputsReady,
    QueryEnded,
    QueryFailed,
    QueryStarted,
    SetAside,
    SetAsideDone,
    StartSegment,
    StopAsked,
    StopSegment,
    TimePassed,
)
from tidelock.recovery.held import Held, Pieces
from tidelock.recovery.life import Failure, SegmentState
from tidelock.recovery.machine import Machine
from tidelock.recovery.policy import Policy

__all__ = [
    "Action",
    "Adjusted",
    "Bound",
    "Drain",
    "EpochCommitted",
    "Fact",
    "Failure",
    "GiveUp",
    "Held",
    "InputsReady",
    "Link",
    "Machine",
    "Pieces",
    "Policy",
    "QueryEnded",
    "QueryFailed",
    "QueryStarted",
    "Remains",
    "SegmentState",
    "SetAside",
    "SetAsideDone",
    "Shape",
    "StartSegment",
    "Step",
    "StopAsked",
    "StopSegment",
    "TimePassed",
    "Unrecoverable",
    "adjust",
    "has_room",
    "violations",
]
