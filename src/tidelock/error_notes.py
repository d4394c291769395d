"""Notes by which this process knows its errors again when other processes have raised them.

Spark hands on what a Python worker raises as text, in which anybody's data may stand, too. So the processes that
Spark starts are told a word by their environment, which nobody else knows, and there every error of Tidelock
carries a note: one line with that word, the branch of `tidelock.errors` that it is of, and what was said. Only
these lines count. What this process itself hands to Spark as text it marks in the same way (`TidelockError.mark`).
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator

from tidelock import errors
from tidelock.errors import TidelockError

__all__ = ["NAME", "WORD", "listen", "marked_in"]

NAME = "TIDELOCK_ERROR_WORD"
"""The environment variable that tells a process of Spark its word."""
WORD = secrets.token_hex(8)
"""The word of the processes that Spark starts for this one."""


def listen() -> None:
    """Mark the errors of this process from now on, if it was told with what."""
    TidelockError.word = os.environ.get(NAME)


def marked_in(text: str) -> Iterator[tuple[type[TidelockError], str]]:
    """The errors whose notes are in a text: the branch, and what was said. Spark may have put words behind one."""
    mark = f"[tidelock {WORD}] "
    for line in text.splitlines():
        if line.startswith(mark):
            (name, said), _ = json.JSONDecoder().raw_decode(line, len(mark))
            yield getattr(errors, name), said
