"""Several sources with different paces, a branch that is slow and fails, and a split: nobody waits for ever."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from tests.integration import faults
from tests.integration.pipelines import Bench
from tests.integration.streams import Place

import tidelock
from tidelock.home.home import Home

ROWS = 4
LEFT, RIGHT, EPOCHS = 6, 2, 8


def test_a_mixed_topology_with_a_slow_branch_and_a_silent_source(
    spark: SparkSession, place: Place, tmp_path: Path
) -> None:
    """Segment Backup, figures 3.5 and 3.6: two sources, one of them also read by a slower branch."""
    bench = Bench(place)
    bench.feed("left", [[{"id": e * ROWS + i} for i in range(ROWS)] for e in range(LEFT)])
    bench.feed("right", [[{"id": 1000 + e * ROWS + i} for i in range(ROWS)] for e in range(RIGHT)])
    pipeline = tidelock.Pipeline("mixed", epoch="200 milliseconds", max_pending_epochs=3)
    bench.source(pipeline, "left")
    bench.source(pipeline, "right")

    @pipeline.operator
    def slow(right: DataFrame) -> DataFrame:
        return faults.at_row(right, 1001, tmp_path / "slow", 4, faults.raising("slow and weak"))

    @pipeline.operator(anchor=True)
    def merged(left: DataFrame, slow: DataFrame) -> DataFrame:
        return left.union(slow)

    kept, copied = bench.collect(pipeline, "merged"), bench.collect(pipeline, "right")
    last = pipeline.run(spark, str(tmp_path / "home"), last_epoch=EPOCHS - 1)

    left = Counter(range(LEFT * ROWS))
    right = Counter(range(1000, 1000 + RIGHT * ROWS))
    assert Counter(row[0] for rows in kept.values() for row in rows) == left + right
    assert Counter(row[0] for rows in copied.values() for row in rows) == right
    assert sorted(kept) == sorted(copied) == list(range(EPOCHS)), "a silent source makes epochs too"
    for epoch in range(LEFT):
        expected = [epoch * ROWS + i for i in range(ROWS)]
        expected += [1000 + epoch * ROWS + i for i in range(ROWS)] if epoch < RIGHT else []
        assert sorted(row[0] for row in kept[epoch]) == sorted(expected), "the same epoch of both"
    failed = [event["segment"] for event in Home(tmp_path / "home").events() if event["kind"] == "segment failed"]
    assert failed == ["slow"]
    assert {segment.epoch for segment in last.segments} == {EPOCHS - 1}
