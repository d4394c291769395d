"""The pipeline of the demo: the keywords that trend in a stream of tweets.

`tidelock demo` runs this file with `tidelock run`. It is an ordinary pipeline but for two things: the leash, and
an operator that dies when the demo wants it to.
"""

from __future__ import annotations

import tidelock
from tidelock.cli.demo import deliveries, leash
from tidelock.cli.demo.settings import Settings
from tidelock.spark import demo
from tidelock.spark.frames import DataFrame, SparkSession

settings = Settings.from_environment()
leash.put_on()

# Five epochs may wait in a log: a segment that starts late, or again, does not miss the show.
pipeline = tidelock.Pipeline("trending", epoch="2 seconds", max_pending_epochs=5)


@pipeline.source
def tweets(spark: SparkSession) -> DataFrame:
    """Texts, the same ones whenever they are asked for again."""
    return demo.tweets(demo.numbers(spark, settings.rows), settings.seed)


@pipeline.operator
def words(tweets: DataFrame) -> DataFrame:
    """Every word of every text."""
    return tweets.selectExpr("explode(split(text, ' ')) AS word")


@pipeline.operator
def wanted(words: DataFrame) -> DataFrame:
    """The words that mean something."""
    return words.where(~words["word"].isin(*demo.STOP_WORDS))


@pipeline.operator(mode="update")
def counts(wanted: DataFrame) -> DataFrame:
    """How often each word has come so far."""
    return demo.mortal(wanted, settings.switch).groupBy("word").count()


@pipeline.operator(mode="complete")
def top(counts: DataFrame) -> DataFrame:
    """The most frequent words."""
    return demo.most_frequent(counts)


@pipeline.sink
def store(top: DataFrame, epoch: int) -> None:
    """Put the list of an epoch into the database, together with the epoch."""
    deliveries.deliver(settings.database, epoch, [(row["word"], row["count"]) for row in top.collect()])


pipeline.publish("counts", subject="trending.counts", keep_epochs=settings.epochs)  # for the comparison at the end
