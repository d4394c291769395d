"""The first of the two jobs of `test_alignment_kills.py`: it publishes numbers, each once."""

from __future__ import annotations

import os

from pyspark.sql import DataFrame, SparkSession

import tidelock

pipeline = tidelock.Pipeline("publisher", epoch="300 milliseconds")


@pipeline.source
def numbers(spark: SparkSession) -> DataFrame:
    stream = spark.readStream.schema("id long, key string").option("maxFilesPerTrigger", 1)
    return stream.parquet(os.environ["TIDELOCK_CHAOS_INPUT"])


@pipeline.operator
def once(numbers: DataFrame) -> DataFrame:
    return numbers.dropDuplicates(["id"])


pipeline.publish("once", subject="publisher.once")
