"""What a failure means to the person who wrote the pipeline: which operator, which line, what was raised.

A failure of the user's code reaches the driver as text: the traceback of a Python worker inside an exception of
the JVM. Frames of that traceback are matched with the places where the operators' functions stand.

Tidelock's own errors come back as text in the same way, from Python workers and from the processes of sources.
Notes that nobody else can write say of which type they were (`tidelock.error_notes`).

A story is stored, shown and sent, so it tells no secret. What a failure means is judged by all its words; what is
told of them goes through `_told`, without the passwords that this process knows. Texts in the user's code may be
secrets that nobody knows: of expressions that Spark quotes they are left out. What a value of the data was is
told.
"""

from __future__ import annotations

import inspect
import re
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException

from tidelock.credentials import redacted
from tidelock.error_notes import marked_in
from tidelock.errors import (
    BackendUnavailable,
    BatchFailed,
    Fenced,
    LogCorrupt,
    PipelineError,
    PlanError,
    TidelockError,
    branch,
)
from tidelock.spark.stories.tracebacks import Frame, Raised, tracebacks

_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)')
_CALLED_FROM = re.compile(r"was called from\s+(?P<file>\S+):(?P<line>\d+)")
_SQL = re.compile(r"^== SQL .*?(?:\(line (?P<line>\d+),.*)?==\n(?P<sql>.+)$(?:\n(?P<before> *)\^)?", re.MULTILINE)
"""The line of SQL in which the expression that failed begins, and the marks below, which begin where it does."""
_HIDDEN = "'…'"
_TEXT = re.compile(
    r"(?P<name>`[^`]*`)"
    r"|/\*.*?(?:\*/|$)|--.*"
    r"|\b[rR](?:'[^']*(?:'|$)|\"[^\"]*(?:\"|$))"
    r"|(?:'(?:[^'\\]|\\.)*(?:'|\\?$))+"
    r"|(?:\"(?:[^\"\\]|\\.)*(?:\"|\\?$))+"
)
"""A text in SQL, perhaps without its end; before that, what quotes may stand in that begin none."""
_CLASS = re.compile(r"\[(?!USER_RAISED)(?P<name>[A-Z][A-Z0-9_]*)(?:\.[A-Z0-9_]+)*\] ")
"""How a message in Spark's own words begins."""
_QUOTED = re.compile(
    r"(?<![^\s(\[])\"(?P<inside>[^\"(]*(?:\(.*?\)[^\"(]*?)?)\"(?=[\s.,;:)\]]|$)|(?<![^\s(\[])\".*$"
)
"""What stands there in double quotes: an expression, perhaps without its end, a type or a setting."""
_TYPE_OR_SETTING = re.compile(
    r"(?:ARRAY|MAP|STRUCT)(?:<.*>)?|INTERVAL(?: (?:YEAR|MONTH|DAY|HOUR|MINUTE|SECOND|TO))*|VOID|VARIANT|BOOLEAN"
    r"|TINYINT|SMALLINT|(?:BIG)?INT|INTEGRAL|FLOAT|DOUBLE|NUMERIC|STRING|BINARY|DATE|TIME|TIMESTAMP(?:_NTZ)?"
    r"|(?:DECIMAL|(?:VAR)?CHAR)(?:\(\d+(?:,\d+)?\))?|spark\.[\w.]+"
)
_COLUMN = re.compile(r"(\w+)#\d")
_TOKEN = re.compile(r"(?<!')'(?P<quote>['\"])(?!'[\s.,:;]).*?(?:(?P=quote)'(?=[\s.,:;]|$)|$)")
"""A text in SQL as the place of a mistake; a quote alone may be one, too, and stays."""
_ASSERTION = re.compile(r"(?<=\[USER_RAISED_EXCEPTION\] )'.*'(?= is not true!)")
_OF_DATA = re.compile(r"SQLSTATE: (?:22|P0)\w+|^== (?:DataFrame|SQL)\b", re.MULTILINE)
"""Spark found something in the rows that an expression does not take."""
_BATCH_FAILED = re.compile(r"^tidelock\.errors\.BatchFailed: (?P<told>.+)$", re.MULTILINE)
_LAST_TASK = re.compile(r"most recent failure: .*?\(TID \d+\) \([^)]*\): (?P<cause>.+)")
_NEVER_BETTER = (PipelineError, PlanError, Fenced, LogCorrupt, AnalysisException)
_NO_ROOM = re.compile(
    r"\b(?:OSError|IOException|FileNotFoundException|FileSystemException|FSError|RocksDBException"
    r"|ArrowException|ArrowIOError): .*(?:No space left on device|Disk quota exceeded)"
    r"|\bsqlite3\.OperationalError: database or disk is full"
)
"""What a full disk is called by Python, by Java, which calls a file that it cannot make one that it cannot find,
by Arrow, by SQLite, and by the stores of Spark's state: whoever writes meets it."""
_FROM_WORKER = "from the Python worker"
_WRAPPERS = ("BatchFailed", "Py4JJavaError", "PythonException", "SparkException", "StreamingQueryException")
_CAPTURED = ("py4j.", "pyspark.errors.exceptions.captured.")
"""What only carries the words of something else: of a worker, or of the JVM."""
_LONGEST = 500
_MOST_CAUSES = 10


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
        own = _own_errors(failure, text)
        told = {type(failure), *own}
        final = any(issubclass(error, _NEVER_BETTER) for error in told)
        away = any(issubclass(error, BackendUnavailable) for error in told)
        outage = not final and (away or _NO_ROOM.search(f"{text}\n{_java_causes(failure)}") is not None)
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


def _java_causes(failure: BaseException) -> str:
    """What Java says of the causes of a query's failure: its own words leave out what kind of error each was."""
    told: list[str] = []
    cause = getattr(failure, "_cause", None)
    while cause is not None and len(told) < _MOST_CAUSES:
        told.append(str(getattr(cause, "_stackTrace", "")))
        cause = getattr(cause, "_cause", None)
    return "\n".join(told)


def _own_errors(failure: BaseException, text: str) -> dict[type[BaseException], str]:
    """Tidelock's own errors behind a failure, in other processes and in this one, each with what it said.

    Those that only wrap others, or stand for no trouble, are left out.
    """
    found = dict(marked_in(text)) | {
        branch(type(error)): _named(error) for error in reversed(list(_chain(failure)))
    }
    return {error: said for error, said in found.items() if error not in (TidelockError, BatchFailed)}


def _chain(failure: BaseException) -> Iterator[TidelockError]:
    """The Tidelock errors that a failure is and came from, the outermost first."""
    error: BaseException | None = failure
    while error is not None:
        if isinstance(error, TidelockError):
            yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def _named(error: BaseException) -> str:
    return f"{type(error).__name__}: {_first_line(str(error))}"


def _raised(failure: BaseException, text: str, own: Mapping[type[BaseException], str]) -> str:
    """What was raised, cut off where it gets too long, and behind it the place, which never is."""
    if own and not isinstance(failure, tuple(own)):
        return _told(list(own.values())[-1])  # the last of a chain is what it was translated to
    told = list(tracebacks(text))
    python = next((found for found in reversed(told) if not _carries(found)), None)
    place: Frame | str | None
    if python is not None:
        what, place = str(python), python.frame
    else:
        what, place = _java_error(failure, text), _where(text, told)
    return f"{_told(what)} ({redacted(str(place))})" if place else _told(what)


def _told(words: str) -> str:
    """As much of what was said as a story holds, without the passwords that this process knows."""
    return redacted(words)[:_LONGEST]


def _carries(found: Raised) -> bool:
    return found.type.endswith(_WRAPPERS) or found.type.startswith(_CAPTURED)


def _java_error(failure: BaseException, text: str) -> str:
    batch = _batch_error(text) if isinstance(failure, PySparkException) else None
    return _without_texts(batch, text) if batch else spark_error(failure)


def spark_error(failure: BaseException) -> str:
    """What Spark or Java says in an error, in one line, with its type where the words do not say what it is.

    It tells neither known passwords nor texts of the expressions that Spark quotes.
    """
    if isinstance(failure, Py4JJavaError):
        return redacted(_without_texts(_deepest_message(failure.java_exception), ""))
    said = str(failure)
    return redacted(_without_texts(_typed(type(failure).__name__, _first_line(said)), said))


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
        return f'in "{_fragment(fragment)}"'
    called = [Frame(found["file"], int(found["line"])) for found in _CALLED_FROM.finditer(text)]
    asked = [found.frame for found in reversed(told) if found.frame is not None]
    return next((frame for frame in called if frame.is_users), next(iter(asked), None))


def _fragment(found: re.Match[str]) -> str:
    """A line of SQL without texts, and without what may begin in the middle of one."""
    sql, before = found["sql"], found["before"]
    if found["line"] not in (None, "1") or sql.startswith("..."):  # the line is not the first, or is cut off
        head = sql if before is None else sql[: len(before)]
        sql = ("..." if {"'", '"'} & {*head} else head) + sql[len(head) :]
    return _told(_TEXT.sub(lambda text: text["name"] or _HIDDEN, sql).strip())


def _without_texts(said: str, text: str) -> str:
    """A message without the texts of the expressions that Spark quotes in it: it writes them like columns.

    The names of columns that ``text``, the whole of what was said, knows as such may stand for themselves.
    """
    known = _CLASS.search(said)
    if known is None:
        return _ASSERTION.sub(_HIDDEN, said)
    if known["name"] == "PARSE_SYNTAX_ERROR":
        said = _TOKEN.sub(_HIDDEN, said)
    columns = {*_COLUMN.findall(text)}
    return _QUOTED.sub(lambda quoted: _without_operands(quoted, columns), said)


def _without_operands(quoted: re.Match[str], columns: Set[str]) -> str:
    """An expression without what is in it, but with its name if it is a call."""
    inside = quoted["inside"]
    if inside is not None and (inside in columns or _TYPE_OR_SETTING.fullmatch(inside)):
        return quoted[0]
    name, call, _ = (quoted[0][1:] if inside is None else inside).partition("(")
    return f'"{name}(…)"' if call else '"…"'


def _batch_error(text: str) -> str | None:
    """What stopped a batch inside Spark itself, which no Python traceback tells of."""
    batch = _BATCH_FAILED.search(text)
    if batch is None:
        return None
    task = _LAST_TASK.search(batch["told"])
    return task["cause"] if task else batch["told"]


def _first_line(text: str) -> str:
    return next((line.strip().rstrip(";") for line in text.splitlines() if line.strip()), "no reason was given")
