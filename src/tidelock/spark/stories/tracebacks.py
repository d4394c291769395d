"""Tracebacks of Python inside other texts: what was raised, and where in the user's own code.

Spark hands on what a Python worker raised as text, inside the text of its own exceptions, which may stand inside
another traceback again. Every traceback is read by its form: a head, indented frames, a line with the error.
"""

from __future__ import annotations

import re
import sysconfig
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyspark

from tidelock import errors

_HEAD = "Traceback (most recent call last)"
_FRAME = re.compile(r'^\s+File "(?P<file>[^"]+)", line (?P<line>\d+)(?:, in (?P<function>.+))?$')
_ERROR = re.compile(r"^(?P<name>[A-Za-z_][^\s:]*)(?:: ?(?P<message>.*))?$")
_LIBRARIES = tuple(
    {
        *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
        str(Path(pyspark.__file__).parent),
        str(Path(errors.__file__).parent),
    }
)
_INSTALLED = ("site-packages/", "dist-packages/", ".zip/pyspark/", "<frozen ")
"""How files of libraries look on other machines."""


@dataclass(frozen=True)
class Frame:
    """A place in the code."""

    file: str
    line: int
    function: str | None = None

    @property
    def is_users(self) -> bool:
        """Whether it is neither Python's nor Spark's nor Tidelock's nor an installed package's."""
        return not self.file.startswith(_LIBRARIES) and not any(mark in self.file for mark in _INSTALLED)

    def __str__(self) -> str:
        inside = f", in {self.function}" if self.function else ""
        return f"{Path(self.file).name}, line {self.line}{inside}"


@dataclass(frozen=True)
class Raised:
    """What one traceback tells."""

    type: str
    """The name of the error's type, with its module."""
    message: str
    """The first line of what it says."""
    frames: Sequence[Frame]
    """The outermost first."""

    @property
    def frame(self) -> Frame | None:
        """The innermost frame in the user's own code."""
        return _innermost(self.frames)

    def __str__(self) -> str:
        name = self.type.rpartition(".")[2]
        return f"{name}: {self.message}" if self.message else name


def users_frame(error: BaseException) -> Frame | None:
    """The innermost frame in the user's own code through which ``error`` came."""
    summary = traceback.extract_tb(error.__traceback__)
    return _innermost([Frame(found.filename, found.lineno or 0, found.name) for found in summary])


def _innermost(frames: Sequence[Frame]) -> Frame | None:
    return next((frame for frame in reversed(frames) if frame.is_users), None)


def tracebacks(text: str) -> Iterator[Raised]:
    r"""All the tracebacks in a text that are whole, in their order.

    >>> text = 'Traceback (most recent call last):\n  File "a.py", line 3, in f\n    1 / 0\nZeroDivisionError: x'
    >>> [f"{found} ({found.frame})" for found in tracebacks(text)]
    ['ZeroDivisionError: x (a.py, line 3, in f)']
    """
    frames: list[Frame] | None = None
    for line in text.splitlines():
        if _HEAD in line:
            frames = []
        elif frames is not None and (found := _FRAME.match(line)):
            frames.append(Frame(found["file"], int(found["line"]), found["function"]))
        elif frames is not None and line and not line[0].isspace():
            if error := _ERROR.match(line):
                yield Raised(error["name"], (error["message"] or "").strip(), tuple(frames))
            frames = None
