"""Agreed positions: where several jobs meet in the subjects that all of them follow.

Theory of operation
-------------------
An agreed position is a document in the store of one of the logs that is made once: whoever is first writes it,
everybody else finds it. Agreed positions ascend in every log. They go when the logs no longer hold what lies
behind them.

Agreed positions are numbered without a gap and go in that order, oldest first. Somebody may be stopped for long
between looking for the newest one and making the next; what it makes then could take the place of one that was
there and has gone. So a position counts only if its predecessor is there too, for whoever finds it and for whoever
has made it. The very first one has no predecessor, and never goes.

Crash points. Whoever dies before it has made a position leaves nothing; whoever dies after that leaves one that
all find, itself included. Dropping may stop anywhere, and is done again with the next position.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from tidelock.epochs import Epoch
from tidelock.log.log import EpochLog
from tidelock.log.merging import Position
from tidelock.log.sealed import seal, unseal
from tidelock.log.store import LogStore

KEPT = 200
"""Whoever is further behind than that takes a greater step, and meets the others later."""


class Meetings:
    """The agreed positions over some logs, in the store of the first of them. One thread."""

    def __init__(self, logs: Sequence[EpochLog]) -> None:
        self._logs = logs
        names = json.dumps([log.header.id for log in logs]).encode()
        self._prefix = f"meeting/{hashlib.sha256(names).hexdigest()[:16]}-"
        self._known: dict[int, Position] = {}
        self._numbers: list[int] = []

    def agreed(self) -> list[Position]:
        """Those that are kept and count, oldest first."""
        known = {}
        for number in self._run():
            position = self._known.get(number) or self._read(number)
            if position is not None:
                known[number] = position
        self._known = known
        return [position for number, position in known.items() if number == 0 or number - 1 in known]

    def newest(self) -> Position | None:
        """The newest one of the last look; None if there was none."""
        return self._known[max(self._known)] if self._known else None

    def propose(self, position: Position) -> bool:
        """Make ``position`` the next one behind those of the last look; False if somebody else was faster."""
        newest = max(self._known, default=-1)
        if not self._store.create(self._name(newest + 1), seal({"at": dict(position)})):
            return False
        if newest >= 0 and self._read(newest) is None:  # long ago: the number had been used before
            self._store.delete(self._name(newest + 1))
            return False
        self._forget()
        return True

    def _run(self) -> list[int]:
        """The numbers of the last ones without a gap; what lies before a gap was made too late."""
        numbers = self._listed()
        if numbers != self._numbers and not _is_run(numbers):
            numbers = self._listed()  # a listing is no snapshot: of two that are made meanwhile it may miss one
        self._numbers = numbers
        first = next((i for i in range(len(numbers) - 1, 0, -1) if numbers[i - 1] != numbers[i] - 1), 0)
        return numbers[first:]

    def _listed(self) -> list[int]:
        return [int(name.removeprefix(self._prefix)) for name in self._store.names(self._prefix)]

    def _forget(self) -> None:
        """Drop, oldest first, those that lie before what the logs hold, and more than enough others.

        The newest that was known stays, so that the one just made has a predecessor.
        """
        heads = {log.header.id: log.head() for log in self._logs}
        gone = [n for n, at in self._known.items() if all(epoch <= heads[log] for log, epoch in at.items())]
        floor = max(self._known, default=0)
        floor = min(floor, max(floor + 1 - KEPT, max(gone, default=-1) + 1))
        for number in self._listed():
            if 0 < number < floor:
                self._store.delete(self._name(number))

    def _read(self, number: int) -> Position | None:
        data = self._store.get(self._name(number))
        return None if data is None else unseal(data, f"{self._logs[0].shown}: {self._name(number)}", _position)

    def _name(self, number: int) -> str:
        return f"{self._prefix}{number:012}"

    @property
    def _store(self) -> LogStore:
        return self._logs[0].store


def _is_run(numbers: Sequence[int]) -> bool:
    return not numbers or numbers[-1] - numbers[0] == len(numbers) - 1


def _position(fields: dict[str, Any]) -> Position:
    at: dict[str, Epoch] = fields["at"]
    return at
