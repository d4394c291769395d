"""A process that does not outlive the one that started it.

The pipe to its standard input is its leash: when the other end closes, because that process ended in whatever way,
the whole process group is killed, its JVM included.
"""

from __future__ import annotations

import os
import signal
import sys
import threading


def put_on() -> None:
    """Watch standard input from now on, in a thread of its own."""
    threading.Thread(target=_follow, name="leash", daemon=True).start()


def _follow() -> None:
    while os.read(sys.stdin.fileno(), 1024):
        pass
    os.killpg(0, signal.SIGKILL)
