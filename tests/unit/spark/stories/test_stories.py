"""From what Spark throws to what a person needs: which operator, and what it raised."""

from __future__ import annotations

import doctest
import inspect
import pickle
import sysconfig
import traceback

import pytest
from pyspark.errors import (
    AnalysisException,
    ArithmeticException,
    NumberFormatException,
    PySparkException,
    PythonException,
    StreamingQueryException,
)

from tidelock import errors
from tidelock.credentials import taken
from tidelock.error_notes import NAME, WORD, listen
from tidelock.errors import (
    BackendUnavailable,
    BatchFailed,
    Fenced,
    LogCorrupt,
    LogNotFound,
    PipelineError,
    TidelockError,
)
from tidelock.spark.stories import tracebacks
from tidelock.spark.stories.stories import Storyteller, spark_error


def test_doctests() -> None:
    assert doctest.testmod(tracebacks).failed == 0


def words(lines: object) -> object:
    return lines


def counts(words: object) -> object:
    return words


def captured(kind: type[PySparkException], text: str) -> PySparkException:
    """An error of the JVM, as PySpark hands it on in the driver."""
    return type(kind.__name__, (kind,), {"__module__": "pyspark.errors.exceptions.captured"})(text)


def raised_here(error: Exception) -> Exception:
    """The error as it is after it was raised: with the line of this file."""
    try:
        raise error
    except type(error) as raised:
        return raised


RAISED_HERE = f"(test_stories.py, line {inspect.getsourcelines(raised_here)[1] + 3}, in raised_here)"


def from_worker(line: int) -> PythonException:
    """As Spark tells of an error in a Python worker."""
    return PythonException(
        "An exception was thrown from the Python worker:\n"
        "Traceback (most recent call last):\n"
        f'  File "{__file__}", line {line}, in <lambda>\n'
        "ZeroDivisionError: division by zero\n"
    )


@pytest.fixture
def teller() -> Storyteller:
    return Storyteller({"words": words, "counts": counts})


def line_of(function: object) -> int:
    return inspect.getsourcelines(function)[1] + 1  # type: ignore[arg-type]


@pytest.mark.parametrize("function", [words, counts])
def test_the_operator_is_found_by_the_line_that_failed(teller: Storyteller, function: object) -> None:
    story = teller.tell(from_worker(line_of(function)), ["words", "counts"])
    name = function.__name__  # type: ignore[attr-defined]
    frame = f"test_stories.py, line {line_of(function)}, in <lambda>"
    assert str(story) == f"in operator {name}: ZeroDivisionError: division by zero ({frame})"
    assert not story.final


def test_code_outside_of_all_operators_belongs_to_the_only_one(teller: Storyteller) -> None:
    assert teller.tell(from_worker(1), ["counts"]).operator == "counts"
    several = teller.tell(from_worker(1), ["words", "counts"])
    assert several.operator is None
    assert str(several).startswith("in one of words, counts: ZeroDivisionError: division by zero (test_stories.py")


def in_worker(*lines: str) -> PythonException:
    """What a Python worker says, inside what Spark says."""
    inside = "\n".join(lines)
    return PythonException(f"An exception was thrown from the Python worker:\n{inside}\nSQLSTATE: 38000")


def test_any_error_of_a_worker_is_told_whatever_its_name_is(teller: Storyteller) -> None:
    told = in_worker(
        "Traceback (most recent call last):",
        f'  File "{sysconfig.get_path("purelib")}/pyspark/worker.py", line 9, in main',
        '  File "/home/me/jobs/checks.py", line 7, in check',
        "    raise Nope(",
        "checks.check.<locals>.Nope: not",
        "at all",
    )
    assert str(teller.tell(told, ["counts"])) == "in operator counts: Nope: not (checks.py, line 7, in check)"


def test_spark_s_own_error_in_a_worker_is_told(teller: Storyteller) -> None:
    told = in_worker(
        "Traceback (most recent call last):",
        '  File "/x/site-packages/pyspark/worker.py", line 9, in main',
        "pyspark.errors.exceptions.base.PySparkRuntimeError: [RESULT_COLUMN_NAMES_MISMATCH] Missing: t.",
    )
    assert str(teller.tell(told, ["counts"])) == (
        "in operator counts: PySparkRuntimeError: [RESULT_COLUMN_NAMES_MISMATCH] Missing: t."
    )


def test_the_last_error_of_a_chain_is_told(teller: Storyteller) -> None:
    told = in_worker(
        "Traceback (most recent call last):",
        '  File "/home/me/a.py", line 1, in read',
        "KeyError: 'x'",
        "",
        "The above exception was the direct cause of the following exception:",
        "",
        "Traceback (most recent call last):",
        '  File "/home/me/a.py", line 3, in read',
        "LookupError: no x here",
    )
    assert teller.tell(told, []).raised == "LookupError: no x here (a.py, line 3, in read)"


@pytest.mark.parametrize(
    ("context", "told"),
    [
        (f'== DataFrame ==\n"cast" was called from\n{__file__}:1\n', "test_stories.py, line 1"),
        ("== SQL (line 1, position 1) ==\ncast(s as long) as n\n^^^^^^^^^^^^^^^\n", 'in "cast(s as long) as n"'),
    ],
)
def test_a_value_that_an_expression_does_not_take(teller: Storyteller, context: str, told: str) -> None:
    failure = NumberFormatException(
        f"[CAST_INVALID_INPUT] The value 'x1' is malformed. SQLSTATE: 22018\n{context}"
    )
    assert str(teller.tell(failure, ["words", "counts"])) == (
        f"in one of words, counts: [CAST_INVALID_INPUT] The value 'x1' is malformed. SQLSTATE: 22018 ({told})"
    )


def test_an_error_inside_spark_is_told_in_its_own_words(teller: Storyteller) -> None:
    failure = StreamingQueryException(
        "[FOREACH_BATCH_USER_FUNCTION_ERROR] An error occurred in the user provided function in foreach batch "
        "sink. Reason: An exception was raised by the Python Proxy. Return Message: "
        "Traceback (most recent call last):\n"
        f'  File "{errors.__file__}", line 109, in __call__\n'
        "tidelock.errors.BatchFailed: logs/counts: batch 0: org.apache.spark.SparkException: Job aborted due to "
        "stage failure: Task 0 in stage 2.0 failed 4 times, most recent failure: Lost task 0.3 in stage 2.0 "
        "(TID 6) (127.0.0.1 executor driver): java.io.IOException: No space left on device\n"
        "\tat java.base/java.io.FileOutputStream.writeBytes(Native Method)\n"
    )
    assert str(teller.tell(failure, ["counts"])) == "java.io.IOException: No space left on device"


@pytest.mark.parametrize(
    "told",
    [
        "java.io.FileNotFoundException: /state/0/1.delta (No space left on device)",
        "java.io.FileNotFoundException: /state/0/1.delta (Disk quota exceeded)",
        "java.io.IOException: No space left on device",
        "pyarrow.lib.ArrowException: Unknown error: No space left on device",
        "sqlite3.OperationalError: database or disk is full",
        "OSError: [Errno 122] Disk quota exceeded: '/home'",
    ],
)
def test_a_full_disk_is_an_outage_whoever_meets_it(teller: Storyteller, told: str) -> None:
    failure = StreamingQueryException(f"Job aborted due to stage failure: Lost task 0.3 (TID 6) (host): {told}\n")
    assert teller.tell(failure, ["counts"]).outage


def test_what_a_user_says_of_disks_is_no_outage(teller: Storyteller) -> None:
    assert not teller.tell(ValueError("the letter says: No space left on device"), ["counts"]).outage


def test_an_error_of_the_driver_keeps_its_type(teller: Storyteller) -> None:
    try:
        raise KeyError("no such table")
    except KeyError as error:
        told = str(teller.tell(error, ["words", "counts"]))
        assert told.startswith("KeyError: 'no such table' (test_stories.py, line ")


@pytest.mark.parametrize(
    ("failure", "final"),
    [
        (PipelineError("wrong"), True),
        (Fenced("another run"), True),
        (AnalysisException("no such column"), True),
        (BackendUnavailable("no room"), False),
        (ValueError("chance"), False),
    ],
)
def test_some_failures_never_get_better(teller: Storyteller, failure: Exception, final: bool) -> None:
    assert teller.tell(failure).final is final


def test_an_error_of_spark_in_the_driver_has_the_line_that_asked_for_it(teller: Storyteller) -> None:
    """A long message is cut off, and never the line behind it."""
    told = "[UNRESOLVED_COLUMN] No column `n`: " + "`a`, " * 200
    error = str(teller.tell(raised_here(captured(AnalysisException, f"{told};\n'Project ['n]\n")), ["counts"]))
    assert error.startswith("[UNRESOLVED_COLUMN] No column `n`: `a`, ")
    assert error.endswith(RAISED_HERE)
    assert "Project" not in error


def test_an_error_without_a_class_of_spark_s_has_its_type(teller: Storyteller) -> None:
    error = str(teller.tell(raised_here(captured(NumberFormatException, 'For input string: "xx"')), ["counts"]))
    assert error == f'NumberFormatException: For input string: "xx" {RAISED_HERE}'


def test_what_an_expression_does_not_take_is_told_before_the_line_that_asked_for_it(teller: Storyteller) -> None:
    text = f'[DIVIDE_BY_ZERO] Division by zero.\n== DataFrame ==\n"divide" was called from\n{__file__}:1\n'
    assert str(teller.tell(raised_here(captured(ArithmeticException, text)), ["counts"])).endswith(
        "[DIVIDE_BY_ZERO] Division by zero. (test_stories.py, line 1)"
    )


def marked(error: TidelockError) -> TidelockError:
    error.mark(WORD)
    return error


def in_another_process(error: TidelockError) -> str:
    """As Spark tells of an error in the process of a source, or in a worker."""
    return (
        "[STREAM_FAILED] Query terminated with exception: Error from python worker:\n"
        "Traceback (most recent call last):\n"
        '  File "redis/connection.py", line 12, in connect\n'
        "ConnectionError: refused\n\n"
        "The above exception was the direct cause of the following exception:\n\n"
        "Traceback (most recent call last):\n"
        '  File "tidelock/spark/connector/source.py", line 229, in latestOffset\n'
        f"{''.join(traceback.format_exception_only(marked(error)))} SQLSTATE: XXKST"
    )


class ShelfAway(BackendUnavailable):
    """As a store of another package may say that it is away."""


AWAY = "file:/logs/counts: it does not answer"


@pytest.mark.parametrize("kind", [BackendUnavailable, ShelfAway])
@pytest.mark.parametrize("wrapped", [False, True])
def test_a_store_that_is_away_is_an_outage(
    teller: Storyteller, kind: type[BackendUnavailable], wrapped: bool
) -> None:
    told = in_another_process(kind(AWAY))
    failures = [
        kind(AWAY),
        StreamingQueryException(told),
        BatchFailed(f"batch 3: org.apache.spark.SparkException: {told}"),
    ]
    for failure in [chained(failure) for failure in failures] if wrapped else failures:
        story = teller.tell(failure, ["counts"])
        assert (story.outage, story.final) == (True, False)
        assert str(story) == f"{kind.__name__}: {AWAY}"


def chained(cause: Exception) -> Exception:
    """An error that was raised because of another."""
    failure = BatchFailed("batch 3")
    failure.__cause__ = cause
    return failure


@pytest.mark.parametrize("kind", [LogCorrupt, Fenced, LogNotFound, PipelineError])
def test_own_errors_of_other_processes_are_as_final_as_here(
    teller: Storyteller, kind: type[TidelockError]
) -> None:
    told = in_another_process(kind("file:/logs/counts: look at it"))
    story = teller.tell(
        StreamingQueryException(f"{told}\n{in_another_process(BackendUnavailable(AWAY))}"), ["counts"]
    )
    assert (story.outage, story.final) == (False, True)
    alone = teller.tell(StreamingQueryException(told), ["counts"])
    assert str(alone) == f"{kind.__name__}: file:/logs/counts: look at it"


@pytest.mark.parametrize(
    "words",
    [
        "see tidelock.errors.BackendUnavailable: what to do",
        "a row of the data:\ntidelock.errors.BackendUnavailable: it is away",
        'a row of the data:\n[tidelock 0123456789abcdef] ["BackendUnavailable", "it is away"]',
    ],
)
def test_a_store_that_is_only_spoken_of_is_no_outage(teller: Storyteller, words: str) -> None:
    assert not teller.tell(ValueError(words)).outage


def test_a_note_counts_whatever_stands_beside_it(teller: Storyteller) -> None:
    away = BackendUnavailable(AWAY)
    away.add_note("said by somebody else")
    told = "".join(traceback.format_exception_only(marked(marked(away)))).rstrip("\n")
    assert told.count(WORD) == 1
    assert teller.tell(StreamingQueryException(f"{told} SQLSTATE: XXKST"), ["counts"]).outage


def test_the_processes_of_spark_mark_errors_by_themselves(
    teller: Storyteller, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not hasattr(BackendUnavailable(AWAY), "__notes__")
    monkeypatch.setenv(NAME, WORD)
    monkeypatch.setattr(TidelockError, "word", None)
    listen()
    told = "".join(traceback.format_exception_only(raised_here(ShelfAway(AWAY))))
    assert teller.tell(StreamingQueryException(told)).outage
    assert pickle.loads(pickle.dumps(ShelfAway(AWAY))).args == (AWAY,)


# -- secrets

PASSWORD = "w0rd-of-me"


@pytest.fixture
def known() -> None:
    """A password that this process knows."""
    taken(f"redis://me:{PASSWORD}@h/0/x")


@pytest.mark.usefixtures("known")
@pytest.mark.parametrize(
    "failure",
    [
        raised_here(ValueError(f"no answer from redis://me:{PASSWORD}@h")),
        in_worker("Traceback (most recent call last):", '  File "/a.py", line 1, in f', f"KeyError: '{PASSWORD}'"),
        StreamingQueryException(in_another_process(BackendUnavailable(f"{AWAY} ({PASSWORD})"))),
        captured(AnalysisException, f"[TABLE_OR_VIEW_NOT_FOUND] `{PASSWORD}`"),
        StreamingQueryException(f"tidelock.errors.BatchFailed: x: batch 3: java.io.IOException: {PASSWORD}"),
        NumberFormatException(f"[CAST_INVALID_INPUT] no\n== SQL (line 1, position 1) ==\nf({PASSWORD})\n^^\n"),
        # Cut off, where it is too long, after it was taken out: no half of one stays.
        ValueError(f"{'x' * (500 - len(PASSWORD) - 7)}{PASSWORD}"),
    ],
    ids=lambda failure: type(failure).__name__,
)
def test_a_story_tells_no_password_that_is_known(teller: Storyteller, failure: Exception) -> None:
    story = teller.tell(failure, ["counts"])
    assert "w0rd" not in str(story)
    assert "***" in story.raised
    assert "w0rd" not in spark_error(failure)


def test_a_password_that_is_a_usual_word_spoils_no_judgement(teller: Storyteller) -> None:
    for word in ("tests", "tidelock", "errors", "redis", "Traceback"):
        taken(f"redis://{word}:{word}@h/0/x")
    assert teller.tell(from_worker(line_of(words)), ["words", "counts"]).operator == "words"
    story = teller.tell(StreamingQueryException(in_another_process(BackendUnavailable(AWAY))), ["counts"])
    assert (story.outage, story.final) == (True, False)


def failed_in(sql: str, marks: str, *, line: int = 1) -> NumberFormatException:
    """As Spark tells of an expression that does not take a value: the line in which it stands, and marks below."""
    said = "[CAST_INVALID_INPUT] The value 'x1' is malformed. SQLSTATE: 22018"
    return NumberFormatException(f"{said}\n== SQL (line {line}, position 69) ==\n{sql}\n{marks}\n")


@pytest.mark.parametrize(
    ("sql", "told"),
    [
        ("aes_decrypt(payload, 'w0rd-of-me')", "aes_decrypt(payload, '…')"),
        ("f(\"w0rd\", cast(s as int), 'w0rd') + 1", "f('…', cast(s as int), '…') + 1"),
        (r"f('w0\'rd', 'w0rd\\', s)", "f('…', '…', s)"),
        ("f('w0''rd', s)", "f('…', s)"),
        (r"""f(r'\', 'w0rd', R"w\", s)""", "f('…', '…', '…', s)"),
        ("f(s, 'w0rd", "f(s, '…'"),
        ("f(s, 'w0rd\\", "f(s, '…'"),
        ("f(`it's`, 'w0rd', s)", "f(`it's`, '…', s)"),
        ("f(s /* it's */, 'w0rd')", "f(s '…', '…')"),
        ("f(s, -- don't 'w0rd'", "f(s, '…'"),
        ("f(payload, x'77307264') and tr'w0rd'", "f(payload, x'…') and tr'…'"),
        ("cast(s as int) + a.b - 5 > n", "cast(s as int) + a.b - 5 > n"),
    ],
)
def test_texts_of_a_failing_expression_are_hidden_and_the_rest_stays(
    teller: Storyteller, sql: str, told: str
) -> None:
    assert str(teller.tell(failed_in(sql, "^^^"), ["counts"])).endswith(f'(in "{told}")')


@pytest.mark.parametrize(
    ("sql", "line", "told"),
    [
        # Spark cuts off what is far away, perhaps in the middle of a text ...
        ("...w0rd', cast(s as int), 'w0rd-of...", 1, "...cast(s as int), '…'"),
        # ... and a text may go over several lines.
        ("w0rd', cast(s as int), 'w0rd", 2, "...cast(s as int), '…'"),
        ("f('w0rd', cast(s as int), 'w0rd", 1, "f('…', cast(s as int), '…'"),
        ("+ a.b - cast(s as int), 'w0rd", 2, "+ a.b - cast(s as int), '…'"),
    ],
)
def test_of_what_may_begin_inside_a_text_only_the_failing_expression_is_told(
    teller: Storyteller, sql: str, line: int, told: str
) -> None:
    failure = failed_in(sql, " " * sql.index("cast") + "^" * len("cast(s as int)"), line=line)
    assert str(teller.tell(failure, ["counts"])).endswith(f'(in "{told}")')


def test_of_what_may_begin_anywhere_nothing_is_told(teller: Storyteller) -> None:
    assert str(teller.tell(failed_in("...w0rd', s", "no marks"), ["counts"])).endswith('(in "...")')


MISMATCH = "due to data type mismatch: The first parameter requires the"


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            f'[DATATYPE_MISMATCH.X] Cannot resolve "SQRT(f(w0rd))" {MISMATCH} "DOUBLE" type, however "w0rd" has '
            'the type "ARRAY<STRING>". SQLSTATE: 42K09;\n\'Project [f(w0rd)]\n+- LogicalRDD [s#0], false',
            f'[DATATYPE_MISMATCH.X] Cannot resolve "SQRT(…)" {MISMATCH} "DOUBLE" type, however "…" has the type '
            '"ARRAY<STRING>". SQLSTATE: 42K09',
        ),
        (
            '[X] No "(n + array(w0rd))" ("DECIMAL(10,2)" and "INTERVAL DAY TO SECOND"). See "spark.sql.x"',
            '[X] No "(…)" ("DECIMAL(10,2)" and "INTERVAL DAY TO SECOND"). See "spark.sql.x"',
        ),
        ('[X.Y] The condition "f(a"w0rd" b, w0rd)" is none.', '[X.Y] The condition "f(…)" is none.'),
        ('[X] The condition "f(top\nw0rd)" is none.', '[X] The condition "f(…)"'),
        ('[X] Can\'t extract a value from "f(w0rd)[0]".', '[X] Can\'t extract a value from "f(…)".'),
        ('[X] The expression "n" is none;\nAggregate [n#2L]', '[X] The expression "n" is none'),
        ('[X] The expression "n" is none;\nAggregate [x#2L]', '[X] The expression "…" is none'),
        (
            "[PARSE_SYNTAX_ERROR] Syntax error at or near ''w0rd'': extra input '\"w0rd\"'. (line 1, pos 8)",
            "[PARSE_SYNTAX_ERROR] Syntax error at or near '…': extra input '…'. (line 1, pos 8)",
        ),
        (
            "[PARSE_SYNTAX_ERROR] Syntax error at or near '''. (line 1, pos 8)",
            "[PARSE_SYNTAX_ERROR] Syntax error at or near '''. (line 1, pos 8)",
        ),
        ("[PARSE_SYNTAX_ERROR] Error at or near ''top\nw0rd''.", "[PARSE_SYNTAX_ERROR] Error at or near '…'"),
        ("[USER_RAISED_EXCEPTION] '(s = w0rd)' is not true! P0", "[USER_RAISED_EXCEPTION] '…' is not true! P0"),
        ('[USER_RAISED_EXCEPTION] no "x" here', '[USER_RAISED_EXCEPTION] no "x" here'),
        ("[CAST_INVALID_INPUT] No 'x' of the \"STRING\"", "[CAST_INVALID_INPUT] No 'x' of the \"STRING\""),
    ],
)
def test_expressions_that_spark_quotes_are_told_without_what_is_in_them(
    teller: Storyteller, said: str, told: str
) -> None:
    failure = captured(AnalysisException, said)
    assert teller.tell(failure, ["counts"]).raised == spark_error(failure) == told


def test_expressions_that_spark_quotes_inside_a_batch_are_told_so_too(teller: Storyteller) -> None:
    said = 'tidelock.errors.BatchFailed: x: batch 3: org.apache.spark.SparkException: [X] No "f(w0rd)" here.'
    told = teller.tell(StreamingQueryException(said), ["counts"]).raised
    assert told == 'x: batch 3: org.apache.spark.SparkException: [X] No "f(…)" here.'
