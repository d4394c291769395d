"""What the listener hears is what Spark says of its batches."""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from tests.integration.streams import Place, finish
from tests.waiting import eventually

from tidelock.spark.query.listening import BatchProgress, Listener, recent


def test_every_batch_and_the_end_are_heard_as_spark_tells_them(spark: SparkSession, place: Place) -> None:
    heard: list[BatchProgress] = []
    ended: list[str] = []
    listener = Listener(heard.append, ended.append)
    spark.streams.addListener(listener)
    try:
        place.feed("numbers", [[{"value": number} for number in range(10)]] * 3)
        counted = place.input("numbers").groupBy((F.col("value") % 3).alias("key")).count()
        writer = counted.writeStream.format("noop").outputMode("update").trigger(availableNow=True)
        query = finish(writer.option("checkpointLocation", place.checkpoint("counted")).start())
        run = str(query.runId)
        eventually(lambda: run in ended, "the end is heard")
    finally:
        spark.streams.removeListener(listener)
    # An earlier query of the session may still be heard of.
    assert ended.count(run) == 1
    heard = [one for one in heard if one.run == run]
    told = query.recentProgress
    assert [(one.batch, one.rows, one.seconds) for one in heard] == [
        (progress.batchId, progress.numInputRows, progress.batchDuration / 1000) for progress in told
    ]
    assert [one.rows for one in heard] == [10, 10, 10]
    assert heard[-1].state_rows == 3
    assert heard[-1].state_bytes == told[-1].stateOperators[0].memoryUsedBytes
    assert recent(query) == heard
