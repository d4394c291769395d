"""What programs in other languages read of a pipeline: every field, by its name and in its place."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from tests.unit.cli.homes import make_home

from tidelock import RunEvent, SegmentStatus, Status
from tidelock.cli import main
from tidelock.epochs import BEFORE_FIRST, Epoch
from tidelock.home.events import Events
from tidelock.home.home import Home
from tidelock.recovery import SegmentState
from tidelock.running.gauges import Gauge, RunView, SegmentView
from tidelock.running.lookout import Sighting
from tidelock.running.pending import Pending
from tidelock.running.status import running_status

BEGAN, NOW = 1_700_000_000.0, 1_700_000_100.0
NAMED = {
    "name": "named",
    "operators": ["numbers", "named"],
    "inputs": [],
    "epoch": 9,
    "lag": 0,
    "log_bytes": 20_000,
    "pending_epochs": 3,
    "pending_bytes": 1_500,
    "state": "paused",
    "state_rows": 7,
    "state_bytes": 800,
    "rows_per_second": 1234.6,
    "rows_in_per_second": 30.0,
    "batch_seconds": 0.123,
    "restarts": 0,
    "last_error": None,
}
STORE = {
    "name": "store",
    "operators": ["counts", "store"],
    "inputs": ["named"],
    "epoch": -1,
    "lag": 10,
    "log_bytes": 0,
    "pending_epochs": 0,
    "pending_bytes": 0,
    "state": "restarting",
    "state_rows": 0,
    "state_bytes": 0,
    "rows_per_second": 0.0,
    "rows_in_per_second": 0.0,
    "batch_seconds": 0.0,
    "restarts": 1,
    "last_error": "ValueError: no",
}
TOLD = [
    {"at": NOW, "kind": "run started", "segment": None, "text": "trending, 2 segments"},
    {"at": NOW, "kind": "segment failed", "segment": "store", "text": "in epoch 8: no"},
]
LEVELS = {"task_retries": 0, "executors_lost": 0, "segment_restarts": 0, "process_restarts": 0, "restores": 0}
RATES = ("rows_per_second", "rows_in_per_second", "batch_seconds")
OF_LOGS = ("lag", "log_bytes", "pending_epochs", "pending_bytes")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setattr(time, "time", lambda: NOW)
    return make_home(tmp_path / "home")


@pytest.fixture
def status(home: Home) -> Status:
    """What a run tells that has one segment whose log is full, and one that has failed before."""
    events = Events(home)
    events.add("run started", None, "trending, 2 segments")
    events.add("segment failed", "store", "in epoch 8: no", 8)
    gauge = Gauge(1234.56, 0.12345, 7, 800, time.monotonic(), ((1.0, 10), (2.0, 30)))
    named = SegmentView(SegmentState.RUNNING, True, Epoch(9), 0, None, gauge)
    store = SegmentView(SegmentState.STARTING, False, BEFORE_FIRST, 1, "ValueError: no", Gauge())
    pending = {"named": Pending(Epoch(9), 20_000, 3, 1_500)}
    seen = Sighting(0.0, RunView("running", {"named": named, "store": store}), pending)
    return running_status(home.known(), seen, events, BEGAN, None)


def document(home: Home, state: str, segments: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "pipeline": "trending",
        "state": state,
        "at": NOW,
        "began": BEGAN,
        "epoch": -1,
        "segments": segments,
        "subjects": {"numbers.named": f"file:{home.root}/logs/named"},
        "events": TOLD,
        "drift": None,
    }


def told(home: Home, capsys: pytest.CaptureFixture[str]) -> Any:
    assert main(["status", "--home", str(home.root), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_run_tells_these_fields(home: Home, status: Status) -> None:
    assert json.loads(json.dumps(status.to_json())) == document(home, "running", [NAMED, STORE])


def test_the_command_prints_what_the_run_has_told(
    home: Home, status: Status, capsys: pytest.CaptureFixture[str]
) -> None:
    home.put_document("status", status.to_json())
    with home.held():
        answer = told(home, capsys)
    running = document(home, "running", [NAMED, STORE])
    assert answer == {**running, "home": str(home.root), "levels": LEVELS}


def test_a_home_at_rest_has_the_same_fields(
    home: Home, status: Status, capsys: pytest.CaptureFixture[str]
) -> None:
    home.put_document("status", status.to_json())
    idle = {"epoch": -1, "state": "stopped", **dict.fromkeys(RATES, 0.0), **dict.fromkeys(OF_LOGS, 0)}
    killed = document(home, "killed", [{**NAMED, **idle}, {**STORE, **idle}])
    assert told(home, capsys) == {**killed, "home": str(home.root), "levels": LEVELS}


def test_an_event_is_what_the_home_keeps_of_it(home: Home, status: Status) -> None:
    failed = status.events[-1]
    assert failed == RunEvent(NOW, "segment failed", "store", "in epoch 8: no", 8)
    assert home.events()[-1] == failed.to_json() == {**TOLD[-1], "epoch": 8}
    assert RunEvent.from_json(home.events()[-1]) == failed


def test_values_come_back_from_their_json(status: Status) -> None:
    again = Status.from_json(json.loads(json.dumps(status.to_json())))
    assert again.to_json() == status.to_json()
    assert again.segments == status.segments
    assert again.segment("named") == SegmentStatus.from_json(NAMED)
    with pytest.raises(KeyError):
        again.segment("nobody")


def test_what_a_run_of_version_0_1_0_has_written_can_be_read() -> None:
    early = {name: value for name, value in NAMED.items() if name != "rows_in_per_second"}
    assert SegmentStatus.from_json(early).rows_in_per_second == 0.0
