"""The hotness of pull requests as one job and as two: both give what plain Python finds in the same rows."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.waiting import eventually

import tidelock
from tidelock.cli.command import main
from tidelock.log import EpochLog
from tidelock.pipeline.loading import load
from tidelock.running.run import Run

EXAMPLES = Path(__file__).parents[2] / "examples" / "hotness"
SETTINGS = {"INTERVAL": "1", "THROUGHPUT": "40", "PARALLELISM": "2", "ISSUES": "10", "PULL_REQUESTS": "5"}
LAST = 9
"""The last epoch of the issues: ten seconds of event time, so that there are two windows."""

Hotness = dict[tuple[float, int], int]


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tidelock.Pipeline]:
    """Loads one of the job files with settings for tests."""
    monkeypatch.syspath_prepend(str(EXAMPLES))

    def loaded(name: str, **more: str) -> tidelock.Pipeline:
        for key, value in {**SETTINGS, "RESULT": str(tmp_path / "hotness.sqlite"), **more}.items():
            monkeypatch.setenv(f"HOTNESS_{key}", value)
        return load(str(EXAMPLES / f"{name}.py"))

    return loaded


def stored(tmp_path: Path) -> Hotness:
    with closing(sqlite3.connect(tmp_path / "hotness.sqlite")) as database:
        rows = database.execute("SELECT since, pull_request, hotness FROM hotness").fetchall()
    return {(since, pull_request): hotness for since, pull_request, hotness in rows}


def delivered(tmp_path: Path) -> list[int]:
    """The epochs that have come to the sink."""
    if not (tmp_path / "hotness.sqlite").exists():
        return []
    with closing(sqlite3.connect(tmp_path / "hotness.sqlite")) as database:
        tables = database.execute("SELECT name FROM sqlite_master").fetchall()
        return [epoch for (epoch,) in database.execute("SELECT epoch FROM epochs")] if tables else []


def expected(spark: SparkSession, issue_epochs: int, comment_epochs: int) -> Hotness:
    """The result by plain Python, of so many epochs of the first and of the second job's sources."""
    import simulation

    settings = simulation.Settings.from_environment()

    def rows(make: Callable[[DataFrame, Any], DataFrame], per_second: float, epochs: int) -> list[Any]:
        numbers = spark.range(epochs * settings.rows(per_second)).withColumnRenamed("id", "value")
        return make(numbers, settings).collect()

    known = rows(simulation.issue_rows, settings.issues, issue_epochs)
    found = {(window(row), row["issue"]): row["pull_request"] for row in known}
    hotness: Counter[tuple[float, int]] = Counter()
    for row in rows(simulation.issue_comment_rows, settings.comments, issue_epochs):
        pull_request = found.get((window(row), row["issue"]))
        if pull_request is not None:
            hotness[window(row), pull_request] += 1
    for row in rows(simulation.pull_request_comment_rows, settings.comments, comment_epochs):
        hotness[window(row), row["pull_request"]] += 1
    return dict(hotness)


def window(row: Any) -> float:
    return float(row["at"].timestamp() // 8 * 8)


def test_comments_refer_to_what_is_there_already_and_mostly_to_recent_issues(
    spark: SparkSession, example: Callable[..., tidelock.Pipeline]
) -> None:
    example("one_job")
    import simulation

    settings = simulation.Settings.from_environment()
    numbers = spark.range(4000).withColumnRenamed("id", "value")
    born = {row["issue"]: row["at"] for row in simulation.issue_rows(numbers, settings).collect()}
    comments = simulation.issue_comment_rows(numbers, settings).collect()
    ages = [(row["at"] - born[row["issue"]]).total_seconds() for row in comments]
    assert min(ages) >= 0
    assert sum(age <= 1 for age in ages) > len(ages) / 2
    assert sum(age > 8 for age in ages) > 0
    other = simulation.issue_comment_rows(numbers, simulation.Settings(**{**vars(settings), "seed": 2})).collect()
    assert comments == simulation.issue_comment_rows(numbers, settings).collect() != other


@pytest.mark.chaos
def test_one_job_finds_the_hotness(
    spark: SparkSession, example: Callable[..., tidelock.Pipeline], tmp_path: Path
) -> None:
    example("one_job").run(spark, tmp_path / "home", last_epoch=LAST)
    assert stored(tmp_path) == expected(spark, LAST + 1, LAST + 1)


@pytest.mark.chaos
@pytest.mark.parametrize("mode", ["unaligned", "aligned", "aligned on the way"])
def test_two_jobs_find_the_same(
    mode: str,
    spark: SparkSession,
    example: Callable[..., tidelock.Pipeline],
    tmp_path: Path,
    started: list[Run],
) -> None:
    first = example("hot_issues").start(spark, tmp_path / "first", last_epoch=LAST)
    second = example("hot_pull_requests", ALIGNED=str(mode == "aligned")).start(spark, tmp_path / "second")
    started += [first, second]
    if mode == "aligned on the way":
        eventually(lambda: len(delivered(tmp_path)) > 3, "some epochs of the second job")
        assert main(["align", "hot-pull-requests"]) == 0
    assert first.wait(120)
    subject = EpochLog.open(f"{tmp_path}/first/logs/hot_issues")
    eventually(lambda: subject.cursor("hot-pull-requests.hot_issues") == LAST, "all that the first has published")
    second.stop()
    assert second.wait(60)
    assert stored(tmp_path) == expected(spark, LAST + 1, len(delivered(tmp_path)))
