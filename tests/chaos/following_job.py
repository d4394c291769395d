"""The second of the two jobs of `test_alignment_kills.py`: it adds up what the first one publishes."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import tidelock

pipeline = tidelock.Pipeline("follower", epoch="1 second")
pipeline.subscribe("publisher.once")


@pipeline.operator(mode="update")
def sums(once: DataFrame) -> DataFrame:
    return once.groupBy("key").agg(F.count("*").alias("n"), F.sum("id").alias("total"))


pipeline.files("once")
pipeline.files("sums")
