"""A run that takes what is there and ends: its rows are those of Spark's own `availableNow`, however it is cut."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.integration import faults
from tests.integration.pipelines import Bench, Rows, appended, named, present
from tests.integration.streams import Place, collect
from tests.integration.test_loops import EDGES_PER_EPOCH, EXAMPLE

import tidelock
from tidelock.home.home import Home
from tidelock.log import EpochLog
from tidelock.pipeline.loading import load
from tidelock.spark.checkpoint.checkpoint import Checkpoint
from tidelock.spark.sinks.functions import FunctionSink

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
EACH = "100 milliseconds"


def at(second: int, key: int, n: int) -> dict[str, Any]:
    return {"time": BEGIN + timedelta(seconds=second), "key": key, "n": n}


def seconds(*epochs: Sequence[int]) -> list[list[dict[str, Any]]]:
    """For each epoch rows at these seconds."""
    return [[at(second, second % 3, second) for second in some] for some in epochs]


@dataclass(frozen=True)
class Shape:
    """Operators by their names, each with the function that makes it of its inputs; the last one is delivered."""

    sources: Sequence[str]
    operators: Mapping[str, tuple[Sequence[str], Callable[..., DataFrame]]]
    mode: str = "append"

    def plain(self, place: Place) -> DataFrame:
        """All of it in one query."""
        streams = {name: place.input(name) for name in self.sources}
        for name, (inputs, function) in self.operators.items():
            streams[name] = function(*[streams[given] for given in inputs])
        return streams[self.last]

    def declare(self, bench: Bench, name: str) -> tuple[tidelock.Pipeline, Rows]:
        pipeline = tidelock.Pipeline(name, epoch=EACH)
        for source in self.sources:
            bench.source(pipeline, source)
        for operator, (inputs, function) in self.operators.items():
            mode = self.mode if operator == self.last else "append"
            pipeline.operator(mode=mode)(_named(operator, inputs, function))  # type: ignore[call-overload]
        return pipeline, bench.collect(pipeline, self.last)

    @property
    def last(self) -> str:
        return list(self.operators)[-1]


def _named(name: str, inputs: Sequence[str], function: Callable[..., DataFrame]) -> Callable[..., DataFrame]:
    def operator(**given: DataFrame) -> DataFrame:
        return function(*[given[one] for one in inputs])

    operator.__name__ = name
    return named(operator, *inputs)


def _timed(stream: DataFrame) -> DataFrame:
    return stream.withWatermark("time", "5 seconds")


def _counted(stream: DataFrame) -> DataFrame:
    counted = stream.groupBy(F.window("time", "10 seconds"), "key").agg(F.count("*").alias("rows"))
    return counted.select(F.col("window.end").alias("until"), "key", "rows")


def _joined(left: DataFrame, right: DataFrame) -> DataFrame:
    right = right.select(F.col("time").alias("other_time"), F.col("key").alias("other"), F.col("n").alias("m"))
    near = "key = other AND other_time BETWEEN time - INTERVAL 3 SECONDS AND time + INTERVAL 3 SECONDS"
    return left.join(right, F.expr(near), "leftOuter").select("key", "n", "m")


WINDOWS = Shape(
    ["numbers"],
    {
        "timed": (["numbers"], _timed),
        "counted": (["timed"], _counted),
        "told": (["counted"], lambda counted: counted.withColumn("twice", F.col("rows") * 2)),
    },
)
SHAPES = {
    "once": Shape(
        ["numbers"],
        {
            "timed": (["numbers"], _timed),
            "once": (["timed"], lambda timed: timed.dropDuplicatesWithinWatermark(["n"])),
            "counted": (["once"], _counted),
        },
    ),
    "joined": Shape(
        ["numbers", "others"],
        {
            "timed": (["numbers"], _timed),
            "other_timed": (["others"], _timed),
            "joined": (["timed", "other_timed"], _joined),
        },
    ),
    "sums": Shape(
        ["numbers"],
        {
            "odd": (["numbers"], lambda numbers: numbers.where("n % 2 = 1")),
            "sums": (["odd"], lambda odd: odd.groupBy("key").agg(F.sum("n").alias("total"))),
        },
        mode="update",
    ),
}
FIRST = seconds([1, 2, 11, 12], [3, 14, 16, 14], [27, 22], [41, 8])
SECOND = seconds([44, 46, 46, 29], [70])


def outcome(rows: Rows, shape: Shape) -> Any:
    """What is to be equal: all rows of an append stream, the newest of each key of an update stream."""
    return appended(rows, max(rows)) if shape.mode == "append" else present(rows, max(rows))


def compare(place: Place, shape: Shape, plans: Sequence[str], fed: Sequence[Sequence[Any]]) -> None:
    """Feed, drain, and compare with Spark, several times in the same home."""
    bench = Bench(place)
    declared = {plan: shape.declare(bench, f"drained-{plan}") for plan in plans if fed}
    expected: Rows = {}
    for epochs in fed:
        for source in shape.sources:
            bench.feed(source, epochs if source == "numbers" else epochs[: len(epochs) // 2])
        expected |= collect(shape.plain(place), place.checkpoint(f"plain-{shape.last}"), shape.mode)
        for plan, (pipeline, kept) in declared.items():
            status = pipeline.run(place.spark, place.home / plan, plan=plan, availableNow=True)
            assert status.state == "stopped"
            assert outcome(kept, shape) == outcome(expected, shape), plan
            assert sorted(kept) == list(range(status.epoch + 1)), "each epoch was delivered, and once"


def test_windows_that_the_last_watermark_closes_come_out(spark: SparkSession, place: Place) -> None:
    compare(place, WINDOWS, ["each"], [FIRST, SECOND])
    delivered = Counter(event["kind"] for event in Home(place.home / "each").events())
    assert delivered["segment failed"] == 0

    pipeline, kept = WINDOWS.declare(Bench(place), "drained-each")
    pipeline.run(spark, place.home / "each", availableNow=True)
    assert kept == {}, "nothing new, so nothing more, not even an empty epoch"


@pytest.mark.chaos
@pytest.mark.timeout(900)
@pytest.mark.parametrize("shape", [WINDOWS, *SHAPES.values()], ids=["windows", *SHAPES])
def test_a_drain_gives_what_spark_gives(place: Place, shape: Shape) -> None:
    compare(place, shape, ["one", "each"], [FIRST, SECOND])


@pytest.mark.chaos
def test_a_loop_goes_round_until_nothing_comes_back(spark: SparkSession, tmp_path: Path) -> None:
    pipeline = load(str(EXAMPLE))
    pipeline.epoch = EACH
    told: Rows = {}
    pipeline.sinks["labels"] = lambda spark, home: FunctionSink(
        lambda rows, epoch: told.update({epoch: [tuple(row) for row in rows.collect()]})
    )
    home = tmp_path / "home"
    pipeline.run(spark, home, last_epoch=3)
    pipeline.run(spark, home, availableNow=True)
    quiet = max(told)
    assert told[quiet] == []
    pipeline.run(spark, home, last_epoch=quiet + 2)
    pipeline.run(spark, home, availableNow=True)

    log = EpochLog.open(Home(home).log("told"))
    assert not any(part.rows for part in log.manifest(log.ranges()[-1]).parts)
    taken = Checkpoint(None, Home(home).checkpoint("edges")).offsets(max(told)).sources
    edges = [_ends(spark, n) for n in range(min(20, max(o["offset"] for o in taken)))]
    assert len(edges) >= 4 * EDGES_PER_EPOCH
    labels = {row[0]: row[2] for epoch in sorted(told) for row in told[epoch] if row[0] == row[1]}
    assert labels == _components(edges)


def _ends(spark: SparkSession, number: int) -> tuple[int, int]:
    row = spark.range(number, number + 1).selectExpr("pmod(hash(id, 1), 30) AS a", "pmod(hash(id, 2), 30) AS b")
    a, b = row.collect()[0]
    return a, b


def _components(edges: Sequence[tuple[int, int]]) -> dict[int, int]:
    labels = {node: node for edge in edges for node in edge}
    for _ in labels:
        for a, b in edges:
            labels[a] = labels[b] = min(labels[a], labels[b])
    return labels


@pytest.mark.chaos
def test_a_follower_takes_what_is_published(spark: SparkSession, place: Place) -> None:
    bench = Bench(place)
    bench.feed("numbers", FIRST)
    publisher = tidelock.Pipeline("publisher", epoch=EACH)
    bench.source(publisher, "numbers", _timed)
    publisher.publish("numbers", subject="drained.numbers")
    follower = tidelock.Pipeline("follower", epoch="1 hour")  # a drain does not wait for intervals
    follower.subscribe("drained.numbers", home=str(place.home / "publisher"), aligned=True)
    follower.operator(_named("counted", ["numbers"], _counted))
    kept = bench.collect(follower, "counted")
    tree, expected = f"embedded:{place.home}/tree.db", Rows()
    for fed in (FIRST, SECOND):
        if fed is SECOND:
            bench.feed("numbers", SECOND)
        last = publisher.run(spark, place.home / "publisher", coordinator=tree, availableNow=True).epoch
        status = follower.run(spark, place.home / "follower", coordinator=tree, availableNow=True)
        assert status.epoch == last, "its epochs are those of the subject"
        expected |= collect(_counted(_timed(place.input("numbers"))), place.checkpoint("plain"))
        assert appended(kept, max(kept)) == appended(expected, max(expected))


@pytest.mark.chaos
def test_a_drain_that_fails_on_its_last_epoch_repeats_nothing(spark: SparkSession, place: Place) -> None:
    bench, shape = Bench(place), WINDOWS
    bench.feed("numbers", FIRST)
    pipeline, kept = shape.declare(bench, "drained")
    counted = pipeline.functions["counted"]
    last = len(FIRST)

    def doomed(timed: DataFrame) -> DataFrame:
        return faults.at_row(
            counted(timed=timed), 0, place.home / "fault", 4, faults.raising("closing"), column="key"
        )

    pipeline.functions["counted"] = doomed
    pipeline.run(spark, place.home / "home", plan="each", availableNow=True)
    assert faults.happened(place.home / "fault") == 4
    assert sorted(kept) == list(range(last + 1))
    expected = collect(shape.plain(place), place.checkpoint("plain"))
    assert outcome(kept, shape) == outcome(expected, shape)
