from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version

import tidelock


def test_the_public_names_are_these_and_sorted_and_there() -> None:
    assert tidelock.__all__ == [
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
    assert all(getattr(tidelock, name) is not None for name in tidelock.__all__)


def test_every_error_has_one_root() -> None:
    errors = [getattr(tidelock, name) for name in tidelock.__all__ if name[0].isupper()]
    raised = [e for e in errors if isinstance(e, type) and issubclass(e, Exception)]
    assert len(raised) == 11
    assert all(issubclass(e, tidelock.TidelockError) for e in raised)


def test_the_shared_tree_and_the_version_are_there_at_once() -> None:
    code = "import tidelock; print(tidelock.coordination.open_tree.__name__, tidelock.__version__)"
    told = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert told.split() == ["open_tree", version("tidelock")]


def test_importing_tidelock_does_not_load_spark() -> None:
    code = "import sys, tidelock, tidelock.log; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
