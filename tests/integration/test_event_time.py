"""Cutting a query in two does not change which records are late, nor when a window is done.

Every test computes the same thing twice over the same epochs: as one plain Spark query, and cut by logs into
several. The results are compared epoch by epoch. Both run without empty batches, as everything that writes a log.
"""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from tests.integration.streams import Place, collect, without_empty_batches

import tidelock
from tidelock.errors import PipelineError
from tidelock.spark.connector import watermark
from tidelock.spark.query import queries

ZERO = datetime(2024, 1, 1, tzinfo=UTC)
EPOCHS = 12


def events(seed: int, epochs: int = EPOCHS) -> list[list[dict[str, Any]]]:
    """Epochs of 20 seconds each whose events are up to a minute late; the last one opens all windows."""
    rng = random.Random(seed)
    made = []
    for epoch in range(epochs):
        seconds = [epoch * 20 + 20 * rng.random() - rng.choice([0, 0, 0, 30, 60]) for _ in range(12)]
        rows = enumerate(seconds)
        made.append([{"ts": ZERO + timedelta(seconds=s), "k": rng.randint(0, 3), "v": i} for i, s in rows])
    return made


@pytest.fixture
def fed(place: Place) -> Place:
    place.feed("events", events(1))
    place.feed("others", events(2))
    return place


def marked(stream: DataFrame) -> DataFrame:
    return stream.withWatermark("ts", "15 seconds")


def one_query(place: Place, stream: DataFrame) -> dict[int, list[tuple[Any, ...]]]:
    with without_empty_batches(place.spark):
        return collect(stream, place.checkpoint("one"))


def windows(stream: DataFrame) -> DataFrame:
    return stream.groupBy(F.window("ts", "30 seconds"), "k").agg(F.count("*").alias("n"), F.sum("v").alias("v"))


def totals(stream: DataFrame) -> DataFrame:
    """Windows of windows: a second stateful operator on the first one's event time."""
    return stream.groupBy(F.window("window", "60 seconds")).agg(F.sum("n").alias("n"), F.count("*").alias("c"))


def distinct(stream: DataFrame) -> DataFrame:
    return stream.dropDuplicatesWithinWatermark(["k"]).select("ts", "k")


def above(stream: DataFrame) -> DataFrame:
    """A filter that stays where it is written: Spark moves a plain one below the watermark of one query."""
    return stream.where(F.col("v") + 0 * F.spark_partition_id() < 6)


STEPS = {
    "windows": [marked, windows],
    "windows after a filter that drops what drives the watermark": [marked, lambda s: windows(above(s))],
    "a filter above the cut": [lambda s: marked(s).where("v % 5 != 0"), windows],
    "windows of windows, cut twice": [marked, windows, totals],
    "distinct within the watermark": [marked, distinct],
    "a stateless step between": [marked, lambda s: s.select("k", "v", "ts", (F.col("v") * 2).alias("w")), windows],
}


@pytest.mark.chaos  # `test_plans.py` has much the same in pipelines
@pytest.mark.parametrize("name", STEPS)
def test_a_chain_gives_the_same_at_every_epoch_when_it_is_cut(fed: Place, name: str) -> None:
    steps = STEPS[name]
    whole = fed.input("events")
    for step in steps:
        whole = step(whole)
    expected = one_query(fed, whole)
    fed.write(steps[0](fed.input("events")), "log0")
    for number, step in enumerate(steps[1:], 1):
        fed.write(step(fed.read(f"log{number - 1}", consumer="next")), f"log{number}")
    last = f"log{len(steps) - 1}"
    assert any(expected.values()), "the test is about results"
    assert fed.rows(last) == expected


def table(stream: DataFrame) -> DataFrame:
    return stream.sparkSession.range(9).select((F.col("id") % 3).cast("int").alias("k"))


def exchanged(place: Place) -> DataFrame:
    """Event time, then joins with tables of both kinds, and a shuffle: Spark would execute it adaptively."""
    small = F.broadcast(table(marked(place.input("events"))).distinct())
    both = marked(place.input("events")).join(small, "k", "left").join(table(small).hint("merge"), "k")
    return both.repartition(3, "k").select("ts", "k", "v")


def mostly_empty(place: Place) -> DataFrame:
    """A stream whose rows all go before its shuffle, and another one without event time."""
    few = marked(place.input("events")).where(F.col("v") + 0 * F.spark_partition_id() == 99)
    return few.repartition(3, "k").union(place.input("others"))


@pytest.mark.parametrize("make", [exchanged, mostly_empty])
def test_the_watermark_passes_exchanges(place: Place, make: Any) -> None:
    place.feed("events", events(1, 5))
    place.feed("others", events(2, 5))
    expected = one_query(place, windows(make(place)))
    place.write(make(place), "up")
    place.write(windows(place.read("up", consumer="c")), "down")
    assert any(expected.values()), "windows were closed"
    assert place.rows("down") == expected


def test_a_watermark_that_the_plan_does_not_show_is_not_guessed(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With adaptive execution, which hides the plan in its root: the root is looked into, or nothing is told."""
    monkeypatch.setattr(queries, "_FOR_EVENT_TIME", {})
    place.feed("events", events(1, 1))
    place.write(marked(place.input("events")).repartition(2), "up")
    newest = max(row["ts"] for row in events(1, 1)[0])
    told = place.log("up").manifest(place.log("up").ranges()[-1]).watermark
    assert told.after == int((newest - timedelta(seconds=15)).timestamp() * 1000)
    monkeypatch.setattr(watermark, "_WRAPPERS", {})
    with pytest.raises(StreamingQueryException, match=r"does not show 1 of the 1 watermarks.*AdaptiveSparkPlan"):
        place.write(marked(place.input("events")).repartition(2), "unknown")
    assert place.log("unknown").ranges() == []
    place.feed("events", events(2, 1))
    with pytest.raises(PipelineError, match=r"for rows with event time.*no watermark leaves the query"):
        place.write(place.input("events"), "up")
    place.write(place.input("events"), "timeless")
    with pytest.raises(PipelineError, match=r"for rows without event time.*now declares a watermark"):
        place.write(marked(place.input("events")), "timeless")
    assert len(place.log("up").ranges()) == 1


def joined(left: DataFrame, right: DataFrame) -> DataFrame:
    near = "l.k = r.k and r.ts between l.ts - interval 10 seconds and l.ts + interval 20 seconds"
    both = left.alias("l").join(right.alias("r"), F.expr(near), "leftOuter")
    return both.select(F.col("l.ts").alias("ts"), F.col("l.k").alias("k"), F.col("r.v").alias("v"))


@pytest.mark.chaos
def test_a_join_and_what_follows_it_give_the_same_at_every_epoch(fed: Place) -> None:
    """An outer join holds rows back: the watermark that leaves it is older than the one that drives it."""
    expected = one_query(fed, windows(joined(marked(fed.input("events")), marked(fed.input("others")))))
    fed.write(marked(fed.input("events")), "left")
    fed.write(marked(fed.input("others")), "right")
    urls = [fed.url("left"), fed.url("right")]
    fed.write(joined(*tidelock.read_logs(fed.spark, urls, consumer="join")), "joined")
    fed.write(windows(fed.read("joined", consumer="windows")), "out")
    log = fed.log("joined")
    last = log.manifest(log.ranges()[-1]).watermark
    assert last is not None
    assert last.after < fed.log("left").manifest(fed.log("left").ranges()[-1]).watermark.after
    assert any(expected.values())
    assert fed.rows("out") == expected


def test_the_watermark_is_the_same_at_the_same_epoch_and_after_a_restart(fed: Place) -> None:
    fed.write(marked(fed.input("events")), "up")
    fed.write(windows(fed.read("up", consumer="c")), "down")
    fed.feed(
        "events", [[{**row, "ts": row["ts"] + timedelta(seconds=20 * EPOCHS)} for row in e] for e in events(3, 3)]
    )
    fed.write(marked(fed.input("events")), "up")
    fed.write(windows(fed.read("up", consumer="c")), "down")
    up, down = fed.log("up"), fed.log("down")
    for covers in down.ranges()[-3:]:
        ours, theirs = down.manifest(covers).watermark, up.manifest(covers).watermark
        assert (ours.before, ours.after) == (theirs.before, theirs.after)
    assert down.manifest(down.ranges()[-1]).watermark.before > 0


def test_a_plain_reader_sees_no_marker_and_no_watermark(fed: Place) -> None:
    fed.write(marked(fed.input("events")), "up")
    plain = fed.spark.readStream.format("tidelock").option("log", fed.url("up")).load()
    assert plain.columns == ["ts", "k", "v"]
    assert all(not field.metadata for field in plain.schema)
    assert [len(rows) for rows in collect(plain, fed.checkpoint("c")).values()] == [12] * EPOCHS
