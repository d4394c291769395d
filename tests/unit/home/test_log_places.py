"""Where logs are kept: what was asked for, what is there, what nobody said anything about."""

from __future__ import annotations

import doctest

import pytest

from tidelock.credentials import Credentials, credentials_for
from tidelock.errors import PipelineError
from tidelock.home import log_places
from tidelock.home.log_places import LogPlaces

HOME = "file:/home/logs"


def test_the_examples_in_the_docstrings_run() -> None:
    result = doctest.testmod(log_places)
    assert (result.failed, result.attempted > 0) == (0, True)


def test_one_url_is_for_all() -> None:
    assert LogPlaces.of("redis://h/0/job", HOME).url("words") == "redis://h/0/job/words"
    assert LogPlaces.of(None, HOME).url("words") == "file:/home/logs/words"


def test_logs_stay_where_they_are_each_for_itself() -> None:
    there = {"words": "redis://h/0/job/words?replicas=1", "counts": "file:/data/counts"}
    places = LogPlaces.of(None, HOME).as_recorded(there)
    assert {node: places.url(node) for node in there} == there
    assert places.url("new") == "file:/home/logs/new"


def test_a_new_log_goes_where_all_others_are() -> None:
    there = {"words": "redis://h/0/job/words?replicas=1", "counts": "redis://h/0/job/counts?replicas=1"}
    assert LogPlaces.of(None, HOME).as_recorded(there).url("new") == "redis://h/0/job/new?replicas=1"


def test_what_is_asked_for_now_comes_first() -> None:
    places = LogPlaces.of({"words": "redis://:new@h/0/job"}, HOME)
    found = places.as_recorded({"words": "redis://:old@h/0/job/words", "counts": "file:/data/counts"})
    assert (found.url("words"), found.url("counts")) == ("redis://h/0/job/words", "file:/data/counts")
    assert credentials_for(found.url("words")) == Credentials(None, "new")


@pytest.mark.parametrize(
    ("node", "told"),
    [
        ("word", r"the log of word, but there is no source or operator of that name: did you mean 'words'\?"),
        ("lines", r"the log of lines, but under this plan it has none: the logs are those of words, counts"),
    ],
)
def test_a_place_for_a_log_that_is_not_there(node: str, told: str) -> None:
    with pytest.raises(PipelineError, match=told):
        LogPlaces.of({node: HOME}, HOME).check(["lines", "words", "counts"], ["words", "counts"])


def test_a_place_for_all_is_for_whatever_there_is() -> None:
    LogPlaces.of({"*": HOME, "words": HOME}, HOME).check(["words"], ["words"])
