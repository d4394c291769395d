"""How a pipeline is doing: of a running one from its process, of any other from what it left in its home."""

from __future__ import annotations

import time
from typing import Any

from tidelock.epochs import BEFORE_FIRST, Epoch
from tidelock.errors import BackendUnavailable, LogNotFound
from tidelock.log import EpochLog
from tidelock.recovery import State
from tidelock.redis.location import masked
from tidelock.runtime.events import Events
from tidelock.runtime.home import Home, Record, SegmentRecord
from tidelock.runtime.pending import Look, PendingLog
from tidelock.runtime.supervisor import Supervisor
from tidelock.spark.checkpoint import Checkpoint

_STALE_RATE = 10.0
"""After how many seconds without a batch a segment's rate is told as nothing."""


def running_status(supervisor: Supervisor, events: Events, began: float) -> dict[str, Any]:
    """The status document of a pipeline that this process runs."""
    logs = {name: pending.look() for name, pending in supervisor.pending.items()}
    segments = [_running(supervisor, segment, logs) for segment in supervisor.record.segments]
    return {
        "pipeline": supervisor.record.pipeline,
        "state": "failed" if supervisor.machine.gave_up else "stopped" if supervisor.machine.done else "running",
        "at": time.time(),
        "began": began,
        "epoch": min(segment["epoch"] for segment in segments),
        "segments": segments,
        "subjects": _subjects(supervisor.record),
        "events": [{"at": e.at, "kind": e.kind, "segment": e.segment, "text": e.text} for e in events.newest],
    }


def status(home: Home) -> dict[str, Any]:
    """The status of a home, whoever asks; ``state`` says whether a process runs it.

    Raises:
        PipelineError: nothing has run there.
    """
    record = home.known()
    document, held = home.document("status"), home.is_held()
    if document is not None and held:
        return document
    segments = [_resting(home, record, segment) for segment in record.segments]
    ended = document["state"] if document and document["state"] in ("stopped", "failed") else "killed"
    events = home.events()
    return {
        "pipeline": record.pipeline,
        "state": "starting" if held else ended,
        "at": time.time(),
        "began": document["began"] if document else None,
        "epoch": min(segment["epoch"] for segment in segments),
        "segments": segments,
        "subjects": _subjects(record),
        "drift": document.get("drift") if document else None,
        "events": [{key: e[key] for key in ("at", "kind", "segment", "text")} for e in events[-20:]],
    }


def _subjects(record: Record) -> dict[str, str]:
    return {subject: masked(url) for subject, url in record.subjects.items()}


def _running(supervisor: Supervisor, segment: SegmentRecord, logs: dict[str, Look]) -> dict[str, Any]:
    machine, gauge = supervisor.machine, supervisor.gauges[segment.name]
    fresh = time.monotonic() - gauge.at < _STALE_RATE
    return {
        **_where(segment, machine.epoch(segment.name), logs),
        "state": _state(supervisor, segment.name),
        "state_rows": gauge.state_rows,
        "state_bytes": gauge.state_bytes,
        "rows_per_second": round(gauge.rows_per_second, 1) if fresh else 0.0,
        "batch_seconds": round(gauge.batch_seconds, 3),
        "restarts": machine.restarts(segment.name),
        "last_error": machine.last_error(segment.name),
    }


def _state(supervisor: Supervisor, segment: str) -> str:
    state = supervisor.machine.state(segment)
    attempt = supervisor.attempts.get(segment)
    if state is State.RUNNING and attempt is not None and attempt.gate.paused:
        return "paused"
    if state is State.BACKING_OFF or (state is State.STARTING and supervisor.machine.restarts(segment)):
        return "restarting"
    return str(state.value)


def _resting(home: Home, record: Record, segment: SegmentRecord) -> dict[str, Any]:
    epoch = Checkpoint(None, home.checkpoint(segment.name)).position()
    pending = {s.name: _pending(s, record) for s in record.segments if s.log is not None}
    looks = {name: found.look() for name, found in pending.items() if found is not None}
    return {**_where(segment, epoch, looks), "state": "stopped", **_last_known(home, segment.name)}


def _last_known(home: Home, segment: str) -> dict[str, Any]:
    document = home.document("status") or {"segments": []}
    names = ("state_rows", "state_bytes", "restarts", "last_error")
    for found in document["segments"]:
        if found["name"] == segment:
            return {**{name: found[name] for name in names}, "rows_per_second": 0.0, "batch_seconds": 0.0}
    empty = {"state_rows": 0, "state_bytes": 0, "restarts": 0, "last_error": None}
    return {**empty, "rows_per_second": 0.0, "batch_seconds": 0.0}


def _pending(segment: SegmentRecord, record: Record) -> PendingLog | None:
    assert segment.log is not None
    try:
        return PendingLog(EpochLog.open(segment.log), record.readers(segment.name))
    except (LogNotFound, BackendUnavailable):
        return None


def _where(segment: SegmentRecord, epoch: Epoch, logs: dict[str, Look]) -> dict[str, Any]:
    """What can be said of a segment by looking at its position and at the logs."""
    ahead = [logs[log].newest + lag for log, lag in segment.inputs if log in logs]
    lag = max(0, max(ahead) - epoch) if ahead else 0
    own = logs.get(segment.name, Look())
    return {
        "name": segment.name,
        "operators": list(segment.operators),
        "inputs": [log for log, _ in segment.inputs],
        "epoch": epoch if epoch > BEFORE_FIRST else -1,
        "lag": lag,
        "log_bytes": own.bytes_held,
        "pending_epochs": own.pending_epochs,
        "pending_bytes": own.pending_bytes,
    }
