"""Intervals as Spark writes them."""

from __future__ import annotations

from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from tidelock.errors import PipelineError

_DAYS_OF_A_MONTH = 31  # as in Spark's own triggers


def interval_seconds(spark: SparkSession, text: str, what: str = "epoch") -> float:
    """The seconds of an interval such as `1 second` or `500 milliseconds`; ``what`` names it in the message.

    Raises:
        PipelineError: Spark does not take it for one.
    """
    jvm: Any = spark.sparkContext._jvm
    try:
        intervals = jvm.org.apache.spark.sql.catalyst.util.IntervalUtils
        micros = jvm.java.util.concurrent.TimeUnit.MICROSECONDS
        return float(intervals.getDuration(intervals.fromIntervalString(text), micros, _DAYS_OF_A_MONTH)) / 1e6
    except Py4JJavaError as error:
        raise PipelineError(f"{what}={text!r} is not an interval: write it like '1 second'") from error
