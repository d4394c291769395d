"""What the watches of every backend have in common: who is called back, and the thread that does it."""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable

from tidelock.coordination.path_states import PathState, differences
from tidelock.coordination.tree import Event, EventKind, Watch

__all__ = ["Registered", "Watching"]

_LOGGER = logging.getLogger(__name__)

_JOIN_TIMEOUT = 5.0


class Registered(Watch):
    """One registered callback and what it was last told about."""

    def __init__(self, watching: Watching, path: str, callback: Callable[[Event], None]) -> None:
        self.path = path
        self._watching = watching
        self._callback = callback
        self._seen: PathState | None = None
        self._closed = False

    def begin(self, seen: PathState) -> None:
        """Take the first state, unless a look of the thread was faster."""
        if self._seen is None:
            self._seen = seen

    def update(self, now: PathState) -> list[EventKind]:
        """Remember a new state and return what changed since the last one."""
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
        """Call back no more."""
        self._closed = True
        self._watching.remove(self)


class Watching(ABC):
    """The watches of one client and the thread that serves them, started with the first one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watches: list[Registered] = []
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None

    @abstractmethod
    def add(self, path: str, callback: Callable[[Event], None]) -> Watch:
        """Begin to watch `path`."""

    @abstractmethod
    def _run(self) -> None:
        """Serve the watches until the session is over, then tell them its end."""

    def remove(self, watch: Registered) -> None:
        """Forget a watch; unknown ones are ignored."""
        with self._lock:
            if watch in self._watches:
                self._watches.remove(watch)

    def wake(self) -> None:
        """Let the thread look now: something has changed, or the session is over."""
        self._wake.set()

    def close(self) -> None:
        """Deliver the end of the session and stop; the session must be over. Idempotent."""
        self.wake()
        thread = self._thread
        # From within a callback there is nobody to wait for; a stuck callback is not waited for.
        if thread is not None and thread is not threading.current_thread():
            thread.join(_JOIN_TIMEOUT)

    def _list(self, watch: Registered) -> None:
        """Serve a watch from now on. The lock is held."""
        self._watches.append(watch)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="tidelock-watch", daemon=True)
            self._thread.start()

    def _on(self, path: str | None = None) -> list[Registered]:
        """The watches on one path, or all."""
        with self._lock:
            return [watch for watch in self._watches if path in (None, watch.path)]

    def _tell_the_end(self) -> None:
        for watch in self._on():
            watch.fire(EventKind.EXPIRED)
