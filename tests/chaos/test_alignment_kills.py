"""Two jobs in processes of their own, one follows the other, aligned; either is killed at random moments.

Each moment kills the process group of one job (driver, JVM, Python workers) and, for as long as it is away, sees
that the other one is alive and, if it is the first, goes on. After each restart both are aligned again, without
anybody doing anything, and at the end every row counts once in the second job. In between the alignment is given
up and asked for again, while both run. The seed is fixed unless TIDELOCK_CHAOS_SEED says another.
"""

from __future__ import annotations

import json
import random
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from tests.chaos.test_disasters import SEED, World, check_sums, is_done, written
from tests.waiting import eventually

from tidelock.cli.demo.leash import kill_session
from tidelock.log import EpochLog

MOMENTS = ("publisher", "follower", "publisher", "follower", "leader", "follower")
JOBS = {"publisher": "publishing_job.py", "follower": "following_job.py"}
SUBJECT = "publisher.once"
PATIENCE = 300

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(1800)]


class Landscape:
    """Both jobs, and what can be asked about them."""

    def __init__(self, world: World, place: Path) -> None:
        self.world, self.place = world, place
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, job: str) -> None:
        self.processes[job] = self.world.run(self.home(job), job=JOBS[job])

    def kill(self, job: str) -> None:
        kill_session(self.processes[job].pid)
        self.processes[job].wait()

    def home(self, job: str) -> Path:
        return self.place / job

    def ask(self, *words: str) -> dict[str, Any]:
        done = self.command(*words).communicate(timeout=PATIENCE + 60)[0]
        return dict(json.loads(done))

    def command(self, *words: str) -> subprocess.Popen[bytes]:
        line = self.world.tidelock(*words, "--json")
        return subprocess.Popen(line, env=self.world.environment(), stdout=subprocess.PIPE)

    def consumer(self) -> dict[str, Any]:
        return dict(self.ask("subjects", "show", SUBJECT)["consumers"][0])

    def published(self) -> int:
        return EpochLog.open(f"{self.home('publisher')}/logs/once").ranges()[-1].last

    def delivered(self) -> int:
        return len(written(self.home("follower"), "sums_files"))


def test_either_job_and_the_leader_are_killed_at_random_moments(tmp_path: Path) -> None:
    chance, seed = random.Random(SEED), f"TIDELOCK_CHAOS_SEED={SEED}"
    print(seed)
    world = World(tmp_path, chance)
    jobs = Landscape(world, tmp_path)
    world.feed(2)
    try:
        jobs.start("publisher")
        eventually(lambda: (jobs.home("publisher") / "logs/once/log.json").exists(), "the subject is there")
        jobs.start("follower")
        eventually(lambda: jobs.delivered() > 0, f"the follower follows ({seed})")
        keep_feeding_until_aligned(jobs)
        aligned = jobs.published()
        for moment in MOMENTS:
            before = jobs.delivered()
            world.feed(4)
            eventually(lambda: jobs.delivered() > before, f"new sums ({seed})", 120)  # noqa: B023
            time.sleep(chance.uniform(0, 2))  # not to wait for anything: to hit any step of a batch
            disturb(jobs, moment, chance)
            aligned = jobs.published() if moment == "leader" else aligned
            assert jobs.consumer()["state"] == "aligned", f"{moment} ({seed})"
        world.feed(4)
        follower = jobs.home("follower")
        eventually(lambda: is_done(follower, world), f"all input is through ({seed})", 180)
        eventually(lambda: jobs.consumer()["lag"] == 0, "the last epoch is finished")
        check_each_epoch_for_itself(jobs, aligned)
    finally:
        for process in jobs.processes.values():
            kill_session(process.pid)
            process.wait()
    ids = sorted(row["id"] for rows in written(follower, "once_files").values() for row in rows)
    assert ids == list(range(len(world.rows))), f"{seed}: rows are missing or there twice"
    check_sums(follower, world, seed)


def keep_feeding_until_aligned(jobs: Landscape) -> None:
    """An alignment begins with an epoch that is still to come; they come as fast as the machine publishes them."""
    aligning = jobs.command("align", "follower", "--timeout", str(PATIENCE))
    while aligning.poll() is None:
        before = jobs.published()
        jobs.world.feed(1)
        eventually(lambda: jobs.published() > before or aligning.poll() is not None, "an epoch", 120)  # noqa: B023
        time.sleep(0.5)  # the pace of the input
    assert aligning.returncode == 0
    assert aligning.stdout is not None
    assert json.load(aligning.stdout)["state"] == "aligned"


def disturb(jobs: Landscape, moment: str, chance: random.Random) -> None:
    if moment == "leader":  # it dies in the middle of its work, and another one does it
        jobs.ask("align", "follower", "--abort", "--timeout", str(PATIENCE))
        leader = jobs.command("align", "follower")
        time.sleep(chance.uniform(0.5, 3))
        leader.kill()
        leader.wait()
        keep_feeding_until_aligned(jobs)
        return
    other = next(name for name in JOBS if name != moment)
    jobs.kill(moment)
    if moment == "follower":
        published = jobs.published()
        jobs.world.feed(3)
        eventually(lambda: jobs.published() >= published + 2, "the first job goes on without the second")
    assert jobs.processes[other].poll() is None, f"{other} runs"
    jobs.start(moment)
    before = jobs.delivered()
    jobs.world.feed(2)
    eventually(lambda: jobs.delivered() > before, "both go on together", 120)


def check_each_epoch_for_itself(jobs: Landscape, since: int) -> None:
    """The follower keeps state, so it takes one epoch at a time, however far behind it has fallen."""
    last = jobs.published()
    for epoch in (last + 1, last + 2, last + 3):
        jobs.world.feed(1)
        eventually(lambda: epochs_taken(jobs, since).get(epoch) == [epoch, epoch], "taken for itself")  # noqa: B023
    taken = epochs_taken(jobs, since)
    assert all(step is not None for step in taken.values()), taken
    assert all(step == [epoch, epoch] for epoch, step in taken.items()), taken


def epochs_taken(jobs: Landscape, since: int) -> dict[int, list[int]]:
    """In which epoch of its own the follower has taken each of the epochs behind ``since``."""
    shown = jobs.ask("subjects", "show", SUBJECT, "--last", str(jobs.published() - since))["epochs"]
    return {entry["epoch"][0]: entry["taken_by"]["follower"] for entry in shown}
