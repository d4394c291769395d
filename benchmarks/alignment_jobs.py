"""Jobs as a user starts them, for the benchmark of alignment, and what is known about their epochs.

A place is a directory with a shared tree, the homes of the jobs and the result. The last job's sink stores with
every epoch when it was delivered and the moments at which its comments were taken in. The generator's rows stand
for the comments that arrive evenly between two of these moments, so the oldest comment of an epoch is as old as
the moment before its own first one.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from bisect import bisect_right
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jobs import wait_until

from tidelock.cli.demo.leash import kill_session

EXAMPLES = Path(__file__).parents[1] / "examples" / "hotness"
SUBJECT = "hotness.issues"
JVM = {"JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
"""What the environment may override. Two JVMs share few cores, and with these they are warm within seconds."""


@dataclass(frozen=True)
class Setting:
    """What is varied."""

    interval: float
    throughput: int
    parallelism: int


@dataclass(frozen=True)
class Delivery:
    """An epoch at the last sink: when it came, and the moments before, within and between its comments."""

    at: float
    begun: float
    moments: tuple[float, ...]
    """Those at which its comments were taken in, with the one before them as the first."""

    @property
    def oldest(self) -> float:
        """The latency of its oldest comment."""
        return self.at - self.moments[0]

    @property
    def mean(self) -> float:
        """The mean latency of its comments."""
        gaps = zip(self.moments, self.moments[1:], strict=False)
        middles = [(before + after) / 2 for before, after in gaps]
        return self.at - sum(middles) / len(middles)


class Place:
    """A directory in which jobs of one setting run; they end with it."""

    def __init__(self, setting: Setting) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="tidelock-bench-"))
        self._setting = setting
        self._jobs: dict[str, subprocess.Popen[bytes]] = {}
        self._result = self._folder / "hotness.sqlite"

    def __enter__(self) -> Place:
        return self

    def __exit__(self, *_: object) -> None:
        for job in self._jobs.values():
            if job.poll() is None:
                kill_session(job.pid)
                job.wait()
        shutil.rmtree(self._folder)

    # -- commands

    def run(self, file: str | Path, name: str) -> None:
        """`tidelock run` in the background."""
        cores = self._setting.parallelism
        command = self._command("run", str(file), "--home", str(self._folder / name), "--json")
        command += ["--master", f"local[{cores}]", "--conf", f"spark.sql.shuffle.partitions={cores}"]
        with (self._folder / f"{name}.output").open("ab") as output:
            self._jobs[name] = subprocess.Popen(
                command, stdout=output, stderr=output, start_new_session=True, env=self._environment()
            )

    def ask(self, *words: str) -> Any:
        """The answer of a command."""
        done = self._asked(*words)
        if done.returncode != 0:
            raise SystemExit(f"tidelock {' '.join(words)} failed: {done.stderr}{done.stdout}")
        return json.loads(done.stdout)

    def _asked(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = self._command(*words, "--json", "--coordinator", self._tree)
        return subprocess.run(command, capture_output=True, text=True, env=self._environment(), check=False)

    def _command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "tidelock", *words]

    def _environment(self) -> Mapping[str, str]:
        settings = {f"HOTNESS_{name.upper()}": str(value) for name, value in vars(self._setting).items()}
        places = {"HOTNESS_RESULT": str(self._result), "TIDELOCK_COORDINATOR": self._tree}
        return {**JVM, **os.environ, **settings, **places}

    @property
    def _tree(self) -> str:
        return f"embedded:{self._folder}/tree.db"

    # -- waiting

    def wait_for_subject(self) -> None:
        """Wait until the first job has made its subject known."""
        while self._asked("subjects", "show", SUBJECT).returncode != 0:
            self._check()
            time.sleep(1)

    def wait_for_epochs(self, number: int) -> None:
        """Wait until so many epochs have come to the last sink."""
        wait_until(lambda: len(self.deliveries()) >= number, f"{number} epochs are delivered")

    def _check(self) -> None:
        for name, job in self._jobs.items():
            if job.poll() is not None:
                said = (self._folder / f"{name}.output").read_text(errors="replace")[-3000:]
                raise SystemExit(f"{name} has ended:\n{said}")

    # -- what happened

    def ticks(self) -> tuple[int, int]:
        """The processor time that the machine and these jobs have used so far; zeros where Linux is not there."""
        if not Path("/proc/stat").exists():
            return 0, 0
        user, nice, system, _, _, *more = map(int, Path("/proc/stat").read_text().splitlines()[0].split()[1:8])
        sessions = {job.pid for job in self._jobs.values()}
        return user + nice + system + sum(more), sum(
            _used(file, sessions) for file in Path("/proc").glob("[0-9]*")
        )

    def published(self) -> list[float]:
        """When the epochs of the subject were published."""
        epochs = self.ask("subjects", "show", SUBJECT, "--last", "1000")["epochs"]
        return sorted(epoch["published_at"] for epoch in epochs)

    def deliveries(self) -> list[Delivery]:
        """The epochs at the last sink that brought comments on issues, but the first."""
        self._check()
        found: list[Delivery] = []
        before: float | None = None
        for begun, at, taken in self._epochs():
            new = [moment for moment in json.loads(taken) if before is None or moment > before]
            if new and before is not None:
                found.append(Delivery(at, begun, (before, *new)))
            before = max(new, default=before)
        return found

    def _epochs(self) -> list[tuple[float, float, str]]:
        if not self._result.exists():
            return []
        with closing(sqlite3.connect(self._result, timeout=60)) as database:
            if not database.execute("SELECT name FROM sqlite_master WHERE name = 'epochs'").fetchall():
                return []
            return database.execute("SELECT begun_at, delivered_at, taken FROM epochs ORDER BY epoch").fetchall()


def _used(process: Path, sessions: set[int]) -> int:
    """The processor time of a process and of those it has waited for, if it belongs to one of the sessions."""
    try:
        fields = (process / "stat").read_text().rpartition(")")[2].split()
    except OSError:  # it has just ended
        return 0
    return sum(map(int, fields[11:15])) if int(fields[3]) in sessions else 0


def foreign_share(before: tuple[int, int], after: tuple[int, int]) -> float | None:
    """Which part of the processor time went to others than the jobs."""
    machine, own = after[0] - before[0], after[1] - before[1]
    return max(0.0, 1 - own / machine) if machine else None


def publication(moment: float, published: list[float]) -> float | None:
    """When the epoch was published whose comments were taken in at ``moment``."""
    place = bisect_right(published, moment)
    return published[place] if place < len(published) else None


def sleep_until(moment: float) -> None:
    time.sleep(max(0.0, moment - time.time()))
