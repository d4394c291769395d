"""What the keyboard and the system ask of a running pipeline.

Ctrl-C once: stop when all logs are read empty. Twice: stop at the next boundary. A third time: leave at once, as a
kill would; the next run recovers. SIGTERM: stop at the next boundary.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

from tidelock.cli.exits import INTERRUPTED


class Signals:
    """Notes signals while it is entered; a handler does no more than that, so it can come at any moment.

    Args:
        leave: ends the process on the third Ctrl-C.
    """

    def __init__(self, leave: Callable[[int], Any] = os._exit) -> None:
        self._leave = leave
        self._interrupts = 0
        self._now = False
        self._told: bool | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Signals:
        self._before[signal.SIGINT] = signal.signal(signal.SIGINT, self._interrupted)
        self._before[signal.SIGTERM] = signal.signal(signal.SIGTERM, self._terminated)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

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
        if self._interrupts > 2:
            self._leave(INTERRUPTED)

    def _terminated(self, number: int, frame: FrameType | None) -> None:
        self._now = True
