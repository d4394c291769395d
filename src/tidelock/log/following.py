"""Following subjects: how the sources of one query, and several jobs, come to the same positions.

Each followed log is a source of its own, in a process of its own, and Spark asks one after the other. The first
that is asked in a round decides for all (as in `rounds`) and leaves the decision in the store of one of the logs;
the rules of a decision are in `merging`.

Jobs that are aligned with the same subjects meet: they go through the same positions. With one subject its epochs
are these positions. With several, an *agreed position* is a document in the store of one of the logs that is made
once: whoever is first writes it, everybody else finds it. Agreed positions ascend in every log. They go when the
logs no longer hold what lies behind them.

The pace is set from outside, by the process that runs the job, in a small file that is looked at in every round.
So a job changes from aligned to unaligned and back while its query runs. Nothing but logs and this file is needed
to go on: a job does not depend on other jobs, nor on a server that keeps the shared tree.
"""

from __future__ import annotations

import hashlib
import json
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tidelock.epochs import BEFORE_FIRST, Epoch
from tidelock.log.log import EpochLog
from tidelock.log.merging import Pace, Position, ahead, is_full, newer, next_position
from tidelock.log.rounds import Reading
from tidelock.log.sealed import seal, unseal

_LOOK_EVERY = 0.01
_KEPT_MEETINGS = 200
"""Whoever is further behind than that takes a greater step, and meets the others later."""


@dataclass(frozen=True)
class Instruction:
    """How a job is to go through what it follows, until it is told otherwise.

    Attributes:
        aligned: By the identities of the aligned logs, the epoch from which on each is taken epoch by epoch.
        interval: How often an unaligned job makes an epoch, in seconds.
        patience: For how many seconds an aligned job waits for a subject that is silent.
        closing: The query is about to be stopped: nothing is waited for.
        last: An epoch that a job with a single subject is not to pass.
    """

    aligned: Mapping[str, Epoch] = field(default_factory=dict)
    interval: float = 0.0
    patience: float = 10.0
    closing: bool = False
    last: Epoch | None = None

    def write(self, path: str | Path) -> None:
        """Put it at ``path``; atomic."""
        file = Path(path)
        aside = file.with_name(f".{file.name}.{uuid.uuid4().hex}")
        aside.write_text(json.dumps({**vars(self), "aligned": dict(self.aligned)}))
        aside.replace(file)


class InstructionFile:
    """The instruction at a path, read again when it was replaced."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._seen: tuple[int, int] | None = None
        self._now = Instruction()

    def now(self) -> Instruction:
        """What is to be done now; a file that is not there says nothing special."""
        try:
            state = Path(self._path).stat()
        except FileNotFoundError:
            return self._now
        if self._seen != (state.st_ino, state.st_mtime_ns):
            self._now = Instruction(**json.loads(Path(self._path).read_text()))
            self._seen = state.st_ino, state.st_mtime_ns
        return self._now


class Follower:
    """The steps of one query through the logs that it follows. Each source of the query has its own object.

    Args:
        logs: all of them.
        group: what the sources of the query have in common, and no other query has.
        instructions: gives the instruction of the moment.
        mixed: the query has other sources too, which would begin a batch without waiting for this one.
        clock: seconds that never go back.
    """

    def __init__(
        self,
        logs: Sequence[EpochLog],
        group: str,
        instructions: Callable[[], Instruction],
        *,
        mixed: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._readings = {log.header.id: Reading(log) for log in sorted(logs, key=lambda log: log.header.id)}
        self._document = f"round/{group}"
        self._instructions = instructions
        self._mixed = mixed
        self._clock = clock
        self._number = 0
        self._stepped_at: float | None = None
        self._waiting_since: float | None = None
        self._met: tuple[list[str], _Meetings] | None = None

    def first(self, starting: str) -> Position:
        """The position from which a new query starts: before the `earliest` epochs, or behind the `latest`."""
        if starting == "latest":
            return {name: self._newest(reading) for name, reading in self._readings.items()}
        return {name: reading.before() for name, reading in self._readings.items()}

    def newest(self, log: str) -> Epoch:
        """The newest epoch of a log."""
        return self._newest(self._readings[log])

    def decide(self, key: Any, position: Callable[[], Position]) -> tuple[Position, Position]:
        """Where this round's batch starts and ends; the same answer for every source of the query.

        ``key`` is what Spark gave as its position; ``position`` resolves it, and is asked only by the source that
        decides. Nothing to do means that both are the same.
        """
        self._number += 1
        name = json.dumps([self._number, key], sort_keys=True)
        found = self._find(name)
        if found is not None:
            return found
        start = self._raised(position())
        end = self._step(start) or start
        if len(self._readings) > 1:
            decision = seal({"key": name, "start": dict(start), "end": dict(end)})
            self._first_log.store.put(self._document, decision, durable=False)
        return start, end

    # -- the decision of this round

    def _find(self, name: str) -> tuple[Position, Position] | None:
        if len(self._readings) == 1:
            return None
        data = self._first_log.store.get(self._document)
        if data is None:
            return None
        key, start, end = unseal(data, f"{self._first_log.shown}: {self._document}", _decision)
        there = key == name and end.keys() == self._readings.keys()
        return (start, end) if there and all(self.newest(log) >= at for log, at in end.items()) else None

    def _raised(self, position: Position) -> Position:
        """The position, where logs begin at a later epoch than the first."""
        return {log: self._readings[log].before() if at == BEFORE_FIRST else at for log, at in position.items()}

    def _step(self, start: Position) -> Position | None:
        """The next step; a query with other sources waits for it a while, any other asks again by itself."""
        began = self._clock()
        while True:
            instruction = self._instructions()
            end = self._next(start, instruction)
            if end is not None:
                self._stepped_at, self._waiting_since = self._clock(), None
                return end
            waited = self._clock() - began
            if not self._mixed or instruction.closing or waited >= self._longest_wait(instruction):
                return None
            time.sleep(_LOOK_EVERY)

    def _longest_wait(self, instruction: Instruction) -> float:
        """How long other sources of the query are held up: a subject that was silent once is not waited for."""
        if not instruction.aligned or self._is_impatient(instruction):
            return instruction.interval
        return instruction.patience

    def _next(self, start: Position, instruction: Instruction) -> Position | None:
        ends = {log: self._ends(reading, instruction) for log, reading in self._readings.items()}
        pace = Pace(instruction.aligned, due=self._is_due(instruction))
        met = [log for log in self._readings if log in pace.aligned]
        if len(met) > 1 and all(start[log] >= pace.aligned[log] for log in met):
            end = self._meet(start, ends, pace, met)
        else:
            end = next_position(start, ends, pace)
        if end is None and self._waits_in_vain(instruction):
            end = next_position(start, ends, replace(pace, impatient=True))
        return end

    def _ends(self, reading: Reading, instruction: Instruction) -> list[Epoch]:
        ends = reading.ends()
        if instruction.last is None or len(self._readings) > 1:
            return ends
        return [end for end in ends if end <= instruction.last]

    def _is_due(self, instruction: Instruction) -> bool:
        return self._stepped_at is None or self._clock() - self._stepped_at >= instruction.interval

    def _waits_in_vain(self, instruction: Instruction) -> bool:
        """Whether to go on without the silent ones; remembers since when they are waited for."""
        if not instruction.aligned:
            return False
        if self._waiting_since is None:
            self._waiting_since = self._clock()
        return self._is_impatient(instruction)

    def _is_impatient(self, instruction: Instruction) -> bool:
        since = self._waiting_since
        return since is not None and self._clock() - since >= instruction.patience

    # -- positions that several jobs agree on

    def _meet(
        self, start: Position, ends: Mapping[str, Sequence[Epoch]], pace: Pace, met: Sequence[str]
    ) -> Position | None:
        """The next position over the logs ``met`` that all jobs go through which are aligned with them."""
        others = {
            log: ends[log][-1] for log in start if log not in met and ends[log] and ends[log][-1] > start[log]
        }
        here = {log: start[log] for log in met}
        meetings = self._meetings(met)
        while True:
            agreed = meetings.agreed()
            found = ahead(here, agreed)
            if found is not None:
                return {**start, **others, **found} if _reaches(ends, found) else None
            base = newer(here, agreed[-1]) if agreed else here
            proposed = next_position(base, {log: ends[log] for log in met}, pace)
            if proposed is None or not is_full(base, proposed, met):
                return None
            if meetings.propose(proposed):
                return {**start, **others, **proposed}

    def _meetings(self, met: Sequence[str]) -> _Meetings:
        if self._met is None or self._met[0] != list(met):
            self._met = list(met), _Meetings([self._readings[log].log for log in met])
        return self._met[1]

    @property
    def _first_log(self) -> EpochLog:
        return next(iter(self._readings.values())).log

    @staticmethod
    def _newest(reading: Reading) -> Epoch:
        return max(reading.ends(), default=BEFORE_FIRST)


class _Meetings:
    """The agreed positions over some logs, in the store of the first of them."""

    def __init__(self, logs: Sequence[EpochLog]) -> None:
        self._logs = logs
        names = json.dumps([log.header.id for log in logs]).encode()
        self._prefix = f"meeting/{hashlib.sha256(names).hexdigest()[:16]}-"
        self._known: dict[str, Position] = {}

    def agreed(self) -> list[Position]:
        """Those that are kept, oldest first."""
        store = self._logs[0].store
        known = {}
        for name in store.names(self._prefix):
            data = None if name in self._known else store.get(name)
            if name in self._known:
                known[name] = self._known[name]
            elif data is not None:
                known[name] = unseal(data, f"{self._logs[0].shown}: {name}", _position)
        self._known = known
        return list(known.values())

    def propose(self, position: Position) -> bool:
        """Make ``position`` the next one behind those of the last look; False if somebody else was faster."""
        newest = next(reversed(self._known), None)
        number = 0 if newest is None else int(newest.removeprefix(self._prefix)) + 1
        made = self._logs[0].store.create(f"{self._prefix}{number:012}", seal({"at": dict(position)}))
        if made:
            self._forget()
        return made

    def _forget(self) -> None:
        """Drop those that lie before what the logs hold, and more than enough others."""
        heads = {log.header.id: log.head() for log in self._logs}
        for place, (name, position) in enumerate(reversed(self._known.items())):
            if place >= _KEPT_MEETINGS or (place and all(at <= heads[log] for log, at in position.items())):
                self._logs[0].store.delete(name)


def _reaches(ends: Mapping[str, Sequence[Epoch]], position: Position) -> bool:
    return all(at in ends[log] for log, at in position.items())


def _decision(fields: dict[str, Any]) -> tuple[str, Position, Position]:
    return fields["key"], fields["start"], fields["end"]


def _position(fields: dict[str, Any]) -> Position:
    at: dict[str, Epoch] = fields["at"]
    return at
