"""Spark's part of a life in a directory whose letters mean something in a URL: checkpoints, files, a restart."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.integration.pipelines import Bench, present
from tests.integration.streams import Place

import tidelock
from tidelock.home.home import Home
from tidelock.running.run import Run
from tidelock.running.status import status

EPOCHS = 4


@pytest.mark.chaos  # the unit tests of the same name have everything but Spark
def test_a_home_with_an_odd_name(spark: SparkSession, place: Place, tmp_path: Path, started: list[Run]) -> None:
    bench = Bench(place)
    bench.feed("numbers", [[{"id": epoch, "key": 1}] for epoch in range(EPOCHS)])
    pipeline = tidelock.Pipeline("odd", epoch="200 milliseconds")
    bench.source(pipeline, "numbers")

    @pipeline.operator(mode="update", anchor=True)
    def counts(numbers: DataFrame) -> DataFrame:
        return numbers.groupBy("key").count()

    kept = bench.collect(pipeline, "counts")
    pipeline.files("numbers", name="files")
    home = Home(tmp_path / "odd" / "job#1 50%41?")
    for last in (1, EPOCHS - 1):  # the second run goes on where the first has ended
        started.append(pipeline.start(spark, str(home.root), plan="each", last_epoch=last))
        assert started[-1].wait(120)
    assert present(kept, EPOCHS - 1) == {(1,): (1, EPOCHS)}
    assert {segment.epoch for segment in status(home).segments} == {EPOCHS - 1}
    assert sorted(found.name for found in Path(home.out("files")).glob("epoch=*")) == [
        f"epoch={epoch}" for epoch in range(EPOCHS)
    ]
    assert [found.name for found in (tmp_path / "odd").iterdir()] == [home.root.name]
