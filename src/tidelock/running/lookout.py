"""What shows how a run is doing, beside it: whatever it waits for, nobody who works waits for it.

Logs are in stores that may not answer, and a comparison with the plan may take seconds. So threads of their own do
that, and leave values for whoever asks.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tidelock.errands import all_end
from tidelock.running.gauges import RunView
from tidelock.running.pending import Pending
from tidelock.running.supervisor import Supervisor

_FRESH = 2.0


@dataclass(frozen=True)
class Sighting:
    """A running pipeline and its logs at one moment. Immutable."""

    at: float
    view: RunView
    pending: Mapping[str, Pending]
    """By their names, the logs as they were when the segments were so far, or a little later."""


class Lookout:
    """Looks at the logs of a run. One thread looks; any thread may ask what was seen, and waits for nothing."""

    def __init__(self, supervisor: Supervisor, clock: Callable[[], float] = time.monotonic) -> None:
        self._supervisor = supervisor
        self._clock = clock
        self._seen = Sighting(clock(), supervisor.view, dict.fromkeys(supervisor.pending, Pending()))

    def look(self) -> None:
        """Look at all logs, for as long as their stores take to answer."""
        view = self._supervisor.view
        pending = {name: log.seen() for name, log in self._supervisor.pending.items()}
        self._seen = Sighting(self._clock(), view, pending)

    @property
    def seen(self) -> Sighting:
        """What was seen last; if that was long ago, as a store does not answer, the segments as they are now."""
        seen = self._seen
        if self._clock() - seen.at <= _FRESH:
            return seen
        return Sighting(seen.at, self._supervisor.view, seen.pending)


class RepeatedTask:
    """Something that is done again and again beside a run, in a daemon thread. Any thread may end it.

    ``what`` has to cope with its own failures.
    """

    def __init__(self, name: str, what: Callable[[], None], every: float) -> None:
        self._what = what
        self._every = every
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin with the first round."""
        self._thread.start()

    def _run(self) -> None:
        while not self._over.is_set():
            self._what()
            self._over.wait(self._every)
        self._what()

    def end(self, timeout: float) -> bool:
        """Make one more round, the last; whether that has ended within ``timeout`` seconds, if it ever began."""
        self._over.set()
        return self._thread.ident is None or all_end([self._thread], timeout)
