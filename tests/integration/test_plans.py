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
from tests.integration.streams import Place, collect, without_empty_batches

import tidelock
from tidelock.spark.plans.plans import examine
from tidelock.spark.plans.prints import stand_in
from tidelock.topology import Traits

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
ROCKS = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


@pytest.fixture
def bench(place: Place) -> Bench:
    return Bench(place)


def test_what_is_done_to_a_table_is_neither_state_nor_event_time(bench: Bench) -> None:
    bench.feed("clicks", drawn.rows(1, random.Random(1)), drawn.SCHEMA)
    clicks, table = bench.place.input("clicks"), drawn.table(bench.place.input("clicks"))
    dated = table.withColumn("since", F.current_timestamp()).withWatermark("since", "1 second")
    counted = table.groupBy("user").agg(F.count("*").alias("n"))
    for static in (table.distinct(), counted, table.limit(1), dated, table.join(counted, "user")):
        assert examine(clicks.join(static, "user")) == Traits()
    assert examine(drawn.timed(clicks).join(table.distinct(), "user")) == Traits(watermark=True)
    assert examine(clicks.distinct()) == Traits(stateful=True)


def test_whose_watermark_leaves_an_operator(bench: Bench) -> None:
    spark = bench.place.spark
    bench.feed("clicks", drawn.rows(1, random.Random(1)), drawn.SCHEMA)
    clicks = bench.place.input("clicks")
    left, right = (stand_in(spark, drawn.timed(clicks).schema, name) for name in "lr")
    through = examine(left.union(right).repartition(2), ("l", "r"))
    assert (through.silenced, through.mute) == (set(), False)
    one = examine(drawn.remembered(left).union(right.select(drawn.COLUMNS)), ("l", "r"))
    assert (one.silenced, one.mute) == ({"l"}, False)
    inside = examine(drawn.remembered(drawn.timed(clicks)))
    assert (inside.watermark, inside.mute) == (True, True)
    behind = examine(drawn.timed(drawn.remembered(left)), ("l",))
    assert (behind.silenced, behind.mute, behind.apart) == ({"l"}, False, {"l"})
    again = examine(drawn.timed(left).union(right), ("l", "r"))
    assert (again.silenced, again.mute, again.apart) == ({"l"}, False, {"r"})
    totals = {mode: examine(running_totals(left, mode), ("l",)).silenced for mode in ("None", "ProcessingTime")}
    assert totals == {"None": set(), "ProcessingTime": {"l"}}
    near = F.expr("l.user = r.user AND l.at BETWEEN r.at AND r.at + INTERVAL 1 SECOND")
    semi = left.alias("l").join(right.alias("r"), near, "left_semi")
    assert examine(semi, ("l", "r")).silenced == set()
    assert examine(semi.select("user"), ("l", "r")).silenced == set(), "the column goes after the join"
    assert examine(drawn.best(clicks)) == Traits(grouped=True)


@pytest.mark.parametrize("plan", ["one", "each"])
def test_windows_behind_a_function_with_state_close_as_in_one_query(bench: Bench, plan: str) -> None:
    bench.feed("clicks", drawn.rows(6, random.Random(6)), drawn.SCHEMA)
    whole = drawn.windows(drawn.timed(drawn.remembered(drawn.timed(bench.place.input("clicks")))))
    with without_empty_batches(bench.place.spark):
        expected = collect(whole, bench.place.checkpoint("whole"))
    pipeline = tidelock.Pipeline("functions")
    bench.source(pipeline, "clicks", drawn.timed)

    @pipeline.operator
    def called(clicks: DataFrame) -> DataFrame:
        return drawn.remembered(clicks)

    @pipeline.operator
    def summed(called: DataFrame) -> DataFrame:
        return drawn.windows(drawn.timed(called))

    found = bench.collect(pipeline, "summed")
    bench.run_in_turn(pipeline, plan)
    assert any(expected.values()), "windows were closed"
    assert found == expected


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


def running_totals(stream: DataFrame, time_mode: str = "None") -> DataFrame:
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
        Totals(), "user string, total long", outputMode="Append", timeMode=time_mode
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
