"""Showing something that runs: what cannot be shown is left out, and what runs goes on.

Standard output may be a file on a disk that fills up, a pipe that nobody reads any more, or a terminal that is
gone.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from tidelock.credentials import redacted


class Showing:
    """Shows things, and ends nothing if that fails: the first failure of each kind is told on standard error.

    When it is left, what could not be written is given up, so that Python does not fail on it once more as the
    process ends, and make that its exit code. One thread at a time.

    Args:
        what: what runs, as it is told that it goes on.
    """

    def __init__(self, what: str = "the run") -> None:
        self._what = what
        self._met: set[type[Exception]] = set()
        self._errors = sys.stderr  # a live table would take what is told later for its own output

    def __enter__(self) -> Showing:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except OSError:
                with suppress(OSError), Path(os.devnull).open("wb") as nowhere:
                    os.dup2(nowhere.fileno(), stream.fileno())

    def show(self, what: Callable[[], object]) -> None:
        """Do ``what``, as far as it can be done. Raises nothing."""
        try:
            what()
        except Exception as error:  # of the status, of the output, of whoever printed before: it only shows
            if type(error) not in self._met:
                self._met.add(type(error))
                self._tell(error)

    def _tell(self, error: Exception) -> None:
        told = redacted(str(error)) or type(error).__name__
        with suppress(OSError):
            print(f"tidelock: not everything can be shown ({told}); {self._what} goes on", file=self._errors)
