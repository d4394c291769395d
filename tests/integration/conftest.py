from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.integration.streams import Place

import tidelock
from tidelock.running.run import Run

WORKERS = Path(__file__).parent / "workers"
"""What Spark's Python processes have on their path beside what they have anyway."""


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One session for all tests: local, with task retries, as users get it."""
    os.environ["PYTHONPATH"] = os.pathsep.join([str(WORKERS), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
    session = tidelock.session(
        "tidelock-tests",
        master="local[2,4]",
        settings={
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.driver.memory": "2g",
        },
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture
def place(spark: SparkSession, tmp_path: Path) -> Iterator[Place]:
    """Directories for one test, and the queries that it started, which do not outlive it."""
    made = Place(spark, tmp_path)
    yield made
    for query in spark.streams.active:
        query.stop()


@pytest.fixture
def started() -> Iterator[list[Run]]:
    """Runs that do not outlive their test."""
    runs: list[Run] = []
    yield runs
    for run in runs:
        run.stop(drain=False)
        with suppress(tidelock.TidelockError):
            run.wait(60)
