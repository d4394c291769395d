"""`kill -9` of a whole job with its state in a cache, or of the cache, at random moments.

The home and the input survive. At every moment either the process group of the job (driver, JVM, Python workers)
is killed and started again, or the Redis server is, with its data or without. At the end every row counts once.
The seed is always the same unless TIDELOCK_CHAOS_SEED says another.
"""

from __future__ import annotations

import random
import subprocess
import time
from pathlib import Path

import pytest
from tests.chaos.test_disasters import SEED, World, check_restored, check_sums, is_done, written
from tests.redis_servers import RedisServers
from tests.waiting import eventually

from tidelock.cli.demo.leash import kill_session

MOMENTS = ("job", "empty", "job", "data", "job", "empty")

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]


def test_the_job_and_its_cache_are_killed_at_random_moments(tmp_path: Path, redis_servers: RedisServers) -> None:
    chance, seed = random.Random(SEED), f"TIDELOCK_CHAOS_SEED={SEED}"
    print(seed)
    server = redis_servers.start(appendonly="yes", appendfsync="always")
    world, home = World(tmp_path, chance), tmp_path / "home"

    def start() -> subprocess.Popen[bytes]:
        return world.run(home, "--cache", f"{server.url}/job?timeout=1", job="cached_job.py")

    world.feed(3)
    process = start()
    try:
        for moment in MOMENTS:
            before = len(written(home, "sums_files"))
            world.feed(4)
            eventually(lambda: len(written(home, "sums_files")) > before + 1, f"new sums ({seed})", 120)  # noqa: B023
            time.sleep(chance.uniform(0, 2))  # not to wait for anything: to hit any step of a batch
            assert process.poll() is None, (tmp_path / "job.log").read_text(errors="replace")[-3000:]
            if moment == "job":
                kill_session(process.pid)
                process.wait()
                process = start()
            else:
                server.restart(empty=moment == "empty")
        eventually(lambda: is_done(home, world), f"all input is through ({seed})", 180)
    finally:
        kill_session(process.pid)
        process.wait()
    check_restored(home, seed)
    check_sums(home, world, seed)
