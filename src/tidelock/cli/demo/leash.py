"""A process that does not outlive the one that started it, with all that it has started itself.

The pipe to its standard input is its leash: when the other end closes, because that process ended in whatever way,
the whole session is killed, its JVM included, which has a process group of its own.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

_PROCESSES = Path("/proc")


def put_on() -> None:
    """Watch standard input from now on, in a thread of its own."""
    threading.Thread(target=_follow, name="leash", daemon=True).start()


def session_members(leader: int) -> list[int]:
    """The processes of the session that the process ``leader`` has begun, itself last."""
    members = [process for process in _all_processes() if _session(process) == leader]
    return sorted(members, key=lambda process: process == leader)


def kill_session(leader: int) -> None:
    """SIGKILL for everything in the session of the process ``leader``."""
    for process in session_members(leader):
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


def _follow() -> None:
    while os.read(sys.stdin.fileno(), 1024):
        pass
    if os.getsid(0) == os.getpid():
        kill_session(os.getpid())
    os.killpg(0, signal.SIGKILL)


def _all_processes() -> Iterable[int]:
    if _PROCESSES.is_dir():
        return [int(found.name) for found in _PROCESSES.iterdir() if found.name.isdigit()]
    listed = subprocess.run(["ps", "-A", "-o", "pid="], capture_output=True, text=True, check=True)
    return [int(line) for line in listed.stdout.split()]


def _session(process: int) -> int | None:
    try:
        return os.getsid(process)
    except OSError:  # it has ended meanwhile, or is none of ours
        return None
