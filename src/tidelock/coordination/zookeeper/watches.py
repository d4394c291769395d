"""Watches of the ZooKeeper tree: one thread looks again at every path about which the ensemble tells something.

Theory of operation. ZooKeeper's own watches fire once and end with their connection. So what fires is
only noted (`Watcher.notice`): its path is *stale*. The thread takes stale paths and looks: it sets
ZooKeeper's watches anew and, in the same questions, takes a `Glimpse`. Only then it calls back. What
happened before the look is covered by this call, what happens after it fires again: after the last
change one event always follows.

When a connection breaks, all paths are stale. A path without a node that is stale may have had one
meanwhile, so the glimpse of an absent node is never equal to an earlier one.

Nothing is locked while the ensemble is asked, and callbacks run without any lock.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable
from typing import Any

from kazoo.exceptions import NoNodeError

from tidelock.coordination.glimpses import Glimpse, differences
from tidelock.coordination.tree import Event, EventKind, Watch
from tidelock.coordination.zookeeper.failures import translated
from tidelock.coordination.zookeeper.session import Session
from tidelock.errors import TidelockError

__all__ = ["Watcher"]

_LOGGER = logging.getLogger(__name__)

_PAUSE_AFTER_FAILURE = 0.5
_JOIN_TIMEOUT = 5.0


class _ZooKeeperWatch(Watch):
    """One registered callback and what it was last told about."""

    def __init__(self, watcher: Watcher, path: str, callback: Callable[[Event], None]) -> None:
        self.path = path
        self._watcher = watcher
        self._callback = callback
        self._seen: Glimpse | None = None
        self._closed = False

    def begin(self, seen: Glimpse) -> None:
        """Take the first glimpse, unless a look of the watcher's thread was faster."""
        if self._seen is None:
            self._seen = seen

    def update(self, now: Glimpse) -> list[EventKind]:
        """Remember a new glimpse and return what changed since the last one."""
        before, self._seen = self._seen, now
        return [] if before is None else differences(before, now)

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


class Watcher:
    """The watches of one client and the thread that serves them, started with the first one."""

    def __init__(self, session: Session, root: str) -> None:
        """Serve watches on paths below the node `root`; the session's end is their last event."""
        self._session = session
        self._root = root
        self._lock = threading.Lock()
        self._watches: list[_ZooKeeperWatch] = []
        self._stale: set[str] = set()
        self._looks = itertools.count()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, path: str, callback: Callable[[Event], None]) -> Watch:
        """Begin to watch `path`."""
        watch = _ZooKeeperWatch(self, path, callback)
        with self._lock:
            self._session.require()
            # It is listed before the first look, so that a connection that breaks after it is noticed.
            self._watches.append(watch)
            self._start()
        try:
            glimpse = self._look(path)
        except BaseException:
            watch.close()
            raise
        with self._lock:
            watch.begin(glimpse)
        return watch

    def remove(self, watch: _ZooKeeperWatch) -> None:
        """Forget a watch; unknown ones are ignored."""
        with self._lock:
            if watch in self._watches:
                self._watches.remove(watch)

    def wake(self) -> None:
        """Notice the end of the session."""
        self._wake.set()

    def close(self) -> None:
        """Deliver the end of the session and stop; the session must be over. Idempotent."""
        self.wake()
        thread = self._thread
        # From within a callback there is nobody to wait for; a stuck callback is not waited for.
        if thread is not None and thread is not threading.current_thread():
            thread.join(_JOIN_TIMEOUT)

    def notice(self, event: Any) -> None:
        """Note what kazoo tells; without a path it is that the connection broke, and with it all watches."""
        with self._lock:
            if event.path is None:
                self._stale.update(watch.path for watch in self._watches)
            else:
                self._stale.add(event.path.removeprefix(self._root) or "/")
        self._wake.set()

    def _look(self, path: str) -> Glimpse:
        """Set ZooKeeper's watches on `path` and take a glimpse of it."""
        full = self._root if path == "/" else self._root + path
        while True:
            with translated(self._session.location, path):
                (stat,) = self._session.read(lambda kazoo: [kazoo.exists_async(full, self.notice)])
                if stat is None:
                    return Glimpse(False, 0, 0, next(self._looks))
                try:
                    ((_, stat),) = self._session.read(
                        lambda kazoo: [kazoo.get_children_async(full, self.notice, include_data=True)]
                    )
                except NoNodeError:  # gone since
                    continue
            return Glimpse(True, stat.czxid, stat.version, stat.cversion)

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="tidelock-watch", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while not self._session.over.is_set():
            self._wake.wait()
            self._wake.clear()
            for path in self._take_stale():
                self._serve(path)
        for watch in self._on(None):
            watch.fire(EventKind.EXPIRED)

    def _take_stale(self) -> list[str]:
        with self._lock:
            stale = sorted(self._stale & {watch.path for watch in self._watches})
            self._stale.clear()
        return stale

    def _serve(self, path: str) -> None:
        """Look at a stale path and call back; it stays stale if that fails."""
        if self._session.over.is_set():
            return
        try:
            glimpse = self._look(path)
        except TidelockError as error:
            if not self._session.over.is_set():
                _LOGGER.warning("a watch on %s is late: %s", path, error)
                self._put_back(path)
            return
        for watch in self._on(path):
            for kind in self._update(watch, glimpse):
                watch.fire(kind)

    def _put_back(self, path: str) -> None:
        with self._lock:
            self._stale.add(path)
        self._session.over.wait(_PAUSE_AFTER_FAILURE)
        self._wake.set()

    def _update(self, watch: _ZooKeeperWatch, glimpse: Glimpse) -> list[EventKind]:
        with self._lock:
            return watch.update(glimpse)

    def _on(self, path: str | None) -> list[_ZooKeeperWatch]:
        """The watches on one path, or all."""
        with self._lock:
            return [watch for watch in self._watches if path in (None, watch.path)]
