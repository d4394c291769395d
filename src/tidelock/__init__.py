"""Tidelock: epoch logs between PySpark streaming queries, for recovery that is fast and exactly once.

Names are loaded when they are first used, so that what needs no Spark does not wait for it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tidelock.error_notes import listen
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
from tidelock.release import version

listen()

if TYPE_CHECKING:
    from tidelock import coordination
    from tidelock.cache import aggregates
    from tidelock.caching.reading import cached_state
    from tidelock.home.events import RunEvent
    from tidelock.home.status import SegmentStatus, Status
    from tidelock.log import EpochLog, Retention
    from tidelock.recovery import Policy
    from tidelock.running.pipeline import Pipeline
    from tidelock.running.run import Run
    from tidelock.spark.connector.reading import read_log, read_logs
    from tidelock.spark.processes.session import SETTINGS, session
    from tidelock.spark.query.batches import Work
    from tidelock.spark.segments.keyed import keyed
    from tidelock.spark.sinks.log import write_log
    from tidelock.spark.sinks.sink import Sink
    from tidelock.spark.topics.topics import kafka_records, read_topic

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
    "Policy",
    "Retention",
    "Run",
    "RunEvent",
    "SchemaMismatch",
    "SegmentStatus",
    "Sink",
    "Status",
    "TidelockError",
    "UnsupportedFormat",
    "Work",
    "__version__",
    "aggregates",
    "cached_state",
    "coordination",
    "kafka_records",
    "keyed",
    "read_log",
    "read_logs",
    "read_topic",
    "session",
    "write_log",
]

_HOMES = {
    "Policy": "tidelock.recovery",
    "Run": "tidelock.running.run",
    "Sink": "tidelock.spark.sinks.sink",
    "Work": "tidelock.spark.query.batches",
    "EpochLog": "tidelock.log",
    "RunEvent": "tidelock.home.events",
    "Pipeline": "tidelock.running.pipeline",
    "Retention": "tidelock.log",
    "SegmentStatus": "tidelock.home.status",
    "Status": "tidelock.home.status",
    "SETTINGS": "tidelock.spark.processes.session",
    "aggregates": "tidelock.cache",
    "cached_state": "tidelock.caching.reading",
    "kafka_records": "tidelock.spark.topics.topics",
    "keyed": "tidelock.spark.segments.keyed",
    "read_log": "tidelock.spark.connector.reading",
    "read_logs": "tidelock.spark.connector.reading",
    "read_topic": "tidelock.spark.topics.topics",
    "session": "tidelock.spark.processes.session",
    "write_log": "tidelock.spark.sinks.log",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return version()
    if name == "coordination":
        return import_module("tidelock.coordination")
    if name not in _HOMES:
        raise AttributeError(f"module 'tidelock' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
