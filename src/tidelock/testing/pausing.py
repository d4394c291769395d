"""A log whose user is stopped for a while right before one of the steps that it takes with its store."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tidelock.log import EpochLog


class PausingStore:
    """Hands everything on to a store; before step number ``at`` something happens ``meanwhile``, once."""

    def __init__(self, store: Any, at: int, meanwhile: Callable[[], object]) -> None:
        self._store = store
        self._at = at
        self._meanwhile = meanwhile
        self.steps = 0

    def pause(self, at: int, meanwhile: Callable[[], object]) -> None:
        """Count anew, and let that happen before step ``at``."""
        self.steps, self._at, self._meanwhile = 0, at, meanwhile

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if not callable(found):
            return found

        def step(*arguments: Any, **named: Any) -> Any:
            self.steps += 1
            if self.steps == self._at:
                self._meanwhile()
            return found(*arguments, **named)

        return step


def pausing(log: EpochLog, at: int, meanwhile: Callable[[], object]) -> tuple[EpochLog, PausingStore]:
    """The same log, and the store that counts what is done with it."""
    store: Any = PausingStore(log.store, at, meanwhile)
    return EpochLog(store, log.header), store
