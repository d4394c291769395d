"""From what Spark throws to what a person needs: which operator, and what it raised."""

from __future__ import annotations

import inspect

import pytest
from pyspark.errors import AnalysisException, PythonException, StreamingQueryException

from tidelock.errors import BackendUnavailable, BatchFailed, Fenced, PipelineError
from tidelock.spark.stories import Storyteller


def words(lines: object) -> object:
    return lines


def counts(words: object) -> object:
    return words


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
    assert str(story) == f"in operator {name}: ZeroDivisionError: division by zero"
    assert not story.final


def test_code_outside_of_all_operators_belongs_to_the_only_one(teller: Storyteller) -> None:
    assert teller.tell(from_worker(1), ["counts"]).operator == "counts"
    assert teller.tell(from_worker(1), ["words", "counts"]).operator is None


def test_an_error_inside_spark_is_told_in_its_own_words(teller: Storyteller) -> None:
    failure = StreamingQueryException(
        "[FOREACH_BATCH_USER_FUNCTION_ERROR] An error occurred in the user provided function in foreach batch "
        "sink. Reason: An exception was raised by the Python Proxy. Return Message: "
        "Traceback (most recent call last):\n"
        '  File "sink.py", line 109, in __call__\n'
        "tidelock.errors.BatchFailed: logs/counts: batch 0: org.apache.spark.SparkException: Job aborted due to "
        "stage failure: Task 0 in stage 2.0 failed 4 times, most recent failure: Lost task 0.3 in stage 2.0 "
        "(TID 6) (127.0.0.1 executor driver): java.io.IOException: No space left on device\n"
        "\tat java.base/java.io.FileOutputStream.writeBytes(Native Method)\n"
    )
    assert str(teller.tell(failure, ["counts"])) == "java.io.IOException: No space left on device"


def test_an_error_of_the_driver_keeps_its_type(teller: Storyteller) -> None:
    try:
        raise KeyError("no such table")
    except KeyError as error:
        assert str(teller.tell(error, ["words", "counts"])) == "KeyError: 'no such table'"


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


def in_another_process(error: str) -> str:
    """As Spark tells of an error in the process of a source, or in a worker."""
    return (
        "[STREAM_FAILED] Query terminated with exception: Error from python worker:\n"
        "Traceback (most recent call last):\n"
        '  File "redis/connection.py", line 12, in connect\n'
        "ConnectionError: refused\n\n"
        "The above exception was the direct cause of the following exception:\n\n"
        "Traceback (most recent call last):\n"
        '  File "tidelock/spark/source.py", line 229, in latestOffset\n'
        f"{error}\n SQLSTATE: XXKST"
    )


AWAY = "tidelock.errors.BackendUnavailable: file:/logs/counts: it does not answer"


@pytest.mark.parametrize(
    "failure",
    [
        BackendUnavailable("file:/logs/counts: it does not answer"),
        StreamingQueryException(in_another_process(AWAY)),
        BatchFailed(f"batch 3: org.apache.spark.SparkException: {in_another_process(AWAY)}"),
    ],
    ids=lambda failure: type(failure).__name__,
)
def test_a_store_that_is_away_is_an_outage(teller: Storyteller, failure: Exception) -> None:
    story = teller.tell(failure, ["counts"])
    assert (story.outage, story.final) == (True, False)
    assert str(story) == "BackendUnavailable: file:/logs/counts: it does not answer"


@pytest.mark.parametrize("name", ["LogCorrupt", "Fenced", "LogNotFound", "PipelineError"])
def test_own_errors_of_other_processes_are_as_final_as_here(teller: Storyteller, name: str) -> None:
    told = in_another_process(f"tidelock.errors.{name}: file:/logs/counts: look at it")
    story = teller.tell(StreamingQueryException(f"{told}\n{AWAY}"), ["counts"])
    assert (story.outage, story.final) == (False, True)
    assert str(teller.tell(StreamingQueryException(told), ["counts"])) == f"{name}: file:/logs/counts: look at it"


def test_a_store_that_is_only_spoken_of_is_no_outage(teller: Storyteller) -> None:
    assert not teller.tell(ValueError("see tidelock.errors.BackendUnavailable: what to do")).outage
