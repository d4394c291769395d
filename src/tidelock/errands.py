"""Things that are done beside a run, one after the other, and that must not hold up its end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Protocol


class Errands:
    """Does one thing after the other, each in a daemon thread: one that hangs does not keep the process alive.

    Thread-safe: a lock guards the list of threads, and another one is held by the thread whose turn it is.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._turn = threading.Lock()
        self._closed = threading.Event()
        self._threads: list[threading.Thread] = []

    def run(self, what: Callable[[], None]) -> Future[None]:
        """Do something when all that was asked for earlier is done; cancelled if it is closed before that."""
        future: Future[None] = Future()
        thread = threading.Thread(target=self._run, args=(what, future), name=self._name, daemon=True)
        with self._lock:
            self._threads = [one for one in self._threads if one.is_alive()] + [thread]
            thread.start()
        return future

    def _run(self, what: Callable[[], None], future: Future[None]) -> None:
        with self._turn:
            if self._closed.is_set():
                future.cancel()
                return
            try:
                what()
            except BaseException as failure:  # the future has it, as that of any executor
                future.set_exception(failure)
            else:
                future.set_result(None)

    def close(self, timeout: float) -> bool:
        """Begin nothing more; whether what was under way has ended within ``timeout`` seconds."""
        self._closed.set()
        with self._lock:
            threads = self._threads
        return all_end(threads, timeout)


class Ending(Protocol):
    """A thread, or what plays one."""

    def is_alive(self) -> bool:
        """Whether it has not ended."""

    def join(self, timeout: float) -> None:
        """Wait until it has ended, but no longer than that."""


def all_end(threads: Sequence[Ending], timeout: float) -> bool:
    """Wait for threads, ``timeout`` seconds in all; whether all of them have ended."""
    deadline = time.monotonic() + timeout
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return not any(thread.is_alive() for thread in threads)
