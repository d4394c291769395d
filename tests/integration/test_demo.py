"""`tidelock demo` as people run it: real processes, real kills, and a result that anybody can compute."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import eventually

from tidelock.cli.demo.deliveries import delivered
from tidelock.cli.demo.proof import expectation, last_counts

EPOCHS, ROWS, SEED = 10, 200, 5

pytestmark = pytest.mark.chaos


def command(home: Path) -> list[str]:
    options = ["--epochs", str(EPOCHS), "--rows", str(ROWS), "--seed", str(SEED), "--home", str(home)]
    return [sys.executable, "-m", "tidelock", "demo", "--json", *options]


def alive(home: Path) -> list[int]:
    """The processes with the home on their command line or in their environment: the demo and all it started."""
    mark = str(home).encode()
    return [int(entry.name) for entry in Path("/proc").glob("[0-9]*") if mark in _told(entry)]


def _told(process: Path) -> bytes:
    try:
        return (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
    except OSError:
        return b""


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    home = tmp_path_factory.mktemp("demo") / "a home"
    done = subprocess.run(command(home), capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    result: dict[str, Any] = json.loads(done.stdout)
    return home, result


def test_the_result_is_that_of_a_computation_without_spark(finished: tuple[Path, dict[str, Any]]) -> None:
    home, result = finished
    expected = expectation(EPOCHS, ROWS, SEED)
    assert result["equal"]
    assert (result["differences"], result["wrong_epochs"]) == ([], [])
    assert (result["epochs"], result["tweets"]) == (EPOCHS, EPOCHS * ROWS)
    assert last_counts(f"{home}/logs/counts") == result["counts"] == expected.counts
    assert delivered(home / "trends.sqlite").rankings == expected.rankings


def test_one_segment_failed_once_and_recovered_alone(finished: tuple[Path, dict[str, Any]]) -> None:
    home, result = finished
    segment = result["segment"]
    assert (segment["name"], segment["kills"]) == ("counts", 4)
    assert segment["at"] <= segment["failed_at"] < segment["recovered_at"] < result["process"]["at"]
    # How far the others come meanwhile depends on the machine; none of them goes back or fails.
    assert all(segment["after"][name] >= epoch for name, epoch in segment["before"].items())
    events = [json.loads(line) for line in (home / "events.jsonl").read_text().splitlines()]
    for kind in ("segment failed", "segment restart", "segment recovered"):
        assert [event["segment"] for event in events if event["kind"] == kind] == ["counts"]


def test_the_process_was_killed_once_and_went_on(finished: tuple[Path, dict[str, Any]]) -> None:
    home, result = finished
    process = result["process"]
    assert process["exit_code"] == -signal.SIGKILL
    assert process["pid"] != process["resumed_pid"]
    assert 0 <= process["epoch"] < EPOCHS - 1
    kinds = [json.loads(line)["kind"] for line in (home / "events.jsonl").read_text().splitlines()]
    assert [kind for kind in kinds if kind.startswith("run ")] == ["run started", "run resumed", "run ended"]


def test_nothing_is_left_running(finished: tuple[Path, dict[str, Any]]) -> None:
    home, _ = finished
    eventually(lambda: not alive(home), "the Python workers have followed their JVM")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 130), (signal.SIGKILL, -9)])
def test_no_process_outlives_the_demo(tmp_path: Path, number: int, code: int) -> None:
    home = tmp_path / "home"
    demo = subprocess.Popen(command(home), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    eventually(lambda: len(alive(home)) >= 3, "the demo, the pipeline's process and its JVM are there")
    os.kill(demo.pid, number)
    demo.communicate(timeout=60)
    assert demo.returncode == code
    eventually(lambda: not alive(home), "all processes of the demo are gone")
