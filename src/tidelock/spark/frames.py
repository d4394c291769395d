"""Spark's own types, for those who only hand them on."""

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["DataFrame", "PySparkException", "SparkSession", "StreamingQuery"]
