"""Agreed positions: where several jobs meet in the subjects that all of them follow.

Theory of operation
-------------------
An agreed position is a document in the store of one of the logs that is made once: whoever is first writes it,
everybody else finds it. Agreed positions ascend in every log. They go when the logs no longer hold what lies
behind them.

Agreed positions are numbered without a gap, and the newest one always stays. Somebody may be stopped for long
between looking for the newest one and making the next; what it makes then could take the number of one that was
there and has gone. So each names its predecessor by a random mark: only what can be reached from the newest one in
this way counts, for whoever finds it and for whoever has made it.

Crash points. Whoever dies before it has made a position leaves nothing; whoever dies after that leaves one that
all find, itself included. Dropping may stop anywhere, and is done again with the next position.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tidelock.following.merging import Position
from tidelock.log.documents import meeting_name, meeting_number, meeting_prefix
from tidelock.log.log import EpochLog
from tidelock.log.sealed import seal, unseal
from tidelock.log.store import LogStore

KEPT = 200
"""Whoever is further behind than that works out by itself where the others had been (`merging.on_the_way`)."""


@dataclass(frozen=True)
class _Agreed:
    at: Position
    mark: str
    after: str
    """The mark of its predecessor."""


class AgreedPositions:
    """The agreed positions over some logs, in the store of the first of them. One thread."""

    def __init__(self, logs: Sequence[EpochLog]) -> None:
        self._logs = logs
        names = json.dumps([log.header.id for log in logs]).encode()
        self._prefix = meeting_prefix(hashlib.sha256(names).hexdigest()[:16])
        self._known: dict[int, _Agreed] = {}
        self._numbers: list[int] = []

    def agreed(self) -> list[Position]:
        """Those that are kept and count, oldest first."""
        found: dict[int, _Agreed] = {}
        for number in reversed(self._look()):
            one = self._known.get(number) or self._read(number)
            if one is None or (found and (number + 1 not in found or found[number + 1].after != one.mark)):
                break
            found[number] = one
        self._known = dict(reversed(found.items()))
        return [one.at for one in self._known.values()]

    def newest(self) -> Position | None:
        """The newest one of the last look; None if there was none."""
        return self._known[max(self._known)].at if self._known else None

    def propose(self, position: Position) -> bool:
        """Make ``position`` the next one behind those of the last look; False if somebody else was faster."""
        newest = max(self._known, default=-1)
        number, after = newest + 1, self._known[newest].mark if self._known else ""
        mine = _Agreed(position, uuid.uuid4().hex, after)
        if not self._store.create(self._name(number), seal({**vars(mine), "at": dict(position)})):
            return False
        if not self._counts(number, mine):
            self._store.delete(self._name(number))
            return False
        self._forget(number)
        return True

    def _counts(self, number: int, mine: _Agreed) -> bool:
        """Whether the number had not been used before: there is nothing behind it, or what is there names it."""
        if max(self._listed(), default=number) == number:
            return True
        following = self._read(number + 1)
        return following is not None and following.after == mine.mark

    def _look(self) -> list[int]:
        numbers = self._listed()
        if numbers != self._numbers and not _is_run(numbers):
            numbers = self._listed()  # a listing is no snapshot: of two that are made meanwhile it may miss one
        self._numbers = numbers
        return numbers

    def _listed(self) -> list[int]:
        return [meeting_number(self._prefix, name) for name in self._store.names(self._prefix)]

    def _forget(self, made: int) -> None:
        """Drop those that lie before what the logs hold, and more than enough others; never the one just made."""
        heads = {log.header.id: log.head() for log in self._logs}
        gone = [n for n, one in self._known.items() if all(at <= heads[log] for log, at in one.at.items())]
        first = max(made + 1 - KEPT, max(gone, default=-1) + 1)
        for number in self._listed():
            if number < first:
                self._store.delete(self._name(number))

    def _read(self, number: int) -> _Agreed | None:
        data = self._store.get(self._name(number))
        return None if data is None else unseal(data, f"{self._logs[0].shown}: {self._name(number)}", _parse)

    def _name(self, number: int) -> str:
        return meeting_name(self._prefix, number)

    @property
    def _store(self) -> LogStore:
        return self._logs[0].store


def _is_run(numbers: Sequence[int]) -> bool:
    return not numbers or numbers[-1] - numbers[0] == len(numbers) - 1


def _parse(fields: dict[str, Any]) -> _Agreed:
    return _Agreed(fields["at"], fields["mark"], fields["after"])
