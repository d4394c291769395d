"""Tidelock: epoch logs between PySpark streaming queries, for recovery that is fast and exactly once."""

from tidelock.errors import (
    BackendUnavailable,
    BatchFailed,
    Fenced,
    InternalError,
    LogCorrupt,
    LogNotFound,
    PipelineError,
    PlanError,
    SchemaMismatch,
    TidelockError,
    UnsupportedFormat,
)
from tidelock.log import EpochLog, Retention
from tidelock.spark.reading import read_log, read_logs
from tidelock.spark.session import SETTINGS, session
from tidelock.spark.sink import write_log

__all__ = [
    "SETTINGS",
    "BackendUnavailable",
    "BatchFailed",
    "EpochLog",
    "Fenced",
    "InternalError",
    "LogCorrupt",
    "LogNotFound",
    "PipelineError",
    "PlanError",
    "Retention",
    "SchemaMismatch",
    "TidelockError",
    "UnsupportedFormat",
    "read_log",
    "read_logs",
    "session",
    "write_log",
]
