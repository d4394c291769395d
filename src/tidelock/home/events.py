"""What happens to a running pipeline, told by level: a task, an executor, a segment, the process, the machine."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tidelock.credentials import redacted
from tidelock.home.home import Home
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

_LOGGER = logging.getLogger(__name__)
_NEWEST = 20


@dataclass(frozen=True)
class RunEvent:
    """Something that happened. Immutable.

    ``kind`` is one of: `run started`, `run resumed`, `run ended`, `restored`, `stop asked`, `task retry`,
    `executor lost`, `segment failed`, `segment restart`, `segment recovered`, `set aside`, `gave up`, `backup
    failed`, `no task retries`, `plan changed`, `outage`, `logs lost`, `state lost`, `state loaded`, `snapshot
    failed`, `alignment`, `alignment failed`, `alignment recovered`, `combining`, `subject recalled`, `coordinator
    away`, `coordinator back`, `backup recovered`, `backup displaced`, `snapshot taken`, `status failed`, `status
    recovered`, `home not writable`, `home writable`, `interval too short`, `code changed`, `fingerprints
    recorded`, `many partitions`.
    """

    at: float
    kind: str
    segment: str | None
    text: str
    epoch: int | None = None

    def __str__(self) -> str:
        who = f"{self.segment}: " if self.segment else ""
        return f"{self.kind}: {who}{self.text}"

    def to_json(self) -> dict[str, Any]:
        """All of it, as `json.dumps` takes it: a line of ``events.jsonl`` in the home."""
        return asdict(self)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> RunEvent:
        """What `to_json` has made, or an event in the document of a status, which has no epoch."""
        return cls(document["at"], document["kind"], document["segment"], document["text"], document.get("epoch"))


class Events:
    """Writes events into a home and hands them to a listener.

    Thread-safe: every thread of a run tells something, and one event after the other is written, remembered and
    handed on, under a lock. Only `of_fact` and `of_action` belong to the thread that feeds the machine.

    What only tells ends nothing: an event that cannot be written is handed on all the same, the first of them
    after one that says so, and what the listener raises is logged.
    """

    def __init__(self, home: Home, listener: Callable[[RunEvent], None] | None = None) -> None:
        self._home = home
        self._listener = listener
        self._down: dict[str, float] = {}
        self._turn = threading.RLock()  # a listener may have something to tell itself
        self._newest: tuple[RunEvent, ...] = ()
        self._unwritten: int | None = None

    @property
    def newest(self) -> tuple[RunEvent, ...]:
        """The last events, the oldest first."""
        with self._turn:
            return self._newest

    def add(self, kind: str, segment: str | None, text: str, epoch: int | None = None) -> None:
        """Tell that something happened. Raises nothing."""
        event = RunEvent(time.time(), kind, segment, redacted(text), epoch)
        with self._turn:
            try:
                self._home.add_event(event.to_json())
            except OSError as error:
                self.home_fails(error)
                self._unwritten = (self._unwritten or 0) + 1
            self._hand_on(event)

    def home_fails(self, error: OSError) -> None:
        """The home cannot be written: tell it, once. Status and events are lost meanwhile, and nothing else is."""
        with self._turn:
            if self._unwritten is None:
                self._unwritten = 0
                text = f"{self._home.root}: {error.strerror or error}. The run goes on as far as it can without it"
                self._hand_on(RunEvent(time.time(), "home not writable", None, text))

    def home_works(self) -> None:
        """The home can be written: tell it, if it was told that it cannot."""
        with self._turn:
            if self._unwritten is None:
                return
            event = RunEvent(
                time.time(), "home writable", None, f"{self._unwritten} events are not in {self._home.root}"
            )
            try:
                self._home.add_event(event.to_json())
            except OSError:
                return
            self._unwritten = None
            self._hand_on(event)

    def _hand_on(self, event: RunEvent) -> None:
        self._newest = (*self._newest, event)[-_NEWEST:]
        if self._listener is not None:
            try:
                self._listener(event)
            except Exception:  # a stranger's code: whoever told something has other things to do
                _LOGGER.exception("the listener failed that was told of %s", event)

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
            case StopAsked(drain, why):
                how = "after what is in the logs" if drain else "now"
                self.add("stop asked", None, f"{why}at the boundary of an epoch, {how}")

    def of_action(self, action: Action, machine: Machine) -> None:
        """Tell what is about to be done."""
        match action:
            case StartSegment(segment) if machine.failures(segment):
                count = machine.restarts(segment)
                self.add("segment restart", segment, f"restart {count}, from epoch {machine.epoch(segment) + 1}")
            case GiveUp(segment, story):
                self.add("gave up", segment, story)


class Trouble:
    """Something that is done again and again, and fails for a while: told when it begins, and when it is over.

    What is told grows with how often that happens, and not with how long it lasts. Thread-safe.
    """

    def __init__(self, events: Events, kind: str, over: str | None, segment: str | None = None) -> None:
        self._events = events
        self._kind = kind
        self._over = over
        self._segment = segment
        self._lock = threading.Lock()
        self._met: set[type[Exception]] = set()

    def met(self, failure: Exception, text: str | None = None, epoch: int | None = None) -> None:
        """It failed; told if nothing of this kind was met since it last went well."""
        with self._lock:
            known = type(failure) in self._met
            self._met.add(type(failure))
        if not known:
            told = text if text is not None else str(failure) or type(failure).__name__
            self._events.add(self._kind, self._segment, told, epoch)

    def over(self, text: str) -> None:
        """It went well."""
        with self._lock:
            over, self._met = bool(self._met), set()
        if over and self._over is not None:
            self._events.add(self._over, self._segment, text)
