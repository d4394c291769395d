"""Watches of the embedded tree: one thread compares what it saw with what it sees.

Theory of operation. A `PathState` is the little that is needed to notice a change of a path. Each
watch remembers the last one. The thread looks when ``PRAGMA data_version`` says that another
connection has committed, which costs microseconds to ask, and at once after a change by its own
client. A new watch takes its first state before `Watcher.add` returns, under the same lock as a
look: nothing can happen between the two unnoticed. Callbacks run without any lock.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from tidelock.coordination.embedded.database import Database
from tidelock.coordination.embedded.nodes import path_state
from tidelock.coordination.embedded.sessions import Session
from tidelock.coordination.errors import SessionExpired
from tidelock.coordination.tree import Event, EventKind, Watch
from tidelock.coordination.watching import Registered, Watching
from tidelock.errors import TidelockError

__all__ = ["Watcher"]

_LOGGER = logging.getLogger(__name__)

_PAUSE_AFTER_FAILURE = 1.0


class Watcher(Watching):
    """The watches of one client, on one file."""

    def __init__(self, database: Database, session: Session, interval: float, bury: Callable[[], None]) -> None:
        """Serve watches.

        Args:
            database: a connection of its own, for only commits of *other* connections are noticed;
                closed together with the watcher.
            session: its end is the last event of every watch.
            interval: seconds between two questions to the file.
            bury: called when another session is overdue, to end it.
        """
        super().__init__()
        self._database = database
        self._session = session
        self._interval = interval
        self._bury = bury
        self._seen_version: int | None = None

    def add(self, path: str, callback: Callable[[Event], None]) -> Watch:
        """Begin to watch `path`."""
        watch = Registered(self, path, callback)
        with self._lock:
            with self._database.read() as rows:
                self._session.require(rows)
                watch.begin(path_state(rows, path))
            self._list(watch)
        return watch

    def close(self) -> None:
        """Deliver the end of the session and stop, and close the connection. Idempotent."""
        super().close()
        self._database.close()

    def _run(self) -> None:
        pause = self._interval
        while not self._session.over.is_set():
            self._wake.wait(pause)
            self._wake.clear()
            pause = self._serve()
        self._tell_the_end()

    def _serve(self) -> float:
        """Look once and call back; return how long to wait before the next look."""
        try:
            self._bury_overdue()
            for watch, kind in self._look():
                watch.fire(kind)
        except SessionExpired:
            self._session.over.set()
        except TidelockError as error:
            _LOGGER.warning("watches on %s are late: %s", self._session.name, error)
            return _PAUSE_AFTER_FAILURE
        return self._interval

    def _bury_overdue(self) -> None:
        # A dead session changes nothing in the file, so somebody has to look at the clock.
        with self._database.read() as rows:
            overdue = self._session.sees_overdue(rows)
        if overdue:
            self._bury()

    def _look(self) -> list[tuple[Registered, EventKind]]:
        """Compare every watch with the file, if the file has changed at all."""
        with self._lock:
            version = self._database.data_version()
            if version == self._seen_version:
                return []
            with self._database.read() as rows:
                self._session.require(rows)
                sights = [(watch, path_state(rows, watch.path)) for watch in self._watches]
            # Nothing is noted before everything was read: after a failure all is seen again.
            self._seen_version = version
            return [(watch, kind) for watch, now in sights for kind in watch.update(now)]
