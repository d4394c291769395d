"""Following subjects: how the sources of one query, and several jobs, come to the same positions.

Each followed log is a source of its own, in a process of its own, and Spark asks one after the other. The first
that is asked in a round decides for all (as in `rounds`) and leaves the decision in the store of one of the logs;
the rules of a decision are in `merging`.

Jobs that are aligned with the same subjects meet: they go through the same positions. With one subject its epochs
are these positions. With several, they agree on positions through documents that are made once
(`agreed_positions`).

The pace is set from outside, by the process that runs the job, in a small file that is looked at in every round.
So a job changes from aligned to unaligned and back while its query runs. Nothing but logs and this file is needed
to go on: a job does not depend on other jobs, nor on a server that keeps the shared tree.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tidelock.epochs import BEFORE_FIRST, Epoch
from tidelock.following.agreed_positions import AgreedPositions
from tidelock.following.merging import (
    Pace,
    Position,
    SilenceClock,
    ahead,
    newer,
    next_position,
    on_the_way,
    silent,
    steps_ahead,
)
from tidelock.following.rounds import Reading
from tidelock.log.documents import round_name
from tidelock.log.log import EpochLog
from tidelock.log.sealed import seal, unseal
from tidelock.placing import put_file

_LOOK_EVERY = 0.01


@dataclass(frozen=True)
class Instruction:
    """How a job is to go through what it follows, until it is told otherwise.

    Attributes:
        aligned: By the identities of the aligned logs, the epoch from which on each is taken epoch by epoch.
        interval: How often an unaligned job makes an epoch, in seconds.
        patience: For how many seconds an aligned job waits for a subject that is silent.
        closing: The query is about to be stopped: nothing is waited for.
        last: An epoch that a job with a single subject, and no other source, is not to pass.
        merges: An aligned job that is far behind may take several epochs in one batch: that changes nothing.
    """

    aligned: Mapping[str, Epoch] = field(default_factory=dict)
    interval: float = 0.0
    patience: float = 10.0
    closing: bool = False
    last: Epoch | None = None
    merges: bool = False

    def write(self, path: str | Path) -> None:
        """Put it at ``path``; atomic."""
        fields = {**vars(self), "aligned": dict(self.aligned)}
        put_file(Path(path), json.dumps(fields).encode(), durable=False)


class InstructionFile:
    """The instruction at a path.

    It is read every time: a file that was replaced twice can have the inode and the time of the one seen before.
    """

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._seen = b""
        self._now = Instruction()

    def now(self) -> Instruction:
        """What is to be done now; a file that is not there says nothing special."""
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return self._now
        if data != self._seen:
            self._now, self._seen = Instruction(**json.loads(data)), data
        return self._now


class Follower:
    """The steps of one query through the logs that it follows. Each source of the query has its own object.

    Args:
        logs: all of them.
        group: what the sources of the query have in common, and no other query has.
        instructions: gives the instruction of the moment.
        mixed: the query has other sources too, which would begin a batch without waiting for this one.
        consumers: by the identities of the logs, the names of the query's cursors on them.
        clock: seconds that never go back.
    """

    def __init__(
        self,
        logs: Sequence[EpochLog],
        group: str,
        instructions: Callable[[], Instruction],
        *,
        mixed: bool = False,
        consumers: Mapping[str, str] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._consumers = consumers or {}
        self._readings = {log.header.id: Reading(log) for log in sorted(logs, key=lambda log: log.header.id)}
        self._document = round_name(group)
        self._instructions = instructions
        self._mixed = mixed
        self._clock = clock
        self._number = 0
        self._stepped_at: float | None = None
        self._still_since: float | None = None
        self._waiting = SilenceClock()
        self._met: tuple[list[str], AgreedPositions] | None = None
        self._present: Position | None = None

    def first(self, starting: str) -> Position:
        """The position from which a new query starts: before the `earliest` epochs, or behind the `latest`.

        Nothing behind it goes any more: the consumers are registered before the logs are looked at.
        """
        for name, consumer in self._consumers.items():
            self._readings[name].log.register(consumer)
        if starting == "latest":
            return {name: self._newest(reading) for name, reading in self._readings.items()}
        return {name: reading.before() for name, reading in self._readings.items()}

    def stop_at_present(self) -> None:
        """From now on take no step beyond what is published at this moment, and wait for nothing on the way."""
        self._present = {name: self._newest(reading) for name, reading in self._readings.items()}

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
            if found[0] != found[1]:
                self._went()
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
        if key != name or end.keys() != self._readings.keys():
            return None
        # An earlier run may have left it, and a log may have been truncated or cut otherwise since.
        ends = {log: reading.ends() for log, reading in self._readings.items()}
        moved = {log: at for log, at in end.items() if at != start[log]}
        held = all(start[log] >= self._readings[log].before() for log in moved)
        return (start, end) if held and _reaches(ends, moved) else None

    def _raised(self, position: Position) -> Position:
        """The position, where logs begin at a later epoch than the first."""
        return {log: self._readings[log].before() if at == BEFORE_FIRST else at for log, at in position.items()}

    def _step(self, start: Position) -> Position | None:
        """The next step; a query with other sources waits for it a while, any other asks again by itself."""
        began = self._clock()
        if self._still_since is None:
            self._still_since = began
        while True:
            instruction = self._instructions()
            end = self._next(start, instruction)
            if end is not None:
                self._went()
                return end
            waited = self._clock() - began
            if (
                not self._mixed
                or self._present is not None
                or instruction.closing
                or waited >= self._longest_wait(instruction)
            ):
                return None
            time.sleep(_LOOK_EVERY)

    def _went(self) -> None:
        self._stepped_at, self._still_since = self._clock(), None

    def _longest_wait(self, instruction: Instruction) -> float:
        """How long other sources of the query are held up: subjects that were silent once are not waited for."""
        still = 0.0 if self._still_since is None else self._clock() - self._still_since
        waits = instruction.aligned and still < instruction.patience
        return instruction.patience if waits else instruction.interval

    def _next(self, start: Position, instruction: Instruction) -> Position | None:
        ends = {log: self._ends(reading, instruction) for log, reading in self._readings.items()}
        pace = Pace(instruction.aligned, due=self._is_due(instruction), merges=instruction.merges)
        met = [log for log in self._readings if log in pace.aligned]
        if len(met) > 1 and all(start[log] >= pace.aligned[log] for log in met):
            end = self._meet(start, ends, pace, met)
        else:
            end = next_position(start, ends, pace, self._published_at)
        if end is not None:
            self._waiting.all_went()
            return end
        if self._present is not None:
            return next_position(start, ends, replace(pace, impatient=True), self._published_at)
        return self._next_without(start, ends, pace, instruction.patience) if met else None

    def _next_without(
        self, start: Position, ends: Mapping[str, Sequence[Epoch]], pace: Pace, patience: float
    ) -> Position | None:
        """A local step, if the aligned subjects that are silent were waited for in vain."""
        missed = silent(start, ends, pace.aligned)
        pending = len(silent(start, ends, start)) < len(start)
        if not self._waiting.is_over(missed, pending=pending, now=self._clock(), patience=patience):
            return None
        end = next_position(start, ends, replace(pace, impatient=True), self._published_at)
        if end is not None:
            self._waiting.went_without(missed)
        return end

    def _ends(self, reading: Reading, instruction: Instruction) -> list[Epoch]:
        ends = reading.ends()
        if self._present is not None:
            ends = [end for end in ends if end <= self._present[reading.log.header.id]]
        if instruction.last is None or self._mixed or len(self._readings) > 1:
            return ends  # the job's epochs are not those of the log
        return [end for end in ends if end <= instruction.last]

    def _published_at(self, log: str, end: Epoch) -> float:
        return self._readings[log].published_at(end)

    def _is_due(self, instruction: Instruction) -> bool:
        if self._stepped_at is None or self._present is not None:
            return True
        return self._clock() - self._stepped_at >= instruction.interval

    # -- positions that several jobs agree on

    def _meet(
        self, start: Position, ends: Mapping[str, Sequence[Epoch]], pace: Pace, met: Sequence[str]
    ) -> Position | None:
        """The next position over the logs ``met`` that all jobs go through which are aligned with them."""
        others = {
            log: ends[log][-1] for log in start if log not in met and ends[log] and ends[log][-1] > start[log]
        }
        here = {log: start[log] for log in met}
        agreed_positions = self._agreed_positions(met)
        while True:
            found = ahead(
                here, [one for one in agreed_positions.agreed() if _may_come(ends, one)], merges=pace.merges
            )
            if found is not None:
                if not _reaches(ends, found):
                    return None
                step = found if pace.merges else on_the_way(here, found, ends, self._published_at)
                return {**start, **others, **step}
            base = newer(here, agreed_positions.newest() or here)
            there = {log: ends[log] for log in met}
            steps = steps_ahead(base, there, self._published_at, merges=pace.merges)
            if not steps:
                return None
            if agreed_positions.propose(steps[0]) and len(steps) == 1:
                return {**start, **others, **steps[0]}
            # Others may have to go through each of them. Whoever is first with one, the next look finds it.
            for step in steps[1:]:
                agreed_positions.agreed()
                if not agreed_positions.propose(step):
                    break

    def _agreed_positions(self, met: Sequence[str]) -> AgreedPositions:
        if self._met is None or self._met[0] != list(met):
            self._met = list(met), AgreedPositions([self._readings[log].log for log in met])
        return self._met[1]

    @property
    def _first_log(self) -> EpochLog:
        return next(iter(self._readings.values())).log

    @staticmethod
    def _newest(reading: Reading) -> Epoch:
        return max(reading.ends(), default=BEFORE_FIRST)


def _reaches(ends: Mapping[str, Sequence[Epoch]], position: Position) -> bool:
    return all(at in ends[log] for log, at in position.items())


def _may_come(ends: Mapping[str, Sequence[Epoch]], position: Position) -> bool:
    """Whether a position is there or to come; it never comes where a log was cut otherwise meanwhile."""
    return all(at in ends[log] or at > max(ends[log], default=BEFORE_FIRST) for log, at in position.items())


def _decision(fields: dict[str, Any]) -> tuple[str, Position, Position]:
    return fields["key"], fields["start"], fields["end"]
