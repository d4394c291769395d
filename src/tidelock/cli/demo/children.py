"""The process of the demo: the command `tidelock run`, in a session of its own.

A session of its own means that a kill hits the Python process and its JVM at the same instant, as the loss of a
machine would, and that Ctrl-C in the terminal reaches only us.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tidelock.cli.demo.leash import kill_session, session_members
from tidelock.errors import BatchFailed

_TAIL_LINES = 25
_LAST_BREATH = 10.0
"""Seconds that a JVM gets to end after its Python process has."""


class ChildFailed(BatchFailed):
    """The process of the demo ended although nobody had asked it to, or does nothing any more."""


class Child:
    """One process, started as ``python -m tidelock ARGUMENTS``; what it prints goes to ``log``."""

    def __init__(self, arguments: Sequence[str], log: Path, environment: Mapping[str, str]) -> None:
        self.log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tidelock", *arguments],
                stdin=subprocess.PIPE,  # its leash
                stdout=output,
                stderr=subprocess.STDOUT,
                env=dict(environment),
                start_new_session=True,
            )
        assert self._process.stdin is not None
        self._stdin = self._process.stdin
        self._gone = False

    @property
    def pid(self) -> int:
        """The process, and the session."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """How it ended: negative is the signal that killed it. None while it runs."""
        return self._process.poll()

    def finished(self) -> bool:
        """Whether it has ended by itself, and well.

        Raises:
            ChildFailed: it has ended in another way; the message has the last lines of its log.
        """
        code = self.exit_code
        if code is not None and code != 0:
            raise ChildFailed(f"the pipeline (pid {self.pid}) died: {_meaning(code)}.\n{self._tail()}")
        return code == 0

    def kill(self) -> None:
        """SIGKILL for the whole session; it is gone when this returns. Nothing happens if it was."""
        if not self._gone:
            kill_session(self.pid)
            self._process.wait()
            self._stdin.close()
            self._gone = True

    def see_off(self) -> None:
        """Let a process that has ended by itself take along what it had started: its JVM needs a moment."""
        deadline = time.monotonic() + _LAST_BREATH
        while session_members(self.pid) and time.monotonic() < deadline:
            time.sleep(0.05)
        self.kill()

    def _tail(self) -> str:
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-_TAIL_LINES:]
        return "\n".join([f"The end of {self.log}:", *(f"  {line}" for line in lines)])


def _meaning(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
