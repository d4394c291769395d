"""`tidelock run`, `status` and `stop` as people use them: real processes, and a kill -9 in the middle."""

import json
import os
import re
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import eventually

from tidelock.cli.demo.leash import kill_session

EPOCHS, ROWS = 8, 20
PATIENCE = 240.0

PLAN = {"segments": [{"operators": ["payments"]}, {"operators": ["located", "sums", "store"]}]}
PAGE = Path(__file__).parents[2] / "docs" / "pipelines.md"


def example() -> str:
    """The pipeline that the documentation shows, as it stands there."""
    found = re.search(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    assert found is not None
    return found[1]


class Place:
    """A directory with a pipeline's file, its input, its home and its database."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: list[subprocess.Popen[str]] = []
        (folder / "payments.py").write_text(example())
        (folder / "plan.json").write_text(json.dumps(PLAN))
        (folder / "payments").mkdir()

    def feed(self, epochs: range) -> None:
        """Add a file of payments for each of these epochs."""
        for epoch in epochs:
            aside = self.folder / f"{epoch}.aside"
            aside.write_text("\n".join(json.dumps(payment) for payment in payments(epoch)))
            os.utime(aside, (1_000_000 + epoch, 1_000_000 + epoch))
            aside.rename(self.folder / "payments" / f"{epoch:04}.json")

    def run(self, *options: str) -> subprocess.Popen[str]:
        """Start `tidelock run`."""
        settings = ["--master", "local[2,4]", "--conf", "spark.sql.shuffle.partitions=2"]
        process = subprocess.Popen(
            [*_TIDELOCK, "run", "payments.py:pipeline", "--home", "home", "--json", *settings, *options],
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.processes.append(process)
        return process

    def ask(self, command: str, *options: str) -> dict[str, Any]:
        """The answer of another command on the home."""
        done = subprocess.run(
            [*_TIDELOCK, command, "--home", "home", "--json", *options],
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    def newest(self) -> int:
        """The newest epoch in the database, or -1."""
        return max((epoch for _, _, epoch in self._rows()), default=-1)

    def sums(self) -> dict[str, int]:
        return {region: cents for region, cents, _ in self._rows()}

    def _rows(self) -> list[Any]:
        with closing(sqlite3.connect(self.folder / "sums.sqlite", timeout=30)) as database:
            try:
                return database.execute("SELECT region, cents, epoch FROM sums").fetchall()
            except sqlite3.OperationalError:  # its table is not there yet
                return []


def payments(epoch: int) -> list[dict[str, Any]]:
    numbers = range(epoch * ROWS, (epoch + 1) * ROWS)
    return [{"id": n, "customer": "anna" if n % 3 else "zoe", "cents": n} for n in numbers]


_TIDELOCK = [sys.executable, "-m", "tidelock"]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    for process in made.processes:
        with suppress(ProcessLookupError):
            kill_session(process.pid)
        process.communicate()


@pytest.mark.chaos
@pytest.mark.timeout(600)
def test_a_killed_run_goes_on_and_counts_everything_once(place: Place) -> None:
    place.feed(range(EPOCHS // 2))
    killed = place.run("--plan", "plan.json")
    eventually(lambda: place.newest() >= 1 or killed.poll() is not None, "two epochs are stored", PATIENCE)
    assert killed.poll() is None, killed.communicate()[1]
    assert place.ask("status")["state"] == "running"
    killed.kill()
    killed.wait()
    assert place.ask("status")["state"] == "killed"

    place.feed(range(EPOCHS // 2, EPOCHS))
    run = place.run("--epochs", "1000")
    eventually(lambda: place.newest() == EPOCHS - 1 or run.poll() is not None, "all epochs are stored", PATIENCE)
    answer = place.ask("stop")
    output, errors = run.communicate(timeout=PATIENCE)
    assert run.returncode == 0, errors
    assert answer["epochs"] == {"payments": EPOCHS - 1, "store": EPOCHS - 1}
    expected = Counter[str]()
    for payment in (payment for epoch in range(EPOCHS) for payment in payments(epoch)):
        expected["north" if payment["customer"] == "anna" else "south"] += payment["cents"]
    assert place.sums() == expected

    lines = [json.loads(line) for line in output.splitlines()]
    kinds = [line["event"]["kind"] for line in lines if "event" in line]
    assert kinds == [
        "run resumed",
        "stop asked",
        "run ended",
    ]
    assert lines[-1]["status"]["state"] == "stopped"
    assert "Exception" not in errors
    assert place.ask("status")["levels"]["process_restarts"] == 1
