"""The processes of the demo: each is one Spark driver, in a process group of its own.

A group of its own means that a kill hits the Python process and its JVM at the same instant, as the loss of a
machine would, and that Ctrl-C in the terminal reaches only us. The pipe to a child's standard input is its leash:
a child stops when the pipe closes, so it does not outlive us however we end.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tidelock.errors import BatchFailed

_STOP_SECONDS = 60
_TAIL_LINES = 25


class ChildFailed(BatchFailed):
    """A process of the demo ended although nobody had asked it to."""


class Child:
    """One process, started as ``python -m tidelock.spark.demo ARGUMENTS``; what it says goes to ``log``."""

    def __init__(self, name: str, arguments: Sequence[str], log: Path) -> None:
        self.name = name
        self.log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tidelock.spark.demo", *arguments],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """The process, and the process group."""
        return self._process.pid

    @property
    def ended(self) -> bool:
        """Whether the process is gone."""
        return self._process.poll() is not None

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
            raise ChildFailed(f"{self.name} (pid {self.pid}) died: {_meaning(code)}.\n{self._tail()}")
        return code == 0

    def stop(self) -> None:
        """Ask it to stop at once, and wait until it has.

        Raises:
            ChildFailed: it did not stop, or failed on the way.
        """
        self._close()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
        self.finished()

    def kill(self) -> None:
        """SIGKILL for the whole process group; it is gone when this returns. Nothing happens if it was."""
        if not self.ended:
            os.killpg(self.pid, signal.SIGKILL)
            self._process.wait()
        self._close()

    def _close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()

    def _tail(self) -> str:
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-_TAIL_LINES:]
        return "\n".join([f"The end of {self.log}:", *(f"  {line}" for line in lines)])


def _meaning(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
