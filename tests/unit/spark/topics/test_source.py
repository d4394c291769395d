from __future__ import annotations

import doctest

from tidelock.spark.topics import source as topic_source


def test_doctests() -> None:
    result = doctest.testmod(topic_source)
    assert (result.failed, result.attempted > 0) == (0, True)
