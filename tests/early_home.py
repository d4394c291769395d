"""The pipeline of the home in `tests/data`, as its files were read by Tidelock 0.1.0 and are read today.

Run by 0.1.0 it makes that home: `tests/data/README.md` has the line. It kills itself in the middle.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import tidelock

PLACE = Path("/tmp/tidelock-home-of-0.1.0")
"""Checkpoints and logs know where they are, so the home is read where it was made."""
FILES = 8
BEFORE = 5
"""So many files are there when it is killed."""
KILLED_AT = 3
ROWS = 20
SCHEMA = "id long, at timestamp, key string, amount long"


def write_input(place: Path, files: range) -> None:
    """Payments, a file for each epoch; every fifth row is an earlier one again."""
    (place / "input").mkdir(parents=True, exist_ok=True)
    for number in files:
        rows = [payment(number * ROWS + i - 7 * (i % 5 == 4)) for i in range(ROWS)]
        text = "".join(json.dumps(row) + "\n" for row in rows)
        file = place / "input" / f"{number}.json"
        file.write_text(text, encoding="utf-8")
        # Spark takes the oldest first, and none that is a week older than the newest.
        at = (place / "input" / "0.json").stat().st_mtime + number
        os.utime(file, (at, at))


def payment(number: int) -> dict[str, Any]:
    """One payment a second."""
    number = max(number, 0)
    at = f"2026-01-02T03:{number // 60:02}:{number % 60:02}Z"
    return {"id": number, "at": at, "key": f"k{number % 3}", "amount": number}


def pipeline(place: Path, *, killed_at: int | None = None) -> tidelock.Pipeline:
    """Deduplication, windows and totals, each with state and in a segment of its own."""
    made = tidelock.Pipeline("payments", epoch="100 milliseconds")

    @made.source
    def read(spark: SparkSession) -> DataFrame:
        rows = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(f"{place}/input")
        return rows.withWatermark("at", "20 seconds")

    @made.operator(anchor=True)
    def once(read: DataFrame) -> DataFrame:
        return read.dropDuplicates(["id", "at"])

    @made.operator(anchor=True)
    def windows(once: DataFrame) -> DataFrame:
        found = once.groupBy(F.window("at", "10 seconds"), "key").agg(F.sum("amount").alias("amount"))
        return found.select(F.col("window.start").alias("start"), "key", "amount")

    @made.operator(mode="update", anchor=True)
    def totals(once: DataFrame) -> DataFrame:
        return once.groupBy("key").agg(F.sum("amount").alias("amount"), F.count("*").alias("payments"))

    @made.sink
    def keep(totals: DataFrame, epoch: int) -> None:
        if epoch == killed_at:
            os.kill(os.getpid(), signal.SIGKILL)
        rows = [row.asDict() for row in totals.collect()]
        (place / "kept" / f"{epoch}.json").write_text(json.dumps(rows), encoding="utf-8")

    made.files("windows")
    return made


def main() -> None:
    """Make the home, as far as it comes."""
    shutil.rmtree(PLACE, ignore_errors=True)
    write_input(PLACE, range(BEFORE))
    (PLACE / "kept").mkdir()
    spark = tidelock.session("payments", master="local[2,4]", settings={"spark.sql.shuffle.partitions": "1"})
    pipeline(PLACE, killed_at=KILLED_AT).run(spark, PLACE / "home", last_epoch=FILES - 1)


if __name__ == "__main__":
    sys.exit(main())
