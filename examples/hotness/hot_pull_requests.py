"""The second of two jobs for the hotness of pull requests (Epoch Alignment, figure 6.2).

    tidelock run examples/hotness/hot_issues.py --conf spark.sql.shuffle.partitions=2 &
    tidelock run examples/hotness/hot_pull_requests.py --conf spark.sql.shuffle.partitions=2 &
    tidelock align hot-pull-requests
    sqlite3 hotness.sqlite "SELECT * FROM hotness ORDER BY since DESC, hotness DESC LIMIT 10"

It follows the subject of the first job, which has to be there before. Until it is aligned it takes what is
published at its own interval; from then on one epoch of the first job is one epoch of this one.

What it follows and the comments on pull requests are read in one segment, so that each batch has something of both
and the subject alone says when a batch begins.
"""

from __future__ import annotations

import query
import simulation
from pyspark.sql import DataFrame, SparkSession

import tidelock

settings = simulation.Settings.from_environment()
pipeline = tidelock.Pipeline("hot-pull-requests", epoch=settings.epoch)

pipeline.subscribe("hotness.issues", name="hot_issues", aligned=settings.aligned)


@pipeline.source
def pull_request_comments(spark: SparkSession) -> DataFrame:
    """Comments on pull requests."""
    return simulation.pull_request_comments(spark, settings).withWatermark("at", query.WINDOW)


@pipeline.operator(mode="update")
def hotness(hot_issues: DataFrame, pull_request_comments: DataFrame) -> DataFrame:
    """How many comments each pull request has, with those on its issues."""
    return query.reduce_pull_requests(hot_issues, pull_request_comments)


@pipeline.sink
def result(hotness: DataFrame, epoch: int) -> None:
    """Keep the newest hotness."""
    query.store(settings.result, hotness, epoch)
