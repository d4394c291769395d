"""A pipeline to be planned: readings of sensors, of which the odd ones are counted.

Measure it with `tidelock profile examples/planned.py`, plan it with `tidelock plan examples/planned.py --budget
0.3 --explain`, and run it with `tidelock run examples/planned.py --budget 0.3 --epochs 20`.
"""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import tidelock

pipeline = tidelock.Pipeline("sensors", epoch="2 seconds")


@pipeline.source
def readings(spark: SparkSession) -> DataFrame:
    """Twenty thousand numbered readings in every epoch."""
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 20_000).load()
    return rows.select(F.col("value").alias("number"), (F.col("value") % 5_000).alias("sensor"))


@pipeline.operator
def parsed(readings: DataFrame) -> DataFrame:
    """What a reading says."""
    return readings.withColumn("celsius", F.hash("number") % 60)


@pipeline.operator(failure_rate=4)
def odd(parsed: DataFrame) -> DataFrame:
    """The readings that are worth a look: a tenth of them."""
    return parsed.where("abs(celsius) > 53")


@pipeline.operator(mode="update", failure_rate=2)
def alarms(odd: DataFrame) -> DataFrame:
    """How often each sensor was odd."""
    return odd.groupBy("sensor").count()


@pipeline.sink
def store(alarms: DataFrame, epoch: int) -> None:
    """Here the newest counts would go to a database."""
    alarms.write.format("noop").mode("overwrite").save()
