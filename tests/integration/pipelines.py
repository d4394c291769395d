"""What the tests of pipelines share: declared pipelines over epochs of known rows, run under any plan."""

from __future__ import annotations

import inspect
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from tests.integration.streams import NOW, Place, finish

import tidelock
from tidelock.home.home import Home
from tidelock.preparing.preparation import PlanLike, prepare, settle
from tidelock.spark.query.batches import OpenGate

Rows = dict[int, list[tuple[Any, ...]]]
_ADAPTIVE = "spark.sql.adaptive.enabled"


class Bench:
    """A place with inputs, where one pipeline after the other is run over the same epochs."""

    def __init__(self, place: Place, cache: str | None = None) -> None:
        self.place = place
        self._cache = cache
        self._runs = 0

    def feed(self, name: str, epochs: Sequence[Sequence[dict[str, Any]]], schema: pa.Schema | None = None) -> None:
        self.place.feed(name, epochs, schema)

    def source(
        self, pipeline: tidelock.Pipeline, name: str, change: Callable[[DataFrame], DataFrame] | None = None
    ):
        """Declare a source that takes one fed epoch per batch."""

        def read(spark: Any) -> DataFrame:
            stream = self.place.input(name)
            return change(stream) if change else stream

        read.__name__ = name
        return pipeline.source(read)

    def collect(self, pipeline: tidelock.Pipeline, node: str) -> Rows:
        """Add a sink that keeps the rows of every epoch of ``node``; they are in the answer after a run."""
        kept: Rows = {}

        def keep(epoch: int, **rows: DataFrame) -> None:
            kept[epoch] = sorted((tuple(row) for row in rows[node].collect()), key=repr)

        keep.__name__ = f"keep_{node}"
        pipeline.sink(named(keep, node, "epoch"))
        return kept

    def run_in_turn(self, pipeline: tidelock.Pipeline, plan: PlanLike, *, adaptive: bool = True) -> None:
        """Run the segments one after the other to the end of the input: what a plan computes, in quiet."""
        self._runs += 1
        home = Home(self.place.home / "home", cache=self._cache and f"{self._cache}-{self._runs}")
        shutil.rmtree(home.root, ignore_errors=True)
        with adaptively(self.place.spark, adaptive):
            prepared = prepare(pipeline, self.place.spark, plan)
            segments = settle(prepared, home, self.place.spark, asked=True)
            for segment in prepared.cutting.segments:
                finish(segments.start(segment, OpenGate(), NOW))


@contextmanager
def adaptively(spark: SparkSession, adaptive: bool) -> Iterator[None]:
    """Inside, Spark's adaptive execution is on or off."""
    before = str(spark.conf.get(_ADAPTIVE))
    spark.conf.set(_ADAPTIVE, str(adaptive).lower())
    try:
        yield
    finally:
        spark.conf.set(_ADAPTIVE, before)


def named(function: Callable[..., Any], *parameters: str) -> Callable[..., Any]:
    """The function with these parameters in its signature, because a pipeline is wired by them."""
    kinds = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in parameters]
    function.__signature__ = inspect.Signature(kinds)  # type: ignore[attr-defined]
    return function


def appended(rows: Rows, epoch: int) -> Counter[tuple[Any, ...]]:
    """All rows of an append stream up to an epoch."""
    return Counter(row for number, some in rows.items() if number <= epoch for row in some)


def present(rows: Rows, epoch: int, keys: int = 1) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    """The newest row of every key of an update stream at an epoch."""
    found = {}
    for number in sorted(rows):
        if number <= epoch:
            found.update({row[:keys]: row for row in rows[number]})
    return found
