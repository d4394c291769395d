"""Simulated comments on issues and pull requests (Epoch Alignment, section 6.1.1), the same for the same seed.

Every stream is a function of the numbers 0, 1, 2, ... of its rows and of the seed: a replay gives the same rows.
Row n of a stream with r rows per second stands n / r seconds after `START`: that is the event time that windows go
by, whatever the clock says. What a row refers to is recent (how far back it lies follows a Pareto distribution)
and never later than the row itself.

Beside its event time a comment on an issue has the moment at which it was taken in, by the clock, to measure how
late it comes to the end. Spark keeps this moment with the batch, so it does not change in a replay either.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

START = 1_600_000_000
"""The event time of the first rows, in seconds; a whole number of windows."""
SHAPE = 2.0
"""Of the Pareto distribution: the greater, the more recent is what comments refer to."""


@dataclass(frozen=True)
class Settings:
    """How the simulation runs. `HOTNESS_INTERVAL=4` and so on in the environment change it.

    Attributes:
        interval: Seconds between epochs.
        throughput: Comments per second and parallel instance, on issues and on pull requests alike.
        parallelism: In how many parts every stream is made.
        issues: New issues per second.
        pull_requests: New pull requests per second.
        seed: Another seed, other references.
        aligned: Whether the second of two jobs begins aligned.
        result: The SQLite database for the result.
    """

    interval: float = 1.0
    throughput: int = 500
    parallelism: int = 2
    issues: int = 100
    pull_requests: int = 100
    seed: int = 1
    aligned: bool = False
    result: str = "hotness.sqlite"

    @classmethod
    def from_environment(cls) -> Settings:
        """The defaults, and what the environment says."""
        given = {field.name: os.environ.get(f"HOTNESS_{field.name.upper()}") for field in fields(cls)}
        return cls(**{name: _read(getattr(cls, name), text) for name, text in given.items() if text is not None})

    @property
    def epoch(self) -> str:
        """The interval as a pipeline wants it."""
        return f"{round(self.interval * 1000)} milliseconds"

    @property
    def comments(self) -> int:
        """Comments per second of a stream."""
        return self.throughput * self.parallelism

    def rows(self, per_second: float) -> int:
        """How many rows a stream gives in an epoch."""
        return max(1, round(per_second * self.interval))


def _read(default: Any, text: str) -> Any:
    if isinstance(default, bool):
        return text.lower() in ("1", "true", "yes")
    return type(default)(text)


# -- streams


def issue_comments(spark: SparkSession, settings: Settings) -> DataFrame:
    """Comments on issues: `at`, `issue`, `taken`."""
    comments = issue_comment_rows(_numbers(spark, settings, settings.comments), settings)
    return comments.withColumn("taken", F.current_timestamp())


def issues(spark: SparkSession, settings: Settings) -> DataFrame:
    """New issues and their pull requests: `at`, `issue`, `pull_request`."""
    return issue_rows(_numbers(spark, settings, settings.issues), settings)


def pull_request_comments(spark: SparkSession, settings: Settings) -> DataFrame:
    """Comments on pull requests themselves: `at`, `pull_request`."""
    return pull_request_comment_rows(_numbers(spark, settings, settings.comments), settings)


def _numbers(spark: SparkSession, settings: Settings, per_second: float) -> DataFrame:
    stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", settings.rows(per_second))
    return stream.option("numPartitions", settings.parallelism).load()


# -- rows of numbers, which are in a column `value`


def issue_comment_rows(numbers: DataFrame, settings: Settings) -> DataFrame:
    """What `issue_comments` gives, without the moment."""
    newest = _newest(settings.comments, settings.issues)
    return numbers.select(_at(settings.comments), _recent(newest, settings.issues, settings, 1).alias("issue"))


def issue_rows(numbers: DataFrame, settings: Settings) -> DataFrame:
    """What `issues` gives."""
    newest = _newest(settings.issues, settings.pull_requests)
    pull_request = _recent(newest, settings.pull_requests, settings, 2)
    return numbers.select(_at(settings.issues), F.col("value").alias("issue"), pull_request.alias("pull_request"))


def pull_request_comment_rows(numbers: DataFrame, settings: Settings) -> DataFrame:
    """What `pull_request_comments` gives."""
    newest = _newest(settings.comments, settings.pull_requests)
    pull_request = _recent(newest, settings.pull_requests, settings, 3)
    return numbers.select(_at(settings.comments), pull_request.alias("pull_request"))


def _at(per_second: float) -> Column:
    micros = F.floor(F.col("value") * 1_000_000 / per_second) + START * 1_000_000
    return F.timestamp_micros(micros).alias("at")


def _newest(per_second: float, other_per_second: float) -> Column:
    """The newest row of another stream at the time of a row."""
    return F.floor(F.col("value") * other_per_second / per_second)


def _recent(newest: Column, per_second: float, settings: Settings, stream: int) -> Column:
    """A row of another stream that is not later than ``newest``; half of them lie in the last half second."""
    chance = F.pmod(F.xxhash64("value", F.lit(settings.seed), F.lit(stream)), F.lit(1 << 53)) + 1
    back = F.floor(per_second * (F.pow(chance / float(1 << 53), F.lit(-1 / SHAPE)) - 1))
    return F.greatest(newest - back, F.lit(0))
