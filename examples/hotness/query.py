"""The hotness of pull requests: the two reductions of the query, and where its result goes.

The hotness of a pull request is the number of comments on it and on its issues, in windows of eight seconds. A
window does not wait for its end: every epoch has the new values of what has changed (mode `update`), as the custom
trigger of the thesis has it. So both reductions give *changes*: a row replaces an earlier one of its key, and who
reads it counts the newest row of every key.

An update query of Spark may keep state in one place only. That is why an operator does in one aggregation what the
figures of the thesis draw as two circles: comments are reduced and meet their issue in the same window and group,
and comments on pull requests are reduced together with the union (before its shuffle Spark reduces them anyway).
"""

from __future__ import annotations

import json
import sqlite3
import time
from contextlib import closing

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

WINDOW = "8 seconds"

_TABLES = """
CREATE TABLE IF NOT EXISTS hotness (since, pull_request, hotness, epoch, PRIMARY KEY (since, pull_request));
CREATE TABLE IF NOT EXISTS epochs (epoch PRIMARY KEY, begun_at, delivered_at, taken);
"""


def reduce_issues(issue_comments: DataFrame, issues: DataFrame) -> DataFrame:
    """Issues of the present window that have comments: `at`, `issue`, `pull_request`, `comments`, `taken`."""
    said = issue_comments.selectExpr(
        "at", "issue", "CAST(NULL AS LONG) AS pull_request", "1L AS comments", "taken"
    )
    known = issues.selectExpr("at", "issue", "pull_request", "0L AS comments", "CAST(NULL AS TIMESTAMP) AS taken")
    together = said.union(known).withWatermark("at", WINDOW)
    reduced = together.groupBy(F.window("at", WINDOW), "issue").agg(
        F.max("pull_request").alias("pull_request"),
        F.sum("comments").alias("comments"),
        F.max("taken").alias("taken"),
    )
    found = reduced.where("pull_request IS NOT NULL AND comments > 0")
    return found.select(F.window_time("window").alias("at"), "issue", "pull_request", "comments", "taken")


def reduce_pull_requests(hot_issues: DataFrame, pull_request_comments: DataFrame) -> DataFrame:
    """Pull requests of the present window: `since`, `pull_request`, `hotness`, `taken`, `begun`.

    `begun` is the moment at which the batch began that has computed the row.
    """
    through_issues = hot_issues.selectExpr("at", "pull_request", "struct(issue, comments) AS change", "taken")
    direct = pull_request_comments.selectExpr("at", "pull_request", "NULL AS change", "NULL AS taken")
    reduced = (
        through_issues.union(direct)
        .groupBy(F.window("at", WINDOW), "pull_request")
        .agg(
            (F.count_if(F.isnull("change")) + _sum_of_newest(F.collect_set("change"))).alias("hotness"),
            F.max("taken").alias("taken"),
        )
    )
    since, begun = F.col("window.start").alias("since"), F.current_timestamp().alias("begun")
    return reduced.select(since, "pull_request", "hotness", "taken", begun)


def _sum_of_newest(changes: Column) -> Column:
    """The comments of all issues in ``changes``; counts only grow, so the greatest of an issue is its newest."""
    ordered = F.sort_array(changes)
    counted = F.zip_with(
        ordered,
        F.slice(ordered, F.lit(2), F.size(ordered)),
        lambda one, after: F.when(one["issue"].eqNullSafe(after["issue"]), F.lit(0)).otherwise(one["comments"]),
    )
    return F.aggregate(counted, F.lit(0).cast("long"), lambda total, comments: total + comments)


def store(path: str, hotness: DataFrame, epoch: int) -> None:
    """Keep the newest hotness, and when the epoch came with comments of which moments: one transaction."""
    rows = hotness.collect()
    begun = max((row["begun"].timestamp() for row in rows), default=None)
    moments = sorted({row["taken"].timestamp() for row in rows if row["taken"] is not None})
    with closing(sqlite3.connect(path, timeout=60)) as database, database:
        database.executescript(_TABLES)
        database.executemany(
            "INSERT OR REPLACE INTO hotness VALUES (?, ?, ?, ?)",
            [(row["since"].timestamp(), row["pull_request"], row["hotness"], epoch) for row in rows],
        )
        told = (epoch, begun, time.time(), json.dumps(moments))
        database.execute("INSERT OR REPLACE INTO epochs VALUES (?, ?, ?, ?)", told)
