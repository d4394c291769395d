"""The formats that Spark itself writes under other settings than its usual ones are refused by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.integration.pipelines import Bench
from tests.integration.streams import NOW, Place, finish
from tests.integration.test_plans import PROVIDER, ROCKS

import tidelock
from tidelock.errors import PipelineError, UnsupportedFormat
from tidelock.spark.checkpoint.checkpoint import Checkpoint

STATE_FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"
SOURCE_EVOLUTION = "spark.sql.streaming.queryEvolution.enableSourceEvolution"
SINK_EVOLUTION = "spark.sql.streaming.queryEvolution.enableSinkEvolution"
CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
OFFSET_LOG = "spark.sql.streaming.offsetLog.formatVersion"


@contextmanager
def settings(spark: SparkSession, given: Mapping[str, str]) -> Iterator[None]:
    for name, value in given.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name in given:
            spark.conf.unset(name)


def run_plainly(stream: DataFrame, checkpoint: str) -> Path:
    """One plain Spark query to the end of what is there; its checkpoint."""
    writer = stream.writeStream.format("noop").outputMode("update").option("checkpointLocation", checkpoint)
    finish(writer.trigger(**NOW).start())
    return Path(checkpoint)


def counts(place: Place) -> DataFrame:
    return place.input("numbers").groupBy("n").count()


def test_what_spark_writes_is_known_or_refused_by_name(place: Place) -> None:
    spark = place.spark
    place.feed("numbers", [[{"n": 1}], [{"n": 2}]])
    with settings(spark, {PROVIDER: ROCKS, CHANGELOG: "true"}):
        usual = run_plainly(counts(place), place.checkpoint("usual"))
    Checkpoint(None, str(usual)).check_newest()
    Checkpoint(None, str(usual)).check_state()
    with settings(spark, {PROVIDER: ROCKS, STATE_FORMAT: "2"}):
        second = run_plainly(counts(place), place.checkpoint("second"))
        with pytest.raises(PipelineError, match=f"{STATE_FORMAT}=2"):
            place.write(counts(place), "log", mode="update")
    with pytest.raises(UnsupportedFormat, match=r"state file state/0/\d+/\d+_.* checkpoint format 2"):
        Checkpoint(None, str(second)).check_state()
    with pytest.raises(UnsupportedFormat, match=r"commits/1 is of version v2"):
        tidelock.write_log(counts(place), place.url("log"), checkpoint=str(second), mode="update")
    with settings(spark, {OFFSET_LOG: "2"}):
        third = run_plainly(place.input("numbers"), place.checkpoint("third"))
    with pytest.raises(UnsupportedFormat, match=r"offsets/1 is of version v2"):
        Checkpoint(None, str(third)).check_newest()


@pytest.mark.parametrize("name", [SOURCE_EVOLUTION, SINK_EVOLUTION])
def test_settings_that_change_the_format_are_refused_before_anything_starts(place: Place, name: str) -> None:
    place.feed("numbers", [[{"n": 1}]])
    stream = place.input("numbers")
    bench = Bench(place)
    pipeline = tidelock.Pipeline("numbers")
    bench.source(pipeline, "numbers")
    bench.collect(pipeline, "numbers")
    with settings(place.spark, {name: "true"}):
        with pytest.raises(PipelineError, match=f"{name}=true"):
            place.write(stream, "log")
        with pytest.raises(PipelineError, match=f"{name}=true"):
            pipeline.run(place.spark, place.home / "home", last_epoch=0)
    assert not Path(place.checkpoint("log")).exists()
    assert not (place.home / "home").exists()
