"""A store that is away for a while: it is waited for, no epoch is blamed, and every row counts once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.integration.pipelines import Bench, Rows, present
from tests.integration.streams import Place
from tests.integration.workers import away_store
from tests.waiting import eventually

import tidelock
from tidelock.errors import BackendUnavailable, BatchFailed
from tidelock.home.home import Home
from tidelock.running.run import Run
from tidelock.running.status import status

ROWS = 5
HALF = 3
EPOCHS = 2 * HALF


class Away:
    """The logs of a pipeline in a store that can be away, and the home beside it."""

    def __init__(self, place: Place) -> None:
        self.bench = Bench(place)
        self.home = place.home / "home"
        self.url = f"{away_store.AwayStore(f'away:{place.home}/logs').url}"
        self.switch = place.home / "logs" / "AWAY"

    def feed(self, first: int) -> None:
        epochs = range(first, first + HALF)
        self.bench.feed("numbers", [[{"id": e * ROWS + i, "key": i % 3} for i in range(ROWS)] for e in epochs])

    def declare(self, **care: Any) -> tuple[tidelock.Pipeline, Rows]:
        """numbers -> counts -> sink, in three segments; one failure of an epoch would set it aside."""
        pipeline = tidelock.Pipeline("away", epoch="200 milliseconds", attempts=1, on_poison="dead-letter", **care)
        self.bench.source(pipeline, "numbers")

        @pipeline.operator(mode="update", anchor=True)
        def counts(numbers: DataFrame) -> DataFrame:
            return numbers.groupBy("key").agg(F.count("*").alias("n"), F.sum("id").alias("total"))

        return pipeline, self.bench.collect(pipeline, "counts")

    def events(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in Home(self.home).events() if event["kind"] == kind]

    def comes_back(self) -> None:
        self.switch.unlink()


@pytest.fixture
def away(place: Place) -> Away:
    made = Away(place)
    made.feed(0)
    return made


@pytest.fixture
def started(away: Away) -> Iterator[list[Run]]:
    """Runs that do not outlive their test."""
    runs: list[Run] = []
    yield runs
    away.switch.unlink(missing_ok=True)
    for run in runs:
        run.stop(drain=False)
        with suppress(tidelock.TidelockError):
            run.wait(60)


def expected() -> dict[tuple[int], tuple[int, int, int]]:
    by_key: dict[int, list[int]] = {}
    for number in range(EPOCHS * ROWS):
        by_key.setdefault(number % ROWS % 3, []).append(number)
    return {(key,): (key, len(some), sum(some)) for key, some in by_key.items()}


def test_a_store_is_waited_for_and_no_epoch_is_blamed(spark: SparkSession, away: Away, started: list[Run]) -> None:
    pipeline, kept = away.declare()
    run = pipeline.start(spark, away.home, log=away.url, plan="each", last_epoch=EPOCHS - 1)
    started.append(run)
    eventually(lambda: run.status().epoch >= HALF - 1, "the first epochs are through")
    before = run.status().segments[0].log_bytes
    assert before > 0

    away.switch.touch()
    away.feed(HALF)
    eventually(lambda: len(away.events("outage")) >= 4, "segments meet the outage")
    assert run.status().segments[0].log_bytes == before, "the status tells what it last knew"
    away.comes_back()

    assert run.wait(120)
    assert present(kept, EPOCHS - 1) == expected()
    assert sorted(kept) == list(range(EPOCHS)), "every epoch was delivered"
    assert "it does not answer" in away.events("outage")[0]["text"]
    assert away.events("segment recovered")
    assert not away.events("segment failed")
    assert not away.events("set aside")
    assert not (away.home / "dead").exists()


def test_impatience_stops_the_run_and_a_later_one_goes_on(
    spark: SparkSession, away: Away, started: list[Run]
) -> None:
    pipeline, before = away.declare(outage_patience=0.1)
    run = pipeline.start(spark, away.home, log=away.url, last_epoch=EPOCHS - 1)
    started.append(run)
    eventually(lambda: run.status().epoch >= HALF - 1, "the first epochs are through")
    away.switch.touch()
    away.feed(HALF)
    with pytest.raises(BatchFailed, match=r"has waited \d+ s for a store.*patience of 0.1 s.*does not answer"):
        run.wait(120)
    assert status(Home(away.home)).state == "failed"
    assert status(Home(away.home)).segments[0].log_bytes > 0, "as it was last known"
    with pytest.raises(BackendUnavailable, match="does not answer"):
        pipeline.start(spark, away.home)

    away.comes_back()
    pipeline, after = away.declare()
    run = pipeline.start(spark, away.home, last_epoch=EPOCHS - 1)
    started.append(run)
    assert run.wait(120)
    assert present({**before, **after}, EPOCHS - 1) == expected()
    assert Counter([*before, *after]) == Counter(range(EPOCHS)), "what was finished is not done again"
    assert not (away.home / "dead").exists()
