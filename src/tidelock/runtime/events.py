"""What happens to a running pipeline, told by level: a task, an executor, a segment, the process, the machine."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

from tidelock.recovery import (
    Action,
    EpochCommitted,
    Fact,
    GiveUp,
    Machine,
    QueryFailed,
    StartSegment,
    StopAsked,
)
from tidelock.runtime.home import Home


@dataclass(frozen=True)
class Event:
    """Something that happened.

    ``kind`` is one of: `run started`, `run resumed`, `run ended`, `restored`, `stop asked`, `task retry`,
    `executor lost`, `segment failed`, `segment restart`, `segment recovered`, `set aside`, `gave up`, `backup
    failed`, `no task retries`, `plan changed`, `outage`, `logs lost`, `state lost`, `state loaded`, `snapshot
    failed`, `alignment`, `combining`, `coordinator away`, `coordinator back`.
    """

    at: float
    kind: str
    segment: str | None
    text: str
    epoch: int | None = None

    def __str__(self) -> str:
        who = f"{self.segment}: " if self.segment else ""
        return f"{self.kind}: {who}{self.text}"


class Events:
    """Writes events into a home and hands them to a listener. Thread-safe: a line is written at once."""

    def __init__(self, home: Home, listener: Callable[[Event], None] | None = None) -> None:
        self._home = home
        self._listener = listener
        self._down: dict[str, float] = {}
        self.newest: list[Event] = []

    def add(self, kind: str, segment: str | None, text: str, epoch: int | None = None) -> None:
        """Tell that something happened."""
        event = Event(time.time(), kind, segment, text, epoch)
        self._home.add_event(asdict(event))
        self.newest = [*self.newest, event][-20:]
        if self._listener is not None:
            self._listener(event)

    def of_fact(self, fact: Fact, machine: Machine) -> None:
        """Tell what a fact means, before the machine has taken it."""
        match fact:
            case QueryFailed(segment, epoch, story, outage=outage):
                self._down.setdefault(segment, time.monotonic())
                where = "while starting" if epoch is None else f"in epoch {epoch}"
                kind = "outage" if outage else "segment failed"
                self.add(kind, segment, f"{where}: {story}", epoch)
            case EpochCommitted(segment, epoch) if segment in self._down and epoch > machine.epoch(segment):
                seconds = time.monotonic() - self._down.pop(segment)
                text = f"epoch {epoch} is committed, {seconds:.1f} s after the failure"
                self.add("segment recovered", segment, text, epoch)
            case StopAsked(drain):
                how = "after what is in the logs" if drain else "now"
                self.add("stop asked", None, f"at the boundary of an epoch, {how}")

    def of_action(self, action: Action, machine: Machine) -> None:
        """Tell what is about to be done."""
        match action:
            case StartSegment(segment) if machine.failures(segment):
                count = machine.restarts(segment)
                self.add("segment restart", segment, f"restart {count}, from epoch {machine.epoch(segment) + 1}")
            case GiveUp(segment, story):
                self.add("gave up", segment, story)
