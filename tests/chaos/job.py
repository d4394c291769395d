"""The victim of `test_disasters.py`: a pipeline with a split, run by `tidelock run`.

Numbers come one file per epoch. They are kept as they are (an append stream in files), and they are added up by
key (an update stream in files); the two paths have state of different age at every moment.
"""

from __future__ import annotations

import os

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import tidelock

pipeline = tidelock.Pipeline("job", epoch="200 milliseconds")


@pipeline.source
def numbers(spark: SparkSession) -> DataFrame:
    stream = spark.readStream.schema("id long, key string").option("maxFilesPerTrigger", 1)
    return stream.parquet(os.environ["TIDELOCK_CHAOS_INPUT"])


@pipeline.operator(anchor=True)
def once(numbers: DataFrame) -> DataFrame:
    return numbers.dropDuplicates(["id"])


@pipeline.operator(mode="update")
def sums(once: DataFrame) -> DataFrame:
    return once.groupBy("key").agg(F.count("*").alias("n"), F.sum("id").alias("total"))


pipeline.files("once")
pipeline.files("sums")
