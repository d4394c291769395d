"""Two jobs for the hotness of pull requests with plain files between them: the benchmark's at-least-once.

The first job appends the rows of every batch to a directory while the batch is still under way; if the batch fails
and is done again, its rows are there twice. The second job has Spark's own file stream over that directory and
looks at it several times a second. Nobody waits for a commit, and nobody knows epochs.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import tidelock

sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "hotness"))

import query
import simulation

LOOK_EVERY = 0.25

settings = simulation.Settings.from_environment()
quick = replace(settings, interval=LOOK_EVERY)
between = f"{settings.result}.files"
Path(between).mkdir(exist_ok=True)

first = tidelock.Pipeline("hot-issues-files", epoch=settings.epoch)
second = tidelock.Pipeline("hot-pull-requests-files", epoch=quick.epoch)


@first.source
def issue_comments(spark: SparkSession) -> DataFrame:
    """Comments on issues."""
    return simulation.issue_comments(spark, settings)


@first.source
def issues(spark: SparkSession) -> DataFrame:
    """Issues, each of a pull request."""
    return simulation.issues(spark, settings)


@first.operator(mode="update")
def reduced(issue_comments: DataFrame, issues: DataFrame) -> DataFrame:
    """How many comments each issue has in the present window."""
    return query.reduce_issues(issue_comments, issues)


@first.sink
def appended(reduced: DataFrame) -> None:
    """Add the rows to the files, as often as they come."""
    reduced.write.mode("append").parquet(between)


@second.source
def hot_issues(spark: SparkSession) -> DataFrame:
    """Whatever files there are."""
    schema = "at timestamp, issue long, pull_request long, comments long, taken timestamp"
    return spark.readStream.schema(schema).parquet(between).withWatermark("at", query.WINDOW)


@second.source
def pull_request_comments(spark: SparkSession) -> DataFrame:
    """Comments on pull requests."""
    return simulation.pull_request_comments(spark, quick).withWatermark("at", query.WINDOW)


@second.operator(mode="update")
def hotness(hot_issues: DataFrame, pull_request_comments: DataFrame) -> DataFrame:
    """How many comments each pull request has, with those on its issues."""
    return query.reduce_pull_requests(hot_issues, pull_request_comments)


@second.sink
def result(hotness: DataFrame, epoch: int) -> None:
    """Keep the newest hotness."""
    query.store(settings.result, hotness, epoch)
