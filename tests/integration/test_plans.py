"""A plan never changes results: one segment, one per operator, and anything between give the same rows."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor
from tests.integration import random_pipelines as drawn
from tests.integration.pipelines import Bench, appended, present
from tests.integration.streams import Place

import tidelock

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
ROCKS = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


@pytest.fixture
def bench(place: Place) -> Bench:
    return Bench(place)


@pytest.mark.chaos
def test_filters_duplicates_and_windows(bench: Bench) -> None:
    bench.feed("clicks", drawn.rows(6, random.Random(1)), drawn.SCHEMA)
    by_hand = {
        "segments": [
            {"operators": ["clicks", "timed"]},
            {"operators": ["large", "once", "sums"]},
            {"operators": ["wide", "keep_wide"]},
        ]
    }
    found = []
    for plan in ("one", "each", by_hand):
        pipeline = tidelock.Pipeline("windows")
        bench.source(pipeline, "clicks")

        @pipeline.operator
        def timed(clicks: DataFrame) -> DataFrame:
            return clicks.withWatermark("at", "5 seconds")

        @pipeline.operator
        def large(timed: DataFrame) -> DataFrame:
            return timed.where("amount >= 20")  # in one query Spark would move this below the watermark

        @pipeline.operator
        def once(large: DataFrame) -> DataFrame:
            return large.dropDuplicatesWithinWatermark(drawn.COLUMNS)

        @pipeline.operator
        def sums(once: DataFrame) -> DataFrame:
            return once.groupBy(F.window("at", "20 seconds"), "user").agg(F.sum("amount").alias("amount"))

        @pipeline.operator
        def wide(sums: DataFrame) -> DataFrame:
            longer = sums.groupBy(F.window("window", "40 seconds")).agg(F.sum("amount").alias("amount"))
            return longer.select(F.col("window.start").alias("start"), "amount")

        found.append(bench.collect(pipeline, "wide"))
        bench.run_in_turn(pipeline, plan)
    assert any(found[0].values()), "windows were closed"
    assert found[0] == found[1] == found[2]


def test_state_before_a_join_with_another_watermark(bench: Bench) -> None:
    """In one Spark query the first operator's windows would wait for the other stream's watermark."""
    bench.feed("clicks", drawn.rows(5, random.Random(2)), drawn.SCHEMA)
    slow = [[{**row, "at": drawn.START} for row in epoch] for epoch in drawn.rows(5, random.Random(3))]
    bench.feed("views", slow, drawn.SCHEMA)
    found = []
    for plan in ("one", "each"):
        pipeline = tidelock.Pipeline("joins")
        bench.source(pipeline, "clicks")
        bench.source(pipeline, "views")

        @pipeline.operator
        def summed(clicks: DataFrame) -> DataFrame:
            return drawn.windows(drawn.timed(clicks))

        @pipeline.operator
        def viewed(views: DataFrame) -> DataFrame:
            return drawn.timed(views)

        @pipeline.operator
        def both(summed: DataFrame, viewed: DataFrame) -> DataFrame:
            return drawn.merged(summed, viewed)

        found.append(bench.collect(pipeline, "both"))
        bench.run_in_turn(pipeline, plan)
    closed = [row for rows in found[0].values() for row in rows if row[3].second == 59 or row[3].microsecond]
    assert closed, "windows were closed although the other stream's time stands still"
    assert found[0] == found[1]


def test_several_epochs_per_batch_copies_and_updates(bench: Bench) -> None:
    bench.feed("clicks", drawn.rows(6, random.Random(4)), drawn.SCHEMA)
    plans: list[Any] = [
        "one",
        {
            "segments": [
                {"operators": ["clicks"]},
                {"operators": ["kept", "counts", "keep_counts"], "epochs_per_batch": 2},
                {"operators": ["moved", "keep_moved"], "epochs_per_batch": 3},
            ],
            "copies": ["kept"],
        },
    ]
    found = []
    for plan in plans:
        pipeline = tidelock.Pipeline("split")
        bench.source(pipeline, "clicks")

        @pipeline.operator
        def kept(clicks: DataFrame) -> DataFrame:
            return drawn.keep(clicks)

        @pipeline.operator(mode="update")
        def counts(kept: DataFrame) -> DataFrame:
            return drawn.counted(kept)

        @pipeline.operator
        def moved(kept: DataFrame) -> DataFrame:
            return drawn.shift(kept)

        found.append((bench.collect(pipeline, "counts"), bench.collect(pipeline, "moved")))
        bench.run_in_turn(pipeline, plan)
    (counts_one, moved_one), (counts_two, moved_two) = found
    assert sorted(counts_two) == [1, 3, 5]
    assert sorted(moved_two) == [2, 5]
    assert all(present(counts_one, epoch) == present(counts_two, epoch) for epoch in counts_two)
    assert all(appended(moved_one, epoch) == appended(moved_two, epoch) for epoch in moved_two)


def running_totals(stream: DataFrame) -> DataFrame:
    """Every user's total after each of its epochs, kept by a function of the user's."""

    class Totals(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self._total = handle.getValueState("total", "total long")

        def handleInputRows(self, key: Any, rows: Any, timers: Any) -> Iterator[Any]:
            import pandas as pd

            before = self._total.get()[0] if self._total.exists() else 0
            total = before + sum(int(some["amount"].sum()) for some in rows)
            self._total.update((total,))
            yield pd.DataFrame({"user": [key[0]], "total": [total]})

        def close(self) -> None:
            pass

    return stream.groupBy("user").transformWithStateInPandas(
        Totals(), "user string, total long", outputMode="Append", timeMode="None"
    )


def test_functions_with_state(bench: Bench) -> None:
    spark = bench.place.spark
    bench.feed("clicks", drawn.rows(4, random.Random(5)), drawn.SCHEMA)
    found = []
    spark.conf.set(PROVIDER, ROCKS)
    try:
        for plan in ("one", "each"):
            pipeline = tidelock.Pipeline("totals")
            bench.source(pipeline, "clicks")

            @pipeline.operator
            def kept(clicks: DataFrame) -> DataFrame:
                return drawn.keep(clicks)

            @pipeline.operator
            def totals(kept: DataFrame) -> DataFrame:
                return running_totals(kept)

            found.append(bench.collect(pipeline, "totals"))
            bench.run_in_turn(pipeline, plan)
    finally:
        spark.conf.unset(PROVIDER)
    expected: dict[str, int] = {}
    for row in (row for epoch in drawn.rows(4, random.Random(5)) for row in epoch if row["amount"] % 4 != 1):
        expected[row["user"]] = expected.get(row["user"], 0) + row["amount"]
    assert {row[0]: row[1] for rows in found[0].values() for row in rows} == expected
    assert found[0] == found[1]


def test_a_sorted_operator_feeds_a_function(bench: Bench) -> None:
    bench.feed("clicks", drawn.rows(2, random.Random(6)), drawn.SCHEMA)
    pipeline = tidelock.Pipeline("top")
    bench.source(pipeline, "clicks")

    @pipeline.operator(mode="complete")
    def top(clicks: DataFrame) -> DataFrame:
        largest = clicks.groupBy("user").max("amount").toDF("user", "largest")
        return largest.orderBy(F.desc("largest"), "user").limit(2)

    kept = bench.collect(pipeline, "top")
    bench.run_in_turn(pipeline, "one")
    fed = [row for epoch in drawn.rows(2, random.Random(6)) for row in epoch]
    largest = {row["user"]: max(r["amount"] for r in fed if r["user"] == row["user"]) for row in fed}
    expected = sorted(largest.items(), key=lambda pair: (-pair[1], pair[0]))[:2]
    assert kept[1] == sorted(expected, key=repr)
