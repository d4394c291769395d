"""Watches of the embedded tree: one thread compares what it saw with what it sees.

Theory of operation. A `Glimpse` is the little that is needed to notice a change of a path. Each
watch remembers the last one. The thread looks when ``PRAGMA data_version`` says that another
connection has committed, which costs microseconds to ask, and at once after a change by its own
client. A new watch takes its first glimpse before `Watcher.add` returns, under the same lock as a
look: nothing can happen between the two unnoticed. Callbacks run without any lock.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from tidelock.coordination.embedded.database import Database
from tidelock.coordination.embedded.nodes import glimpse
from tidelock.coordination.embedded.sessions import Session
from tidelock.coordination.errors import SessionExpired
from tidelock.coordination.glimpses import Glimpse, differences
from tidelock.coordination.tree import Event, EventKind, Watch
from tidelock.errors import TidelockError

__all__ = ["Watcher"]

_LOGGER = logging.getLogger(__name__)

_PAUSE_AFTER_FAILURE = 1.0
_JOIN_TIMEOUT = 5.0


class _EmbeddedWatch(Watch):
    """One registered callback and what it was last told about."""

    def __init__(self, watcher: Watcher, path: str, callback: Callable[[Event], None], seen: Glimpse) -> None:
        self.path = path
        self._seen = seen
        self._watcher = watcher
        self._callback = callback
        self._closed = False

    def update(self, now: Glimpse) -> list[EventKind]:
        """Remember a new glimpse and return what changed since the last one."""
        before, self._seen = self._seen, now
        return differences(before, now)

    def fire(self, kind: EventKind) -> None:
        """Call back, unless closed; whatever the callback raises is logged."""
        if self._closed:
            return
        try:
            self._callback(Event(kind, self.path))
        except Exception:
            # A stranger's code: its failure must not take the other watches with it.
            _LOGGER.exception("the callback of a watch on %s failed", self.path)

    def close(self) -> None:
        self._closed = True
        self._watcher.remove(self)


_News = tuple[_EmbeddedWatch, EventKind]


class Watcher:
    """The watches of one client and the thread that serves them, started with the first one."""

    def __init__(self, database: Database, session: Session, interval: float, bury: Callable[[], None]) -> None:
        """Serve watches.

        Args:
            database: a connection of its own, for only commits of *other* connections are noticed;
                closed together with the watcher.
            session: its end is the last event of every watch.
            interval: seconds between two questions to the file.
            bury: called when another session is overdue, to end it.
        """
        self._database = database
        self._session = session
        self._interval = interval
        self._bury = bury
        self._lock = threading.Lock()
        self._watches: list[_EmbeddedWatch] = []
        self._seen_version: int | None = None
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, path: str, callback: Callable[[Event], None]) -> Watch:
        """Begin to watch `path`."""
        with self._lock:
            with self._database.read() as rows:
                self._session.require(rows)
                watch = _EmbeddedWatch(self, path, callback, glimpse(rows, path))
            self._watches.append(watch)
            self._start()
        return watch

    def remove(self, watch: _EmbeddedWatch) -> None:
        """Forget a watch; unknown ones are ignored."""
        with self._lock:
            if watch in self._watches:
                self._watches.remove(watch)

    def wake(self) -> None:
        """Look now instead of at the next interval."""
        self._wake.set()

    def close(self) -> None:
        """Deliver the end of the session and stop; the session must be over. Idempotent."""
        self.wake()
        thread = self._thread
        # From within a callback there is nobody to wait for; a stuck callback is not waited for.
        if thread is not None and thread is not threading.current_thread():
            thread.join(_JOIN_TIMEOUT)
        self._database.close()

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="tidelock-watch", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        pause = self._interval
        while not self._session.over.is_set():
            self._wake.wait(pause)
            self._wake.clear()
            pause = self._serve()
        self._deliver([(watch, EventKind.EXPIRED) for watch in self._all()])

    def _serve(self) -> float:
        """Look once and call back; return how long to wait before the next look."""
        try:
            self._bury_overdue()
            self._deliver(self._look())
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

    def _look(self) -> list[_News]:
        """Compare every watch with the file, if the file has changed at all."""
        with self._lock:
            version = self._database.data_version()
            if version == self._seen_version:
                return []
            with self._database.read() as rows:
                self._session.require(rows)
                sights = [(watch, glimpse(rows, watch.path)) for watch in self._watches]
            # Nothing is noted before everything was read: after a failure all is seen again.
            self._seen_version = version
            return [(watch, kind) for watch, now in sights for kind in watch.update(now)]

    def _deliver(self, news: list[_News]) -> None:
        for watch, kind in news:
            watch.fire(kind)

    def _all(self) -> list[_EmbeddedWatch]:
        with self._lock:
            return list(self._watches)
