"""The victim of `test_kafka_topics.py`: plain topics at both ends, run by `tidelock run`."""

from __future__ import annotations

import os

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import tidelock

SERVERS = os.environ["TIDELOCK_TEST_SERVERS"]
pipeline = tidelock.Pipeline("topics", epoch="200 milliseconds")


@pipeline.source
def readings(spark: SparkSession) -> DataFrame:
    topic = os.environ["TIDELOCK_TEST_TOPIC"]
    return tidelock.read_topic(spark, topic, servers=SERVERS, schema="id long, text string", max_records=50)


@pipeline.operator(anchor=True)
def lengths(readings: DataFrame) -> DataFrame:
    return readings.select("id", F.length("text").alias("length")).where("id % 3 != 0")


pipeline.write_topic("lengths", os.environ["TIDELOCK_TEST_TOPIC"] + ".out", servers=SERVERS, key="id")
