"""Tidelock: epoch logs between PySpark streaming queries, for recovery that is fast and exactly once.

Names are loaded when they are first used, so that what needs no Spark does not wait for it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    from tidelock.log import EpochLog, Retention
    from tidelock.runtime.cached_reading import cached_state
    from tidelock.runtime.pipeline import Pipeline
    from tidelock.spark.keyed import keyed
    from tidelock.spark.reading import read_log, read_logs
    from tidelock.spark.session import SETTINGS, session
    from tidelock.spark.sink import write_log
    from tidelock.spark.topics import kafka_records
    from tidelock.state import aggregates

__all__ = [
    "SETTINGS",
    "BackendUnavailable",
    "BatchFailed",
    "EpochLog",
    "Fenced",
    "InternalError",
    "LogCorrupt",
    "LogNotFound",
    "Pipeline",
    "PipelineError",
    "PlanError",
    "Retention",
    "SchemaMismatch",
    "TidelockError",
    "UnsupportedFormat",
    "aggregates",
    "cached_state",
    "kafka_records",
    "keyed",
    "read_log",
    "read_logs",
    "session",
    "write_log",
]

_HOMES = {
    "EpochLog": "tidelock.log",
    "Pipeline": "tidelock.runtime.pipeline",
    "Retention": "tidelock.log",
    "SETTINGS": "tidelock.spark.session",
    "aggregates": "tidelock.state",
    "cached_state": "tidelock.runtime.cached_reading",
    "kafka_records": "tidelock.spark.topics",
    "keyed": "tidelock.spark.keyed",
    "read_log": "tidelock.spark.reading",
    "read_logs": "tidelock.spark.reading",
    "session": "tidelock.spark.session",
    "write_log": "tidelock.spark.sink",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'tidelock' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
