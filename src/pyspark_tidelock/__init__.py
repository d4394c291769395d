"""Makes `format("tidelock")` known to every Spark session: Spark looks for packages called `pyspark_*`."""

from tidelock.spark.connector.source import TidelockSource as DefaultSource

__all__ = ["DefaultSource"]
