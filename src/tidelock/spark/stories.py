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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException

from tidelock import errors
from tidelock.errors import BackendUnavailable, BatchFailed, Fenced, LogCorrupt, PipelineError, PlanError
from tidelock.spark.tracebacks import Frame, Raised, tracebacks

_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)')
_CALLED_FROM = re.compile(r"was called from\s+(?P<file>\S+):(?P<line>\d+)")
_SQL = re.compile(r"^== SQL .*==\n(?P<sql>.+)$", re.MULTILINE)
_OF_DATA = re.compile(r"SQLSTATE: (?:22|P0)\w+|^== (?:DataFrame|SQL)\b", re.MULTILINE)
"""Spark found something in the rows that an expression does not take."""
_BATCH_FAILED = re.compile(r"^tidelock\.errors\.BatchFailed: (?P<told>.+)$", re.MULTILINE)
_LAST_TASK = re.compile(r"most recent failure: .*?\(TID \d+\) \([^)]*\): (?P<cause>.+)")
_OWN = re.compile(r"^tidelock\.errors\.(?P<told>(?P<name>\w+).*)$", re.MULTILINE)
_NEVER_BETTER = (PipelineError, PlanError, Fenced, LogCorrupt, AnalysisException)
_NO_ROOM = re.compile(
    r"\b(?:OSError|IOException|FileSystemException|FSError|RocksDBException): .*"
    r"(?:No space left on device|Disk quota exceeded)"
)
"""What a full disk is called by Python, by Java, and by the stores of Spark's state: whoever writes meets it."""
_FROM_WORKER = "from the Python worker"
_WRAPPERS = ("BatchFailed", "Py4JJavaError", "PythonException", "SparkException", "StreamingQueryException")
_CAPTURED = ("py4j.", "pyspark.errors.exceptions.captured.")
"""What only carries the words of something else: of a worker, or of the JVM."""
_LONGEST = 500


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
    """A store or a server is away, or a disk is full: nothing is wrong with the epoch."""
    among: tuple[str, ...] = ()
    """The operators of which one failed, where that cannot be told more exactly."""

    def __str__(self) -> str:
        if self.operator:
            return f"in operator {self.operator}: {self.raised}"
        return f"in one of {', '.join(self.among)}: {self.raised}" if self.among else self.raised


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
        away = any(issubclass(error, BackendUnavailable) for error in told)
        outage = not final and (away or _NO_ROOM.search(text) is not None)
        operator = self._operator(text)
        among: tuple[str, ...] = ()
        if operator is None and not own and (_FROM_WORKER in text or _OF_DATA.search(text)):
            operator, among = (operators[0], ()) if len(operators) == 1 else (None, tuple(operators))
        return Story(operator, _raised(failure, text, own), final, outage, among)

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
    """What was raised, cut off where it gets too long, and behind it the place, which never is."""
    if own and not isinstance(failure, tuple(own)):
        return list(own.values())[-1][:_LONGEST]  # the last of a chain is what it was translated to
    told = list(tracebacks(text))
    python = next((found for found in reversed(told) if not _carries(found)), None)
    place: Frame | str | None
    if python is not None:
        what, place = str(python), python.frame
    else:
        what, place = _java_error(failure, text), _where(text, told)
    return f"{what[:_LONGEST]} ({place})" if place else what[:_LONGEST]


def _carries(found: Raised) -> bool:
    return found.type.endswith(_WRAPPERS) or found.type.startswith(_CAPTURED)


def _java_error(failure: BaseException, text: str) -> str:
    batch = _batch_error(text) if isinstance(failure, PySparkException) else None
    return batch or spark_error(failure)


def spark_error(failure: BaseException) -> str:
    """What Spark or Java says in an error, in one line, with its type where the words do not say what it is."""
    if isinstance(failure, Py4JJavaError):
        return _deepest_message(failure.java_exception)
    return _typed(type(failure).__name__, _first_line(str(failure)))


def _deepest_message(exception: Any) -> str:
    """The innermost cause that says anything, with its type; the type alone if none does."""
    said = _type_of(exception)
    while exception is not None:
        message = exception.getMessage()
        said = _typed(_type_of(exception), _first_line(str(message))) if message else said
        exception = exception.getCause()
    return said


def _type_of(exception: Any) -> str:
    return str(exception.getClass().getName()).rpartition(".")[2]


def _typed(kind: str, message: str) -> str:
    """A message of Spark's own begins with its error class, as in ``[DIVIDE_BY_ZERO]``, which says more."""
    return message if message.startswith("[") else f"{kind}: {message}"


def _where(text: str, told: Sequence[Raised]) -> Frame | str | None:
    """The expression that failed, or its line, if Spark knows that; else the line that called Spark."""
    fragment = _SQL.search(text)
    if fragment is not None:
        return f'in "{fragment["sql"].strip()[:_LONGEST]}"'
    called = [Frame(found["file"], int(found["line"])) for found in _CALLED_FROM.finditer(text)]
    asked = [found.frame for found in reversed(told) if found.frame is not None]
    return next((frame for frame in called if frame.is_users), next(iter(asked), None))


def _batch_error(text: str) -> str | None:
    """What stopped a batch inside Spark itself, which no Python traceback tells of."""
    batch = _BATCH_FAILED.search(text)
    if batch is None:
        return None
    task = _LAST_TASK.search(batch["told"])
    return task["cause"] if task else batch["told"]


def _first_line(text: str) -> str:
    return next((line.strip().rstrip(";") for line in text.splitlines() if line.strip()), "no reason was given")
