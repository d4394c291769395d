"""How a pipeline is doing: of a running one from its process, of any other from what it left in its home."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from tidelock.epochs import BEFORE_FIRST, Epoch
from tidelock.errors import BackendUnavailable, LogNotFound
from tidelock.home.events import Events, RunEvent
from tidelock.home.home import Home, Record, SegmentRecord
from tidelock.home.status import SegmentStatus, Status
from tidelock.log import EpochLog
from tidelock.recovery import SegmentState
from tidelock.running.gauges import SegmentView
from tidelock.running.lookout import Sighting
from tidelock.running.pending import Pending, PendingLog
from tidelock.spark.checkpoint.checkpoint import Checkpoint
from tidelock.urls import masked

_STALE_RATE = 10.0
"""After how many seconds without a batch a segment's rate is told as nothing."""
_OF_LOGS = ("lag", "log_bytes", "pending_epochs", "pending_bytes")
_OF_GAUGES = {"state_rows": 0, "state_bytes": 0, "restarts": 0, "last_error": None}


def running_status(
    record: Record, seen: Sighting, events: Events, began: float, drift: Mapping[str, Any] | None
) -> Status:
    """The status of a pipeline that this process runs. Any thread may ask for it; no store is asked."""
    segments = tuple(_running(seen.view.segments[s.name], s, seen.pending) for s in record.segments)
    return Status(
        record.pipeline,
        seen.view.state,
        time.time(),
        began,
        min(segment.epoch for segment in segments),
        segments,
        _subjects(record),
        events.newest,
        drift,
    )


def status(home: Home) -> Status:
    """The status of a home, whoever asks; ``state`` says whether a process runs it.

    Raises:
        PipelineError: nothing has run there.
    """
    record = home.known()
    document, held = home.document("status"), home.is_held()
    if document is not None and held:
        return Status.from_json(document)
    pending = _found(record)
    segments = tuple(_resting(home, segment, pending) for segment in record.segments)
    ended = document["state"] if document and document["state"] in ("stopped", "failed") else "killed"
    return Status(
        record.pipeline,
        "starting" if held else ended,
        time.time(),
        document["began"] if document else None,
        min(segment.epoch for segment in segments),
        segments,
        _subjects(record),
        tuple(map(RunEvent.from_json, home.events()[-20:])),
        document.get("drift") if document else None,
    )


def _subjects(record: Record) -> dict[str, str]:
    return {subject: masked(url) for subject, url in record.subjects.items()}


def _running(view: SegmentView, segment: SegmentRecord, pending: Mapping[str, Pending]) -> SegmentStatus:
    gauge = view.gauge
    fresh = time.monotonic() - gauge.at < _STALE_RATE
    return SegmentStatus(
        **_where(segment, view.epoch, pending),
        state=_state(view),
        state_rows=gauge.state_rows,
        state_bytes=gauge.state_bytes,
        rows_per_second=round(gauge.rows_per_second, 1) if fresh else 0.0,
        rows_in_per_second=round(gauge.rows_in_per_second, 1) if fresh else 0.0,
        batch_seconds=round(gauge.batch_seconds, 3),
        restarts=view.restarts,
        last_error=view.last_error,
    )


def _state(view: SegmentView) -> str:
    if view.state is SegmentState.RUNNING and view.paused:
        return "paused"
    if view.state is SegmentState.BACKING_OFF or (view.state is SegmentState.STARTING and view.restarts):
        return "restarting"
    return str(view.state.value)


def _resting(home: Home, segment: SegmentRecord, pending: Mapping[str, Pending] | None) -> SegmentStatus:
    epoch = Checkpoint(None, home.checkpoint(segment.name)).position()
    known = _last_known(home, segment.name)
    of_logs = {} if pending is not None else {name: known[name] for name in _OF_LOGS if name in known}
    gauges = {name: known.get(name, unknown) for name, unknown in _OF_GAUGES.items()}
    idle = {"state": "stopped", "rows_per_second": 0.0, "rows_in_per_second": 0.0, "batch_seconds": 0.0}
    return SegmentStatus(**{**_where(segment, epoch, pending or {}), **of_logs, **gauges, **idle})


def _last_known(home: Home, segment: str) -> dict[str, Any]:
    """What the last process of the home has written down about a segment."""
    document = home.document("status") or {"segments": []}
    return next((dict(found) for found in document["segments"] if found["name"] == segment), {})


def _found(record: Record) -> dict[str, Pending] | None:
    """How it is with the logs; None if their store does not answer."""
    found = {}
    for segment in record.segments:
        if segment.log is not None:
            try:
                log = PendingLog(EpochLog.open(segment.log), record.readers(segment.name))
            except LogNotFound:
                continue
            except BackendUnavailable:
                return None
            found[segment.name] = log.seen()
    return found


def _where(segment: SegmentRecord, epoch: Epoch, pending: Mapping[str, Pending]) -> dict[str, Any]:
    """What can be said of a segment by looking at its position and at the logs."""
    ahead = [pending[log].newest + lag for log, lag in segment.inputs if log in pending]
    lag = max(0, max(ahead) - epoch) if ahead else 0
    own = pending.get(segment.name, Pending())
    return {
        "name": segment.name,
        "operators": segment.operators,
        "inputs": tuple(log for log, _ in segment.inputs),
        "epoch": epoch if epoch > BEFORE_FIRST else -1,
        "lag": lag,
        "log_bytes": own.held_bytes,
        "pending_epochs": own.epochs,
        "pending_bytes": own.bytes,
    }
