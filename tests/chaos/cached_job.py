"""The victim of `test_cache_kills.py`: the pipeline of `job.py` with its state in a cache."""

from __future__ import annotations

import os

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

import tidelock
from tidelock import aggregates

pipeline = tidelock.Pipeline("job", epoch="200 milliseconds", snapshot_every=3)


@pipeline.source
def numbers(spark: SparkSession) -> DataFrame:
    stream = spark.readStream.schema("id long, key string").option("maxFilesPerTrigger", 1)
    return stream.parquet(os.environ["TIDELOCK_CHAOS_INPUT"])


def first_ones(rows: pa.Table, state: pa.Table) -> tuple[pa.Table, pa.Table]:
    """The rows whose id was never seen; an id comes once in an epoch."""
    seen = state.filter(pc.fill_null(state.column("seen"), False)).column("id")
    fresh = rows.filter(pc.invert(pc.is_in(rows.column("id"), value_set=seen)))
    return fresh, state.set_column(1, "seen", pa.repeat(True, state.num_rows))


@pipeline.operator(anchor=True)
def once(numbers: DataFrame) -> DataFrame:
    return tidelock.keyed(numbers, "id").apply(first_ones, state="seen boolean", output="id long, key string")


@pipeline.operator(mode="update")
def sums(once: DataFrame) -> DataFrame:
    return tidelock.keyed(once, "key").aggregate(n=aggregates.count(), total=aggregates.sum("id"))


pipeline.files("once")
pipeline.files("sums")
