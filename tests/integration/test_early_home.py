"""A home that 0.1.0 has left in the middle of an epoch goes on with today's code as if nothing had happened."""

from __future__ import annotations

import fcntl
import json
import shutil
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.early_home import BEFORE, FILES, KILLED_AT, PLACE, ROWS, SCHEMA, pipeline, write_input

from tidelock.home.home import Home

ARCHIVE = Path(__file__).parents[1] / "data" / "home-of-0.1.0.tar.gz"
DELAY = 20
"""How many seconds late rows may be."""


@pytest.fixture
def place() -> Iterator[Path]:
    """What 0.1.0 has left, where it was; one test of this machine at a time."""
    with _locked(PLACE.with_suffix(".lock")):
        shutil.rmtree(PLACE, ignore_errors=True)
        with tarfile.open(ARCHIVE) as archive:
            archive.extractall(PLACE.parent, filter="data")
        yield PLACE
        shutil.rmtree(PLACE)


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    with file.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


def _kept(place: Path) -> dict[int, list[dict[str, Any]]]:
    return {int(file.stem): json.loads(file.read_text()) for file in (place / "kept").iterdir()}


def test_a_home_of_0_1_0_goes_on_where_it_was_killed(spark: SparkSession, place: Path) -> None:
    before = _kept(place)
    assert sorted(before) == list(range(KILLED_AT))
    write_input(place, range(BEFORE, FILES))
    status = pipeline(place).run(spark, place / "home", availableNow=True)
    kinds = [event["kind"] for event in Home(place / "home").events()]
    assert "run resumed" in kinds and "segment failed" not in kinds
    kept = _kept(place)
    assert {epoch: kept[epoch] for epoch in before} == before, "what was delivered is not delivered again"
    assert sorted(kept) == list(range(status.epoch + 1)), "every epoch was delivered"

    unique = spark.read.schema(SCHEMA).json(f"{place}/input").dropDuplicates(["id"]).collect()
    assert len(unique) == FILES * ROWS * 4 // 5
    newest = {row["key"]: row for epoch in sorted(kept) for row in kept[epoch]}
    for key in ("k0", "k1", "k2"):
        amounts = [row["amount"] for row in unique if row["key"] == key]
        assert newest.pop(key) == {"key": key, "amount": sum(amounts), "payments": len(amounts)}
    assert newest == {}

    sums: dict[tuple[int, str], int] = {}
    for row in unique:
        begins = row["id"] // 10 * 10
        sums[begins, row["key"]] = sums.get((begins, row["key"]), 0) + row["amount"]
    closed = max(row["id"] for row in unique) - DELAY
    wanted = sorted((begins, key, amount) for (begins, key), amount in sums.items() if begins + 10 <= closed)
    origin = datetime(2026, 1, 2, 3, tzinfo=UTC)
    found = spark.read.parquet(f"{place}/home/out/windows_files").collect()
    seconds = [int((row["start"].astimezone(UTC) - origin).total_seconds()) for row in found]
    rows = [(begins, row["key"], row["amount"]) for begins, row in zip(seconds, found, strict=True)]
    assert sorted(rows) == wanted, "every window that is closed, once"
