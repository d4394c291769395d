"""The hotness of pull requests, as one job (Epoch Alignment, figure 6.1).

    tidelock run examples/hotness/one_job.py --conf spark.sql.shuffle.partitions=2
    sqlite3 hotness.sqlite "SELECT * FROM hotness ORDER BY since DESC, hotness DESC LIMIT 10"

`simulation.Settings` has what `HOTNESS_...` variables can change, for instance `HOTNESS_INTERVAL=4`.
"""

from __future__ import annotations

import query
import simulation
from pyspark.sql import DataFrame, SparkSession

import tidelock

settings = simulation.Settings.from_environment()
pipeline = tidelock.Pipeline("hotness", epoch=settings.epoch)


@pipeline.source
def issue_comments(spark: SparkSession) -> DataFrame:
    """Comments on issues."""
    return simulation.issue_comments(spark, settings)


@pipeline.source
def issues(spark: SparkSession) -> DataFrame:
    """Issues, each of a pull request."""
    return simulation.issues(spark, settings)


@pipeline.source
def pull_request_comments(spark: SparkSession) -> DataFrame:
    """Comments on pull requests."""
    return simulation.pull_request_comments(spark, settings).withWatermark("at", query.WINDOW)


@pipeline.operator(mode="update")
def hot_issues(issue_comments: DataFrame, issues: DataFrame) -> DataFrame:
    """How many comments each issue has in the present window."""
    return query.reduce_issues(issue_comments, issues)


@pipeline.operator(mode="update")
def hotness(hot_issues: DataFrame, pull_request_comments: DataFrame) -> DataFrame:
    """How many comments each pull request has, with those on its issues."""
    return query.reduce_pull_requests(hot_issues, pull_request_comments)


@pipeline.sink
def result(hotness: DataFrame, epoch: int) -> None:
    """Keep the newest hotness."""
    query.store(settings.result, hotness, epoch)
