"""Streams that have news at every trigger and never a row, so that a query makes an epoch without data.

Spark's own source for that is used, except where a query takes what is there (`availableNow`): there Spark's gives
news once, and a head may have to go on with empty epochs until the others are done as well. Both have the same
offsets, so a query goes from one to the other and back on the same checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from tidelock.spark.connector.registering import register_source

_MARK = "tick"


def ticks(spark: SparkSession, schema: StructType, *, endless: bool = False) -> DataFrame:
    """A stream of this schema with news at every trigger; ``endless``: also if a query takes what is there."""
    if endless:
        register_source(spark, TickSource)
        stream = spark.readStream.format(TickSource.name()).load()
    else:
        stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    columns: list[Any] = [F.lit(None).cast(f.dataType).alias(f.name) for f in schema]
    return stream.where(F.lit(False)).select(columns)


def is_tick(offset: Mapping[str, Any]) -> bool:
    """Whether an offset in a checkpoint is one of endless ticks."""
    return _MARK in offset


class TickSource(DataSource):
    """Endless ticks."""

    @classmethod
    def name(cls) -> str:
        """The name for `format(...)`."""
        return "tidelock-ticks"

    def schema(self) -> str:
        """A column, because a source needs one."""
        return "value long"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """The stream."""
        return TickStream()


class TickStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Always a step further, and nothing to read. The fields are those of Spark's source `rate-micro-batch`."""

    def initialOffset(self) -> dict[str, Any]:
        """Before the first tick."""
        return {"offset": 0, "timestamp": 0, _MARK: True}

    def prepareForTriggerAvailableNow(self) -> None:
        """Nothing: there is no end."""

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The next tick."""
        return {"offset": start["offset"] + 1, "timestamp": start["timestamp"] + 1000, _MARK: True}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """None."""
        return []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Never called."""
        return iter(())
