"""The victim of `test_kafka_logs.py`: a pipeline in three segments, run by `tidelock run`."""

from __future__ import annotations

import os

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import tidelock

pipeline = tidelock.Pipeline("job", epoch="200 milliseconds")


@pipeline.source
def numbers(spark: SparkSession) -> DataFrame:
    stream = spark.readStream.schema("id long, key string").option("maxFilesPerTrigger", 1)
    return stream.parquet(os.environ["TIDELOCK_TEST_INPUT"])


@pipeline.operator(anchor=True)
def once(numbers: DataFrame) -> DataFrame:
    return numbers.dropDuplicates(["id"])


@pipeline.operator(mode="update", anchor=True)
def sums(once: DataFrame) -> DataFrame:
    return once.groupBy("key").agg(F.count("*").alias("n"), F.sum("id").alias("total"))


pipeline.files("sums")
