"""URLs of logs."""

from __future__ import annotations

import doctest

import pytest

from tidelock.errors import PipelineError
from tidelock.log import open_store, store


def test_the_examples_in_the_docstrings_run() -> None:
    result = doctest.testmod(store)
    assert (result.failed, result.attempted > 0) == (0, True)


def test_a_scheme_that_nobody_answers_for() -> None:
    with pytest.raises(PipelineError, match=r"must be one of .*file:, kafka:, kafkas:, redis:, rediss:"):
        open_store("gopher://host/log")
