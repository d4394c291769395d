"""Intervals without Spark; that Spark reads the same ones is tested with the planner's commands."""

import doctest

import pytest

from tidelock import intervals
from tidelock.errors import PipelineError
from tidelock.intervals import interval_seconds


def test_doctests() -> None:
    assert doctest.testmod(intervals).failed == 0


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1 second", 1.0),
        (" 2  SECONDS ", 2.0),
        ("interval 1 hour -1 minute", 3540.0),
        ("1.5 seconds", 1.5),
        (".25 seconds", 0.25),
        ("1 month", 31 * 86_400.0),
        ("7 microseconds", 7e-6),
    ],
)
def test_what_is_an_interval(text: str, seconds: float) -> None:
    assert interval_seconds(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "second", "1", "1 fortnight", "1.5 minutes", "1second", "one second", "1 second,", "9e9 days"]
)
def test_what_is_none(text: str) -> None:
    with pytest.raises(PipelineError, match=r"is not an interval: write a number and a unit"):
        interval_seconds(text)


@pytest.mark.parametrize("text", ["0 seconds", "-3 seconds", "1 second -1 second", "0.0000001 seconds"])
def test_an_epoch_takes_time(text: str) -> None:
    with pytest.raises(PipelineError, match=r"wait_at_most='.*' is not longer than nothing"):
        interval_seconds(text, "wait_at_most")
