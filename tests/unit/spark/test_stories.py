"""From what Spark throws to what a person needs: which operator, and what it raised."""

from __future__ import annotations

import inspect

import pytest
from pyspark.errors import AnalysisException, PythonException, StreamingQueryException

from tidelock.errors import BackendUnavailable, Fenced, PipelineError
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
