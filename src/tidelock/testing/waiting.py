"""Waiting for a condition, with a deadline: no test sleeps and hopes."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE = 90.0


def eventually(condition: Callable[[], object], what: str, patience: float = PATIENCE) -> None:
    """Return as soon as ``condition`` holds.

    Raises:
        AssertionError: it did not hold within ``patience`` seconds; ``what`` says what was waited for.
    """
    deadline = time.monotonic() + patience
    pause = 0.001
    while not condition():
        assert time.monotonic() < deadline, f"not within {patience:.0f} s: {what}"
        time.sleep(pause)
        pause = min(0.1, pause * 2)
