"""The first of two jobs for the hotness of pull requests: hot issues (Epoch Alignment, figure 6.2).

It publishes them as the subject `hotness.issues`. The second job is `hot_pull_requests.py`, which says how to run
both.
"""

from __future__ import annotations

import query
import simulation
from pyspark.sql import DataFrame, SparkSession

import tidelock

settings = simulation.Settings.from_environment()
pipeline = tidelock.Pipeline("hot-issues", epoch=settings.epoch)


@pipeline.source
def issue_comments(spark: SparkSession) -> DataFrame:
    """Comments on issues."""
    return simulation.issue_comments(spark, settings)


@pipeline.source
def issues(spark: SparkSession) -> DataFrame:
    """Issues, each of a pull request."""
    return simulation.issues(spark, settings)


@pipeline.operator(mode="update")
def hot_issues(issue_comments: DataFrame, issues: DataFrame) -> DataFrame:
    """How many comments each issue has in the present window."""
    return query.reduce_issues(issue_comments, issues)


pipeline.publish("hot_issues", subject="hotness.issues")
