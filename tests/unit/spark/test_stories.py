"""From what Spark throws to what a person needs: which operator, and what it raised."""

from __future__ import annotations

import inspect

import pytest
from pyspark.errors import AnalysisException, PythonException

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
