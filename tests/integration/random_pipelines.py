"""Pipelines drawn by chance: sources, filters, unions, joins of streams and with tables, shuffles, duplicates,
windows, counts, functions and cached state, wired at random.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from tests.integration.pipelines import Bench, Rows, named

import tidelock
from tidelock.topology import Plan

START = datetime(2026, 1, 1, tzinfo=UTC)
COLUMNS = ["id", "user", "amount", "at"]
_DDL = "id long, user string, amount long, at timestamp"
SCHEMA = pa.schema(
    [("id", pa.int64()), ("user", pa.string()), ("amount", pa.int64()), ("at", pa.timestamp("us", tz="UTC"))]
)
Build = Callable[..., DataFrame]


def rows(epochs: int, chance: random.Random, count: int = 10) -> list[list[dict[str, Any]]]:
    """Rows whose event times go on with the epochs; some come too late, and some epochs are empty."""
    return [
        []
        if epoch and chance.random() < 0.15
        else [
            {
                "id": epoch * count + i,
                "user": f"u{chance.randrange(3)}",
                "amount": chance.randrange(50),
                "at": START
                + timedelta(seconds=epoch * 10 + chance.randrange(10) - chance.choice([0, 0, 0, 6, 45])),
            }
            for i in range(count)
        ]
        for epoch in range(epochs)
    ]


# -- what an operator can be


def keep(stream: DataFrame) -> DataFrame:
    return stream.where("amount % 4 != 1")


def shift(stream: DataFrame) -> DataFrame:
    return stream.withColumn("amount", F.col("amount") + 1)


def timed(stream: DataFrame) -> DataFrame:
    return stream.withWatermark("at", "5 seconds")


def spread(stream: DataFrame) -> DataFrame:
    return stream.repartition(3, "user")


def table(stream: DataFrame) -> DataFrame:
    """A table with a user twice, and another one not at all."""
    return stream.sparkSession.range(3).select(F.concat(F.lit("u"), F.col("id") % 2).alias("user"))


def looked_up(stream: DataFrame) -> DataFrame:
    return stream.join(F.broadcast(table(stream)), "user").select(COLUMNS)


def matched(stream: DataFrame) -> DataFrame:
    return stream.join(table(stream).hint("merge"), "user", "left").select(COLUMNS)


def listed(stream: DataFrame) -> DataFrame:
    return stream.join(table(stream).distinct().hint("merge"), "user").select(COLUMNS)


def unlisted(stream: DataFrame) -> DataFrame:
    """What is not in a table: in most epochs nothing is left behind the shuffle."""
    few = stream.where("amount < 3").join(table(stream).distinct().hint("shuffle_hash"), "user", "left_anti")
    return few.select(COLUMNS)


def totalled(stream: DataFrame) -> DataFrame:
    """Every user's totals so far, kept in a cache; the newest event time keeps its watermark, if it has one."""
    return tidelock.keyed(stream, "user").aggregate(
        id=tidelock.aggregates.count(), amount=tidelock.aggregates.sum("amount"), at=tidelock.aggregates.max("at")
    )


def accumulated(stream: DataFrame) -> DataFrame:
    """The same, with a watermark of their own."""
    return timed(totalled(stream).select(COLUMNS))


def once(stream: DataFrame) -> DataFrame:
    return stream.dropDuplicatesWithinWatermark(COLUMNS)


def windows(stream: DataFrame) -> DataFrame:
    summed = stream.groupBy(F.window("at", "20 seconds"), "user").agg(
        F.sum("amount").alias("amount"), F.count("*").alias("id")
    )
    return summed.select("id", "user", "amount", F.window_time("window").alias("at"))


def remembered(stream: DataFrame) -> DataFrame:
    """All rows, through a function with state: Spark lets no watermark through it."""

    def pass_on(key: Any, frames: Any, state: Any) -> Any:
        state.update((state.get[0] + 1 if state.exists else 1,))
        yield from frames

    users = stream.select(COLUMNS).groupBy("user")
    return users.applyInPandasWithState(pass_on, _DDL, "calls long", "append", "NoTimeout")


def best(stream: DataFrame) -> DataFrame:
    """A user's largest amount in each epoch, by a function that sees the rows of a batch together."""
    largest = stream.select(COLUMNS).groupBy("user")
    return largest.applyInPandas(lambda rows: rows.nlargest(1, ["amount", "id"]), _DDL)


def merged(left: DataFrame, right: DataFrame) -> DataFrame:
    return left.select(COLUMNS).union(right.select(COLUMNS))


def joined(left: DataFrame, right: DataFrame, how: str) -> DataFrame:
    a, b = left.alias("a"), right.alias("b")
    near = F.expr(
        "a.user = b.user AND b.amount < 12 "
        "AND b.at BETWEEN a.at - INTERVAL 4 SECONDS AND a.at + INTERVAL 4 SECONDS"
    )
    both = F.col("a.amount") + F.coalesce(F.col("b.amount"), F.lit(1000))
    return a.join(b, near, how).select("a.id", "a.user", both.alias("amount"), "a.at")


def counted(stream: DataFrame) -> DataFrame:
    return stream.groupBy("user").agg(F.count("*").alias("n"), F.sum("amount").alias("amount"))


EXCHANGES: list[Build] = [spread, looked_up, matched, listed, unlisted]
"""Operators without state that move rows between partitions."""


@dataclass(frozen=True)
class Made:
    """A node and what can be done with it."""

    name: str
    timed: bool
    joins: int = 0


class RandomPipeline:
    """A pipeline drawn from a seed; every `declare` gives the same one, with empty hands."""

    def __init__(self, seed: int, epochs: int = 6) -> None:
        chance = random.Random(seed)
        self.sources = ["clicks", "views"][: chance.choice([1, 1, 2])]
        self.inputs = {name: rows(epochs, chance) for name in self.sources}
        self._shape = chance.random()
        self.operators = 3 + chance.randrange(3)

    def feed(self, bench: Bench) -> None:
        for name, epochs in self.inputs.items():
            bench.feed(name, epochs, SCHEMA)

    def declare(self, bench: Bench) -> tuple[tidelock.Pipeline, dict[str, Rows]]:
        chance = random.Random(self._shape)
        pipeline = tidelock.Pipeline("drawn")
        nodes = [Made(name, timed=False) for name in self.sources]
        for name in self.sources:
            bench.source(pipeline, name)
        read: set[str] = set()
        for number in range(self.operators):
            made = self._draw(pipeline, f"o{number}", nodes, read, chance)
            nodes.append(made)
        if chance.random() < 0.5:
            last = nodes[-1].name
            self._add(pipeline, "counts", [last], counted, mode="update")
            read.add(last)
            nodes.append(Made("counts", timed=False))
        leaves = [node.name for node in nodes if node.name not in read]
        return pipeline, {name: bench.collect(pipeline, name) for name in leaves}

    def _draw(
        self,
        pipeline: tidelock.Pipeline,
        name: str,
        nodes: list[Made],
        read: set[str],
        chance: random.Random,
    ) -> Made:
        newest = nodes[-1]
        partners = [n for n in nodes[:-1] if newest.timed >= n.timed and newest.joins + n.joins < 1]
        alike = [n for n in partners if n.timed == newest.timed]
        kinds: list[Build] = [chance.choice([keep, shift]), *chance.sample(EXCHANGES, 2)]
        if newest.timed:
            kinds += [once, windows, windows, totalled, remembered]
        else:
            kinds += [timed, timed, timed, accumulated, remembered, best]
        if partners:
            kinds += [merged]
        if newest.timed and alike:
            kinds += [joined]
        build = chance.choice(kinds)
        if build in (merged, joined):
            partner = chance.choice(partners if build is merged else alike)
            if build is joined:
                how = chance.choice(["inner", "leftOuter"])
                self._add(pipeline, name, [newest.name, partner.name], lambda a, b: joined(a, b, how))
            else:
                self._add(pipeline, name, [newest.name, partner.name], merged)
            read.update({newest.name, partner.name})
            return Made(name, newest.timed, newest.joins + partner.joins + (build is joined))
        source = newest
        untimed = [n for n in nodes if not n.timed]
        if build is timed and untimed:
            source = chance.choice(untimed)  # so that a second stream can get its own watermark
        self._add(pipeline, name, [source.name], build)
        read.add(source.name)
        carries = source.timed and build is not remembered
        return Made(name, carries or build in (timed, accumulated), source.joins)

    def _add(self, pipeline: tidelock.Pipeline, name: str, inputs: list[str], build: Build, **more: Any) -> None:
        def operator(**given: DataFrame) -> DataFrame:
            return build(*(given[one] for one in inputs))

        operator.__name__ = name
        pipeline.operator(**more)(named(operator, *inputs))


def random_plan(pipeline: tidelock.Pipeline, chance: random.Random) -> Plan:
    """Some of the operators as anchors."""
    names = [node.name for node in pipeline.topology().nodes if node.inputs]
    return Plan(anchors=frozenset(name for name in names if chance.random() < 0.5))


def check(bench: Bench, seed: int) -> None:
    """The pipeline of ``seed`` gives the same rows in every epoch, under each of three plans.

    Adaptive execution is off for the one segment, on for one segment per operator, and either for the third.
    """
    drawn = RandomPipeline(seed)
    drawn.feed(bench)
    chance = random.Random(seed)
    answers = []
    for plan, adaptive in (("one", False), ("each", True), (None, chance.random() < 0.5)):
        pipeline, kept = drawn.declare(bench)
        chosen = plan or random_plan(pipeline, chance)
        bench.run_in_turn(pipeline, chosen, adaptive=adaptive)
        answers.append((chosen, adaptive, kept))
    base = answers[0][-1]
    for plan, adaptive, kept in answers[1:]:
        assert kept == base, f"seed {seed}, plan {plan}, adaptive={adaptive} differs from one segment"
