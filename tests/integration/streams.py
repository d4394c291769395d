"""What the tests of the connector share: input that comes epoch by epoch, and queries that run to its end."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import tidelock
from tidelock.log import EpochLog

NOW = {"availableNow": True}


class Place:
    """A directory of inputs, logs and checkpoints."""

    def __init__(self, spark: SparkSession, home: Path) -> None:
        self.spark = spark
        self.home = home

    def url(self, name: str) -> str:
        return f"file:{self.home}/{name}"

    def log(self, name: str) -> EpochLog:
        return EpochLog.open(self.url(name))

    def checkpoint(self, name: str) -> str:
        return f"{self.home}/checkpoints/{name}"

    # -- input: a directory of Parquet files, one per epoch

    def feed(self, name: str, epochs: Iterable[Sequence[dict[str, Any]]], schema: pa.Schema | None = None) -> None:
        """Add one file per epoch; a stream over `input` takes one file per batch, oldest first."""
        folder = self.home / "input" / name
        folder.mkdir(parents=True, exist_ok=True)
        first = len(list(folder.iterdir()))
        for number, rows in enumerate(epochs, first):
            aside = self.home / f".{name}.{number}"
            pq.write_table(pa.Table.from_pylist(list(rows), schema=schema), aside)
            os.utime(aside, (1_000_000 + number, 1_000_000 + number))
            aside.rename(folder / f"{number:06}.parquet")

    def input(self, name: str) -> DataFrame:
        path = str(self.home / "input" / name)
        schema = self.spark.read.parquet(path).schema
        return self.spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(path)

    # -- queries

    def write(self, stream: DataFrame, log: str, *, mode: str = "append", **more: Any) -> StreamingQuery:
        """Write what is there now to a log, and wait for it."""
        query = tidelock.write_log(
            stream, self.url(log), checkpoint=self.checkpoint(log), mode=mode, trigger=NOW, **more
        )
        return finish(query)

    def read(self, log: str, **more: Any) -> DataFrame:
        return tidelock.read_log(self.spark, self.url(log), **more)

    def rows(self, log: str) -> dict[int, list[tuple[Any, ...]]]:
        """The rows of every entry that the log holds, sorted, by the entry's last epoch."""
        table = self.spark.read.format("tidelock").option("log", self.url(log)).option("epochColumn", "#").load()
        found: dict[int, list[tuple[Any, ...]]] = {r.last: [] for r in self.log(log).ranges()}
        for row in table.collect():
            found[row["#"]].append(tuple(row)[:-1])
        return {epoch: sorted(rows, key=repr) for epoch, rows in found.items()}

    def last_values(self, log: str, key: str, value: str) -> dict[Any, Any]:
        """An update stream's present: the newest value of each key."""
        table = self.spark.read.format("tidelock").option("log", self.url(log)).option("epochColumn", "#").load()
        found = table.select(key, value, "#").collect()
        return {row[key]: row[value] for row in sorted(found, key=lambda row: row["#"])}


def finish(query: StreamingQuery, patience: int = 120) -> StreamingQuery:
    """Wait for a query that ends by itself; its failure is raised."""
    assert query.awaitTermination(patience), f"not finished within {patience} s"
    return query


def failure(query: StreamingQuery, patience: int = 120) -> str:
    """The text of the failure that ends a query."""
    try:
        query.awaitTermination(patience)
    except StreamingQueryException as error:
        return str(error)
    raise AssertionError("the query did not fail")


@contextmanager
def without_empty_batches(spark: SparkSession) -> Iterator[None]:
    """Inside, Spark makes no batches without news, as in everything that writes a log."""
    spark.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "false")
    try:
        yield
    finally:
        spark.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "true")


def collect(stream: DataFrame, checkpoint: str, mode: str = "append") -> dict[int, list[tuple[Any, ...]]]:
    """Run a stream over what is there now; its rows by batch."""
    batches: dict[int, list[tuple[Any, ...]]] = {}

    def keep(rows: DataFrame, batch: int) -> None:
        batches[batch] = sorted((tuple(row) for row in rows.collect()), key=repr)

    writer = stream.writeStream.outputMode(mode).foreachBatch(keep).trigger(availableNow=True)
    finish(writer.option("checkpointLocation", checkpoint).start())
    return batches
