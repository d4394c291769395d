from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.integration.streams import Place

import tidelock
from tidelock.running.run import Run


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
