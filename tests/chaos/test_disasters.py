"""Two directories as two datacenters: the first one's processes are killed and its disk is gone, again and again.

For every disaster: a job runs with a backup, more input arrives, at a random moment its whole process group gets
SIGKILL and its home is deleted. `tidelock restore` builds a new home from what had been copied by then, and the
job goes on there, with a backup of its own. The restored files must hold every number at most once and leave no
gap; at the end all numbers are there exactly once, and the sums are right. The seed is fixed unless
TIDELOCK_CHAOS_SEED says another; TIDELOCK_CHAOS_DISASTERS sets how many disasters there are.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.waiting import eventually

from tidelock.cli.demo.leash import kill_session

DISASTERS = int(os.environ.get("TIDELOCK_CHAOS_DISASTERS", "8"))
SEED = int(os.environ.get("TIDELOCK_CHAOS_SEED", "7"))
ROOT = Path(__file__).parents[2]
ROWS = 20

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(1800)]


class World:
    """The input, which survives, and one datacenter after the other."""

    def __init__(self, place: Path, chance: random.Random) -> None:
        self.place, self.chance = place, chance
        self.rows: list[dict[str, Any]] = []
        self.files = 0
        (place / "input").mkdir()

    def feed(self, files: int) -> None:
        for number in range(self.files, self.files + files):
            first = len(self.rows)
            rows = [{"id": first + i, "key": f"k{self.chance.randrange(5)}"} for i in range(ROWS)]
            self.rows += rows
            aside = self.place / f".{number}"
            pq.write_table(pa.Table.from_pylist(rows), aside)
            os.utime(aside, (10**6 + number, 10**6 + number))
            aside.rename(self.place / "input" / f"{number:06}.parquet")
        self.files += files

    def tidelock(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "tidelock", *arguments]

    def environment(self) -> dict[str, str]:
        paths = os.pathsep.join([str(ROOT), str(ROOT / "src")])
        return {**os.environ, "PYTHONPATH": paths, "TIDELOCK_CHAOS_INPUT": str(self.place / "input")}

    def run(self, home: Path, *options: str, job: str = "job.py") -> subprocess.Popen[bytes]:
        command = self.tidelock("run", str(ROOT / "tests" / "chaos" / job), "--home", str(home), *options)
        command += ["--json", "--conf", "spark.sql.shuffle.partitions=2"]
        with (self.place / "job.log").open("ab") as log:
            return subprocess.Popen(
                command, env=self.environment(), cwd=self.place, stdout=log, stderr=log, start_new_session=True
            )

    def restore(self, backup: Path, home: Path) -> dict[str, Any]:
        command = self.tidelock("restore", "--backup", str(backup), "--home", str(home), "--json")
        done = subprocess.run(command, env=self.environment(), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return dict(json.loads(done.stdout))


def written(home: Path, sink: str) -> dict[int, list[dict[str, Any]]]:
    """The rows of a file sink, by epoch."""
    folders = (home / "out" / sink).glob("epoch=*")
    found = {}
    for folder in folders:
        tables = [pq.ParquetFile(file).read() for file in folder.glob("*.parquet")]
        found[int(folder.name.removeprefix("epoch="))] = [row for table in tables for row in table.to_pylist()]
    return found


def check_restored(home: Path, seed: str) -> None:
    epochs = written(home, "once_files")
    assert sorted(epochs) == list(range(len(epochs))), f"{seed}: an epoch is missing"
    ids = Counter(row["id"] for rows in epochs.values() for row in rows)
    assert ids == Counter(range(len(ids))), f"{seed}: rows are missing or there twice"


def is_done(home: Path, world: World) -> bool:
    return sum(len(rows) for rows in written(home, "once_files").values()) >= len(world.rows) and sum(
        newest(home, "sums_files", "n").values()
    ) >= len(world.rows)


def newest(home: Path, sink: str, column: str) -> dict[str, int]:
    epochs = written(home, sink)
    return {row["key"]: row[column] for epoch in sorted(epochs) for row in epochs[epoch]}


def test_the_loss_of_a_datacenter_at_random_moments(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    seed = f"TIDELOCK_CHAOS_SEED={SEED}"
    print(seed)
    world = World(tmp_path, chance)
    home = tmp_path / "home-0"
    restored_from_something = 0
    for number in range(DISASTERS):
        backup = tmp_path / f"backup-{number}"
        world.feed(3)
        process = world.run(home, "--backup", str(backup))
        wait_for_disaster(process, home, backup, chance)
        kill_session(process.pid)
        process.wait()
        shutil.rmtree(home, ignore_errors=True)
        home = tmp_path / f"home-{number + 1}"
        if is_complete(backup):  # otherwise no copy was complete: it starts from nothing
            report = world.restore(backup, home)
            restored_from_something += any(s["restored"] >= 0 for s in report["segments"].values())
            check_restored(home, seed)
        shutil.rmtree(backup, ignore_errors=True)
    assert restored_from_something >= DISASTERS // 2, f"{seed}: the disasters came too early to tell anything"
    finish(world, home, tmp_path / "last", seed)


def wait_for_disaster(process: subprocess.Popen[bytes], home: Path, backup: Path, chance: random.Random) -> None:
    """Mostly until new results were copied, sometimes only until anything was, or not at all; then a bit more."""
    before = results_in(backup)
    kind = chance.choices(["results", "anything", "nothing"], [8, 1, 1])[0]
    copied = {
        "results": lambda: results_in(backup) > before,
        "anything": lambda: is_complete(backup),
        "nothing": lambda: True,
    }[kind]
    eventually(lambda: copied() or process.poll() is not None, f"{kind} copied", 120)
    assert process.poll() is None, (home.parent / "job.log").read_text(errors="replace")[-3000:]
    time.sleep(chance.uniform(0, 4))


def is_complete(backup: Path) -> bool:
    return any(backup.glob("*/complete.json"))


def results_in(backup: Path) -> int:
    return len(list(backup.glob("*/out/once_files/epoch=*.json")))


def finish(world: World, home: Path, backup: Path, seed: str) -> None:
    process = world.run(home, "--backup", str(backup))
    try:
        eventually(lambda: is_done(home, world), f"all input is through ({seed})", 180)
    finally:
        kill_session(process.pid)
        process.wait()
    check_restored(home, seed)
    check_sums(home, world, seed)


def check_sums(home: Path, world: World, seed: str) -> None:
    expected = Counter(row["key"] for row in world.rows)
    totals = Counter[str]()
    for row in world.rows:
        totals[row["key"]] += row["id"]
    assert newest(home, "sums_files", "n") == expected, seed
    assert newest(home, "sums_files", "total") == totals, seed


def test_a_job_that_was_cut_off_wakes_up_beside_its_successor(tmp_path: Path) -> None:
    """The first one is stopped in the middle of whatever it does, restored elsewhere, and then goes on."""
    world = World(tmp_path, random.Random(SEED))
    backup, homes = tmp_path / "backup", [tmp_path / name for name in ("first", "second", "third")]
    world.feed(3)
    first = world.run(homes[0], "--backup", str(backup))
    eventually(lambda: results_in(backup) > 0, "results are copied", 120)
    os.killpg(first.pid, signal.SIGSTOP)
    world.restore(backup, homes[1])
    old = generations(backup)
    world.feed(2)
    second = world.run(homes[1], "--backup", str(backup))
    try:
        eventually(lambda: is_complete(backup) and not generations(backup) & old, "a copy of its own", 180)
        owned = generations(backup)
        os.killpg(first.pid, signal.SIGCONT)
        eventually(lambda: "backup displaced" in (homes[0] / "events.jsonl").read_text(), "it is displaced", 120)
        assert first.poll() is None, "its home is not lost: it goes on"
        eventually(lambda: is_done(homes[1], world), "all input is through", 180)
        assert generations(backup) == owned
    finally:
        for process in (first, second):
            kill_session(process.pid)
            process.wait()
    told = [json.loads(line)["kind"] for line in (homes[0] / "events.jsonl").read_text().splitlines()]
    assert told.count("backup displaced") == 1
    world.restore(backup, homes[2])
    check_restored(homes[2], f"TIDELOCK_CHAOS_SEED={SEED}")


def generations(backup: Path) -> set[str]:
    return {folder.name for folder in backup.iterdir() if folder.is_dir()}
