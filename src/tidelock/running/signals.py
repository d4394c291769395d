"""What the keyboard and the system ask of a running pipeline.

Ctrl-C once: stop when all logs are read empty. Twice: stop at the next boundary. A third time: leave at once, as a
kill would; the next run recovers. SIGTERM: stop at the next boundary. As long as nothing runs there is nothing to
stop, and each of them means to leave.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterable
from types import FrameType, TracebackType
from typing import Any

_LEAVING = "tidelock: left at once, as a kill would; the next run recovers\n"
_NOTHING_RAN = "tidelock: interrupted before anything ran\n"


def unclaimed() -> list[signal.Signals]:
    """The signals that a program has left as it found them, so that whoever runs in it may listen to them.

    None in a thread that is not the main one: there nobody can listen. PySpark's own answer to Ctrl-C, to cancel
    all jobs, is nobody's claim.
    """
    if threading.current_thread() is not threading.main_thread():
        return []
    interrupt, terminate = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    of_spark = str(getattr(interrupt, "__module__", "")).startswith("pyspark.")
    free = {
        signal.SIGINT: interrupt is signal.default_int_handler or of_spark,
        signal.SIGTERM: terminate is signal.SIG_DFL,
    }
    return [number for number, is_free in free.items() if is_free]


class Signals:
    """Notes signals while it is entered; a handler does no more than that, so it can come at any moment.

    Nobody hears of a signal by an exception: one that is raised in the middle of a conversation with Java would
    leave the other half of an answer to whoever asks next.

    Args:
        leave: ends the process with an exit code (128 and the signal's number): on the third Ctrl-C, and on any
            signal before something runs. It is no normal end: conversations with Java may be under way.
        running: whether something runs from the beginning; if not, `begun` says when.
        heard: the signals that are noted; the others do what they did before.
    """

    def __init__(
        self,
        leave: Callable[[int], Any] = os._exit,
        *,
        running: bool = True,
        heard: Iterable[signal.Signals] = (signal.SIGINT, signal.SIGTERM),
    ) -> None:
        self._leave = leave
        self._running = running
        self._heard = tuple(heard)
        self.terminated = False
        """Whether SIGTERM was among them."""
        self._interrupts = 0
        self._now = False
        self._told: bool | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Signals:
        answers = {signal.SIGINT: self._interrupted, signal.SIGTERM: self._terminated}
        self._before = {number: signal.signal(number, answers[number]) for number in self._heard}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    def begun(self) -> None:
        """Something runs now, and signals are about it."""
        self._running = True

    def news(self) -> bool | None:
        """Whether to stop with a drain (True) or without (False), each told once; None if there is nothing new."""
        wish = False if self._now else True if self._interrupts else None
        if wish == self._told:
            return None
        self._told = wish
        return wish

    def _interrupted(self, number: int, frame: FrameType | None) -> None:
        self._interrupts += 1
        self._now = self._now or self._interrupts > 1
        if self._interrupts > 2 or not self._running:
            self._go(number)

    def _terminated(self, number: int, frame: FrameType | None) -> None:
        self._now = self.terminated = True
        if not self._running:
            self._go(number)

    def _go(self, number: int) -> None:
        # Not print: a signal may come in the middle of one.
        os.write(2, (_LEAVING if self._running else _NOTHING_RAN).encode())
        self._leave(128 + number)
