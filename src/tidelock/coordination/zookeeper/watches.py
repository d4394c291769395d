"""Watches of the ZooKeeper tree: one thread looks again at every path about which the ensemble tells something.

Theory of operation. ZooKeeper's own watches fire once and end with their connection. So what fires is
only noted (`Watcher.notice`): its path is *stale*. The thread takes stale paths and looks: it sets
ZooKeeper's watches anew and, in the same questions, takes a `PathState`. Only then it calls back. What
happened before the look is covered by this call, what happens after it fires again: after the last
change one event always follows.

When a connection breaks, all paths are stale. A path without a node that is stale may have had one
meanwhile, so the state of an absent node is never equal to an earlier one.

Nothing is locked while the ensemble is asked, and callbacks run without any lock.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable
from typing import Any

from kazoo.exceptions import NoNodeError

from tidelock.coordination.path_states import PathState
from tidelock.coordination.tree import Event, EventKind, Watch
from tidelock.coordination.watching import Registered, Watching
from tidelock.coordination.zookeeper.failures import translated
from tidelock.coordination.zookeeper.session import Session
from tidelock.errors import TidelockError

__all__ = ["Watcher"]

_LOGGER = logging.getLogger(__name__)

_PAUSE_AFTER_FAILURE = 0.5


class Watcher(Watching):
    """The watches of one client, on paths below one node."""

    def __init__(self, session: Session, root: str) -> None:
        """Serve watches on paths below the node `root`; the session's end is their last event."""
        super().__init__()
        self._session = session
        self._root = root
        self._stale: set[str] = set()
        self._looks = itertools.count()

    def add(self, path: str, callback: Callable[[Event], None]) -> Watch:
        """Begin to watch `path`."""
        watch = Registered(self, path, callback)
        with self._lock:
            self._session.require()
            # It is listed before the first look, so that a connection that breaks after it is noticed.
            self._list(watch)
        try:
            path_state = self._look(path)
        except BaseException:
            watch.close()
            raise
        with self._lock:
            watch.begin(path_state)
        return watch

    def notice(self, event: Any) -> None:
        """Note what kazoo tells; without a path it is that the connection broke, and with it all watches."""
        with self._lock:
            if event.path is None:
                self._stale.update(watch.path for watch in self._watches)
            else:
                self._stale.add(event.path.removeprefix(self._root) or "/")
        self._wake.set()

    def _look(self, path: str) -> PathState:
        """Set ZooKeeper's watches on `path` and take its state."""
        full = self._root if path == "/" else self._root + path
        while True:
            with translated(self._session.location, path):
                (stat,) = self._session.read(lambda kazoo: [kazoo.exists_async(full, self.notice)])
                if stat is None:
                    return PathState(False, 0, 0, next(self._looks))
                try:
                    ((_, stat),) = self._session.read(
                        lambda kazoo: [kazoo.get_children_async(full, self.notice, include_data=True)]
                    )
                except NoNodeError:  # gone since
                    continue
            return PathState(True, stat.czxid, stat.version, stat.cversion)

    def _run(self) -> None:
        while not self._session.over.is_set():
            self._wake.wait()
            self._wake.clear()
            for path in self._take_stale():
                self._serve(path)
        self._tell_the_end()

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
            path_state = self._look(path)
        except TidelockError as error:
            if not self._session.over.is_set():
                _LOGGER.warning("a watch on %s is late: %s", path, error)
                self._put_back(path)
            return
        for watch in self._on(path):
            for kind in self._update(watch, path_state):
                watch.fire(kind)

    def _put_back(self, path: str) -> None:
        with self._lock:
            self._stale.add(path)
        self._session.over.wait(_PAUSE_AFTER_FAILURE)
        self._wake.set()

    def _update(self, watch: Registered, path_state: PathState) -> list[EventKind]:
        with self._lock:
            return watch.update(path_state)
