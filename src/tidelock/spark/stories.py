"""What a failure means to the person who wrote the pipeline: which operator, which line, what was raised.

A failure of the user's code reaches the driver as text: the traceback of a Python worker inside an exception of
the JVM. Frames of that traceback are matched with the places where the operators' functions stand.

Tidelock's own errors come back as text in the same way, from Python workers and from the processes of sources. The
line that ends their traceback has the error's full name, and that says who has to act, as the type would.
"""

from __future__ import annotations

import inspect
import re
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException

from tidelock import errors
from tidelock.errors import BackendUnavailable, BatchFailed, Fenced, LogCorrupt, PipelineError, PlanError

_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)')
_CALLED_FROM = re.compile(r"was called from\s+(?P<file>\S+):(?P<line>\d+)")
_RAISED = re.compile(r"^(?:[\w.]+\.)?(?P<name>[A-Za-z_]\w*(?:Error|Exception|Exit|Interrupt|Warning|Fenced)\b.*)$")
_BATCH_FAILED = re.compile(r"^tidelock\.errors\.BatchFailed: (?P<told>.+)$", re.MULTILINE)
_LAST_TASK = re.compile(r"most recent failure: .*?\(TID \d+\) \([^)]*\): (?P<cause>.+)")
_OWN = re.compile(r"^tidelock\.errors\.(?P<told>(?P<name>\w+).*)$", re.MULTILINE)
_NEVER_BETTER = (PipelineError, PlanError, Fenced, LogCorrupt, AnalysisException)
_FROM_WORKER = "from the Python worker"
_LONGEST = 400


@dataclass(frozen=True)
class Story:
    """A failure in a few words."""

    operator: str | None
    """The operator whose code failed, as far as that can be told."""
    raised: str
    """What was raised, in one line."""
    final: bool
    """Trying again cannot help."""
    outage: bool = False
    """A store or a server is away: nothing is wrong with the epoch."""

    def __str__(self) -> str:
        return f"in operator {self.operator}: {self.raised}" if self.operator else self.raised


class Storyteller:
    """Knows where each function of a pipeline stands."""

    def __init__(self, functions: Mapping[str, Callable[..., Any]]) -> None:
        self._places = {name: place for name, f in functions.items() if (place := _place(f)) is not None}

    def tell(self, failure: BaseException, operators: Sequence[str] = ()) -> Story:
        """The story of ``failure``, which happened while ``operators`` were computed.

        Code of the user that stands in no operator's function belongs to the only operator there is, if so.
        """
        text = _text(failure)
        own = _own_errors(text)
        told = {type(failure), *own}
        final = any(issubclass(error, _NEVER_BETTER) for error in told)
        outage = not final and any(issubclass(error, BackendUnavailable) for error in told)
        operator = self._operator(text)
        if operator is None and len(operators) == 1 and _FROM_WORKER in text and not own:
            operator = operators[0]
        return Story(operator, _raised(failure, text, own)[:_LONGEST], final, outage)

    def _operator(self, text: str) -> str | None:
        frames = [*_FRAME.finditer(text), *_CALLED_FROM.finditer(text)]
        for frame in reversed(frames):  # the innermost first
            owner = self._owner(frame["file"], int(frame["line"]))
            if owner is not None:
                return owner
        return None

    def _owner(self, file: str, line: int) -> str | None:
        for name, (where, lines) in self._places.items():
            if where == file and line in lines:
                return name
        return None


def _place(function: Callable[..., Any]) -> tuple[str, range] | None:
    try:
        lines, first = inspect.getsourcelines(function)
        file = inspect.getsourcefile(function)
    except (OSError, TypeError):
        return None
    return (file, range(first, first + len(lines))) if file else None


def _text(failure: BaseException) -> str:
    own = "".join(traceback.format_exception(failure))
    return f"{own}\n{failure}"


def _own_errors(text: str) -> dict[type[BaseException], str]:
    """Tidelock's own errors that a text tells of, each with its line; not the one that only wraps another."""
    found = {getattr(errors, line["name"], None): line["told"] for line in _OWN.finditer(text)}
    return {error: told for error, told in found.items() if error is not None and error is not BatchFailed}


def _raised(failure: BaseException, text: str, own: Mapping[type[BaseException], str]) -> str:
    if own and not isinstance(failure, tuple(own)):
        return list(own.values())[-1]  # the last of a chain is what it was translated to
    if isinstance(failure, Py4JJavaError):
        return _python_error(text.splitlines()) or _first_line(_deepest_message(failure.java_exception))
    if isinstance(failure, PySparkException):
        return _python_error(text.splitlines()) or _batch_error(text) or _first_line(str(failure))
    return f"{type(failure).__name__}: {_first_line(str(failure))}"


def _deepest_message(exception: Any) -> str:
    """What the innermost cause says that says anything."""
    said = ""
    while exception is not None:
        said = str(exception.getMessage() or said)
        exception = exception.getCause()
    return said


def _python_error(lines: Iterable[str]) -> str | None:
    """The line that ends the traceback of a Python worker inside Spark's own text."""
    inside = False
    for line in lines:
        if line.startswith("Traceback (most recent call last)"):
            inside = True
        elif inside and (found := _RAISED.match(line)) and "py4j" not in line and "pyspark" not in line:
            return found["name"]
    return None


def _batch_error(text: str) -> str | None:
    """What stopped a batch inside Spark itself, which no Python traceback tells of."""
    batch = _BATCH_FAILED.search(text)
    if batch is None:
        return None
    task = _LAST_TASK.search(batch["told"])
    return task["cause"] if task else batch["told"]


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "no reason was given")
