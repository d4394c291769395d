"""Logs of earlier releases are read by these names."""

from __future__ import annotations

import doctest

from tidelock.epochs import Epoch, EpochRange
from tidelock.log import documents


def test_the_examples_in_the_docstrings_run() -> None:
    result = doctest.testmod(documents)
    assert (result.failed, result.attempted > 0) == (0, True)


def test_names_stay_what_they_are() -> None:
    covers = EpochRange(Epoch(5), Epoch(7))
    assert (documents.HEADER, documents.LEASE, documents.RECALLS, documents.BEGINNING) == (
        "log",
        "lease",
        "recalls",
        "beginning",
    )
    assert documents.cursor_name("counts") == "cursor/counts"
    assert documents.aside_name("counts", covers) == "aside/counts-5-7"
    assert documents.round_name("counts") == "round/counts"
    assert documents.combined_name("words") == "combined/words"
    assert documents.meeting_name(documents.meeting_prefix("ab"), 7) == "meeting/ab-000000000007"
