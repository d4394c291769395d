"""A power cut tears the files that Spark has written last: the pipeline goes on, and every row counts once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.integration.streams import Place
from tests.integration.test_lost_logs import Sums

import tidelock
from tidelock.home.home import Home
from tidelock.spark.checkpoint.checkpoint import Checkpoint

pytestmark = pytest.mark.chaos  # `test_mending_checkpoints.py` has the rules, without Spark

LAYERS = {"numbers": 2, "sums": 3, "sums_files": 3}
"""How many files of each segment can be torn: who reads a log knows which epochs it takes, a source does not."""


@pytest.fixture
def sums(place: Place) -> Iterator[Sums]:
    made = Sums(place)
    made.feed(3)
    yield made
    for run in made.runs:
        run.stop(drain=False)
        with suppress(tidelock.TidelockError):
            run.wait(60)


def tear(home: Path, layers: int) -> int:
    """Begin another batch of every segment, and tear the files that were written last; how many."""
    torn = 0
    for segment, most in LAYERS.items():
        checkpoint = Checkpoint(None, Home(home).checkpoint(segment))
        folder = Path(checkpoint.location)
        newest = checkpoint.newest_begun()
        assert checkpoint.is_committed(newest)
        (folder / "offsets" / str(newest + 1)).touch()
        for name in [f"commits/{newest}", f"offsets/{newest}"][: min(layers, most) - 1]:
            (folder / name).write_bytes(b"")
        torn += min(layers, most)
    return torn


def test_torn_files_of_all_segments_at_once(sums: Sums) -> None:
    sums.run()
    for layers in (2, 3):
        torn, before = tear(sums.home, layers), len(Home(sums.home).events())
        sums.feed(1)
        sums.run()
        kinds = [event["kind"] for event in Home(sums.home).events()[before:]]
        assert kinds.count("torn file removed") == torn
        assert not {"segment failed", "logs lost"}.intersection(kinds)
