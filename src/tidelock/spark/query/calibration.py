"""A pipeline that is made to be measured: epochs and state of known sizes, and code that fails on demand."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from tidelock.spark.query.queries import compute

if TYPE_CHECKING:
    import pyarrow as pa

ROWS = 200_000
"""The rows of a large epoch; its keys are as many."""
LARGE_EPOCHS = (0, 3, 6)
_SMALL = 10
"""The rows of any other epoch."""


@contextmanager
def few_partitions(spark: SparkSession) -> Iterator[None]:
    """As many partitions of state as there are cores: it is bytes that are to be measured, not files."""
    before = str(spark.conf.get("spark.sql.shuffle.partitions"))
    spark.conf.set("spark.sql.shuffle.partitions", str(spark.sparkContext.defaultParallelism))
    try:
        yield
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", before)


def numbers(spark: SparkSession) -> DataFrame:
    """A stream of keys with some text, in large and small epochs."""
    made = (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", ROWS)
        .option("numPartitions", 2)
        .option("startTimestamp", 0)
        .load()
    )
    epoch = F.floor(F.col("value") / ROWS)
    wanted = epoch.isin(*LARGE_EPOCHS) | (F.col("value") % (ROWS // _SMALL) == 0)
    key = F.col("value") % ROWS
    return made.where(wanted).select(key.alias("key"), F.sha2(key.cast("string"), 256).alias("text"))


def fragile(rows: DataFrame, switch: Path) -> DataFrame:
    """The same rows through Python: every file in ``switch`` makes one attempt of the first task fail."""
    first = first_failure(switch)

    def pass_on(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = TaskContext.get()
        for token in sorted(switch.glob("*")) if task and task.partitionId() == 0 else ():
            token.unlink()
            if not first.exists():
                first.touch()
            raise RuntimeError("a failure that was asked for")
        yield from batches

    return rows.mapInArrow(pass_on, rows.schema)


def first_failure(switch: Path) -> Path:
    """The file that is made when `fragile` first fails."""
    return switch.parent / "first failure"


def counts(rows: DataFrame) -> DataFrame:
    """How often each key has come."""
    return rows.groupBy("key").count()


def plain_query(spark: SparkSession, checkpoint: str) -> StreamingQuery:
    """A query as anybody writes it, with small batches and no log: what a batch costs at least."""

    def take(rows: DataFrame, batch: int) -> None:
        compute(rows)

    writer: Any = numbers(spark).where(F.col("key") % (ROWS // _SMALL) == 0).writeStream
    started: StreamingQuery = writer.foreachBatch(take).option("checkpointLocation", checkpoint).start()
    return started
