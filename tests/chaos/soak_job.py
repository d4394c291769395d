"""The job of `test_soak.py`: small epochs, state with Spark and in a cache. A sink measures the job.

Numbers come in order, as many in every epoch, so the results up to an epoch can be told without a run. Everything
goes into a database beside the home: results and measures.
"""

from __future__ import annotations

import gc
import os
import sqlite3
import time
from collections import defaultdict
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import redis
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import tidelock
from tidelock import aggregates
from tidelock.cli.demo.leash import session_members

ROWS = 20
KEYS = 7
MEASURE_EVERY = 3.0
PLACE = Path(os.environ.get("TIDELOCK_SOAK_PLACE", "."))
CACHE = os.environ.get("TIDELOCK_SOAK_CACHE", "redis://localhost")

pipeline = tidelock.Pipeline("soak", epoch="300 milliseconds", snapshot_every=5)


@pipeline.source
def numbers(spark: SparkSession) -> DataFrame:
    return spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS).load()


@pipeline.operator(anchor=True)
def keyed(numbers: DataFrame) -> DataFrame:
    return numbers.select((F.col("value") % KEYS).alias("key"), "value")


@pipeline.operator(mode="update", anchor=True)
def sums(keyed: DataFrame) -> DataFrame:
    return keyed.groupBy("key").agg(F.count("*").alias("n"), F.sum("value").alias("total"))


@pipeline.operator(mode="update", anchor=True)
def cached(keyed: DataFrame) -> DataFrame:
    return tidelock.keyed(keyed, "key").aggregate(n=aggregates.count(), total=aggregates.sum("value"))


@pipeline.sink
def store(sums: DataFrame, epoch: int) -> None:
    keep("sums", sums, epoch)
    with closing(sqlite3.connect(PLACE / "soak.db", timeout=60)) as database, database:
        database.execute("CREATE TABLE IF NOT EXISTS measures (at, epoch, name, value)")
        (last,) = database.execute("SELECT coalesce(max(at), 0) FROM measures").fetchone()
        if time.time() - last >= MEASURE_EVERY:
            found = [(time.time(), epoch, *item) for item in measured(sums.sparkSession).items()]
            database.executemany("INSERT INTO measures VALUES (?, ?, ?, ?)", found)


@pipeline.sink
def store_cached(cached: DataFrame, epoch: int) -> None:
    keep("cached", cached, epoch)


def keep(table: str, results: DataFrame, epoch: int) -> None:
    rows = [(*row, epoch) for row in results.select("key", "n", "total").collect()]
    with closing(sqlite3.connect(PLACE / "soak.db", timeout=60)) as database, database:
        database.execute(f"CREATE TABLE IF NOT EXISTS {table} (key PRIMARY KEY, n, total, epoch)")
        database.executemany(f"INSERT OR REPLACE INTO {table} VALUES (?, ?, ?, ?)", rows)


def measured(spark: SparkSession) -> dict[str, int]:
    """What the job has of everything that must not grow: its process, its JVM, and the Python processes below."""
    context: Any = spark.sparkContext
    jvm = context._jvm
    # What Python still refers to stays in Java: what only waits for a collector is nobody's.
    gc.collect()
    jvm.java.lang.System.gc()
    runtime = jvm.java.lang.Runtime.getRuntime()
    found = defaultdict(int, {"memory of Java": runtime.totalMemory() - runtime.freeMemory()})
    for process in session_members(os.getsid(0)):
        with suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            _add(found, _kind(process, context._gateway.proc.pid), Path(f"/proc/{process}"))
    for folder in ("home", "backup"):
        found[f"files in the {folder}"] = sum(len(files) for _, _, files in os.walk(PLACE / folder))
    with closing(redis.Redis.from_url(CACHE)) as cache:
        found["memory of the cache"] = cache.info("memory")["used_memory"]
    return dict(found)


def _kind(process: int, java: int) -> str:
    if process in (os.getpid(), java):
        return "Python" if process == os.getpid() else "Java"
    command = Path(f"/proc/{process}/cmdline").read_text()
    return "workers" if "worker_daemon" in command else "sources"


def _add(found: dict[str, int], kind: str, process: Path) -> None:
    """Add what a process has to what others of its kind have."""
    threads, handles = _number_of(process / "task"), _number_of(process / "fd")
    if kind != "Java":  # most of whose memory is its heap, with what it has not collected yet
        found[f"memory of {kind}"] += _memory(process)
    found[f"threads of {kind}"] += threads
    found[f"handles of {kind}"] += handles
    found[f"processes of {kind}"] += 1


def _memory(process: Path) -> int:
    """Its bytes in memory; of those that it shares with others, as forks do with each other, its part."""
    rollup = dict(line.split(":") for line in (process / "smaps_rollup").read_text().splitlines()[1:])
    return int(rollup["Pss"].split()[0]) << 10


def _number_of(folder: Path) -> int:
    return sum(1 for _ in folder.iterdir())
