"""Ten minutes of a healthy run with small epochs: nothing ends it, nothing grows, and the results are right.

It has state with Spark and in a cache, and is copied to a backup all the while. The job measures itself again and
again: the process of the driver, its JVM, and the Python processes of sources and workers that live as long. The
second half of the run is what counts: what its beginning (the third quarter) and its end (the last quarter)
usually have must be the same, but for a margin, which does not depend on how fast the machine is. A slow machine
gets more time: what is kept for a number of epochs has all of them before the second half begins.
TIDELOCK_SOAK_SECONDS sets how long it takes at least.
"""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys
from collections import defaultdict
from contextlib import closing
from pathlib import Path
from statistics import median

import pytest
from tests.chaos.soak_job import KEYS, ROWS
from tests.redis_servers import RedisServer, RedisServers
from tests.waiting import eventually

from tidelock.cli.demo.leash import kill_session
from tidelock.home.home import Home
from tidelock.running.status import status

SECONDS = float(os.environ.get("TIDELOCK_SOAK_SECONDS", "600"))
EPOCHS = 400
"""It has at least so many: more than twice as many as any of its segments keeps batches."""
PATIENCE = 600
"""For everything that comes once; it runs for as long as it takes, while epochs come."""
EPOCH_WITHIN = 180
"""So many seconds after one measured epoch the next one has come, however slow the machine is."""
CUT_SHORT = re.compile(r"the (copy|one) under way did not end within \d+ s, and the run ends without it")
"""What a slow machine is told of the last copy and the last snapshot, which are waited for until then."""
ROOT = Path(__file__).parents[2]
MIB = 1 << 20

MARGINS = {
    "memory of Python": (0.05, 4 * MIB),
    "memory of sources": (0.05, 4 * MIB),
    "memory of workers": (0.05, 8 * MIB),
    "memory of Java": (0.05, 8 * MIB),
    "memory of the cache": (0.05, MIB),
    "threads of Python": (0.0, 4),
    "threads of sources": (0.0, 4),
    "threads of workers": (0.0, 8),
    "threads of Java": (0.0, 8),
    "handles of Python": (0.0, 8),
    "handles of sources": (0.0, 8),
    "handles of workers": (0.0, 16),
    "handles of Java": (0.0, 32),
    "processes of Python": (0.0, 0),
    "processes of sources": (0.0, 1),
    "processes of workers": (0.0, 2),
    "processes of Java": (0.0, 0),
    "files in the home": (0.10, 32),
    "files in the backup": (0.10, 32),
}
"""By how much the end may be above the beginning: a share of it, and some more."""

SETTINGS = {
    # What Spark remembers of old batches, for itself and for its own pages, is bounded too; so that the bounds are
    # reached long before the second half, they are lower here.
    "spark.sql.streaming.minBatchesToRetain": 10,
    "spark.sql.streaming.stateStore.maintenanceInterval": "2s",
    "spark.sql.ui.retainedExecutions": 20,
    "spark.ui.retainedJobs": 20,
    "spark.ui.retainedStages": 20,
    "spark.ui.retainedTasks": 200,
    "spark.sql.shuffle.partitions": 2,
    # These pools start a thread for everything they are asked to do, which then waits a minute for more, so that
    # they grow and shrink with the number of batches in a minute: up to 1024 threads, if nobody says less.
    "spark.sql.shuffleExchange.maxThreadThreshold": 8,
    "spark.sql.resultQueryStage.maxThreadThreshold": 8,
}

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(SECONDS + 7200)]


class Soak:
    """The process of the job, its home, and the database that it fills."""

    def __init__(self, place: Path, server: RedisServer) -> None:
        self.place = place
        self.home = Home(place / "home")
        conf = [word for name, value in SETTINGS.items() for word in ("--conf", f"{name}={value}")]
        job = str(ROOT / "tests" / "chaos" / "soak_job.py")
        command = [sys.executable, "-m", "tidelock", "run", job, "--home", str(place / "home"), "--plan", "each"]
        command += ["--backup", str(place / "backup"), "--cache", f"{server.url}/soak"]
        told = {"TIDELOCK_SOAK_PLACE": str(place), "TIDELOCK_SOAK_CACHE": server.url}
        paths = os.pathsep.join([str(ROOT), str(ROOT / "src")])
        with (place / "job.log").open("ab") as log:
            self.process = subprocess.Popen(
                [*command, "--json", *conf],
                env={**os.environ, "PYTHONPATH": paths, **told},
                cwd=place,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def ask(self, query: str) -> list[tuple[float, ...]]:
        with closing(sqlite3.connect(self.place / "soak.db", timeout=60)) as database:
            return database.execute(query).fetchall()

    def measures(self) -> dict[str, list[tuple[float, int]]]:
        """By name, what was measured and when, in order."""
        found = defaultdict(list)
        is_there = "SELECT name FROM sqlite_master WHERE name = 'measures'"
        if (self.place / "soak.db").exists() and self.ask(is_there):
            for at, name, value in self.ask("SELECT at, name, value FROM measures ORDER BY at"):
                found[str(name)].append((float(at), int(value)))
        return found

    def has_run_for(self) -> tuple[float, int]:
        """The seconds and the epochs for which it has run; it must not have ended."""
        assert self.process.poll() is None, f"it has ended: {(self.place / 'job.log').read_text()[-3000:]}"
        times = [at for measured in self.measures().values() for at, _ in measured]
        if times:
            assert status(self.home).state == "running"
        if not times:
            return 0.0, 0
        ((epoch,),) = self.ask("SELECT max(epoch) FROM measures")
        return max(times) - min(times), int(epoch)

    def is_over(self) -> bool:
        seconds, epochs = self.has_run_for()
        return seconds >= SECONDS and epochs >= EPOCHS

    def run_out(self) -> None:
        """Wait until it is over, for as long as epochs come."""
        while not self.is_over():
            _, before = self.has_run_for()
            eventually(lambda: self.has_run_for()[1] > before, "another epoch", EPOCH_WITHIN)  # noqa: B023

    def kinds(self) -> set[str]:
        """What has happened, but for what a slow machine is told."""
        events = [event for event in self.home.events() if event["kind"] != "interval too short"]
        return {event["kind"] for event in events if not CUT_SHORT.fullmatch(event["text"])}


def test_nothing_grows_and_nothing_ends_a_healthy_run(tmp_path: Path, redis_servers: RedisServers) -> None:
    soak = Soak(tmp_path, redis_servers.start())
    try:
        eventually(lambda: soak.has_run_for() > (0, 0), "it runs", patience=300)
        soak.run_out()
        stop = [sys.executable, "-m", "tidelock", "stop", "--home", str(soak.home.root)]
        # A slow machine has as many epochs to finish as its logs may hold.
        subprocess.run(stop, check=True, capture_output=True, timeout=PATIENCE)
        assert soak.process.wait(PATIENCE) == 0
    finally:
        kill_session(soak.process.pid)
    assert soak.kinds() == {"run started", "stop asked", "run ended"}, "nothing failed"

    last = min(segment.epoch for segment in status(soak.home).segments)
    numbers = range((last + 1) * ROWS)
    by_key = {key: numbers[key::KEYS] for key in range(KEYS)}
    expected = {key: (len(some), sum(some)) for key, some in by_key.items()}
    for table in ("sums", "cached"):
        found = {key: (n, total) for key, n, total in soak.ask(f"SELECT key, n, total FROM {table}")}
        assert found == expected, table

    grown = {}
    for name, measured in soak.measures().items():
        share, more = MARGINS[name]
        began, ended = measured[0][0], measured[-1][0]
        # Medians: a measure may come in the middle of a batch, and what a leak has taken it keeps.
        third = median(v for at, v in measured if 0.5 <= (at - began) / (ended - began) < 0.75)
        fourth = median(v for at, v in measured if (at - began) / (ended - began) >= 0.75)
        print(f"{name}: {measured[0][1]:,} at first, {third:,}, then {fourth:,}")
        if fourth > third * (1 + share) + more:
            grown[name] = [v for _, v in measured]
    assert grown == {}, f"after {last} epochs in {ended - began:.0f} s"
