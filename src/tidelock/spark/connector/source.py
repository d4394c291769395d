"""`spark.readStream.format("tidelock")`: what Spark is told of an epoch log as a source."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
)
from pyspark.sql.types import LongType, StructType, TimestampType

from tidelock.log import EpochLog
from tidelock.spark.connector.following import FollowStream
from tidelock.spark.connector.options import ReadOptions
from tidelock.spark.connector.streams import LogBatch, LogStream
from tidelock.spark.schema import readable, select
from tidelock.urls import masked


class TidelockSource(DataSource):
    """The data source `tidelock`. Options: see `docs/reading-and-writing.md`."""

    @classmethod
    def name(cls) -> str:
        """The name for `format(...)`."""
        return "tidelock"

    def schema(self) -> StructType:
        """The columns of the log, and those that the options add."""
        options = self._options()
        return source_schema(EpochLog.open(options.log).header.schema, options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A stream over the log that reads the columns of ``schema``."""
        options = self._options()
        if options.instruction is None:
            return LogStream(options, schema)
        return FollowStream(options, schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch over everything that the log holds now."""
        return LogBatch(self._options(), schema)

    def _options(self) -> ReadOptions:
        return ReadOptions.parse(dict(self.options), os.cpu_count() or 1)


def source_schema(
    described: Mapping[str, Any], options: ReadOptions, columns: Sequence[str] | None = None
) -> StructType:
    """What a reader with these options delivers of a log; only ``columns`` of it, if they are given.

    Raises:
        SchemaMismatch: one of the columns is not there.
    """
    schema = readable(described)
    if columns is not None:
        schema = select(schema, columns, masked(options.log))
    if options.epoch_column:
        schema = schema.add(options.epoch_column, LongType())
    if options.watermark_column:
        schema = schema.add(options.watermark_column, TimestampType())
    return schema
