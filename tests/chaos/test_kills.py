"""`kill -9` at random moments of a chain of two queries with a stateful follower.

One home lives through all kills. For every moment: new input arrives, the chain (which has to recover from the
kill before) is killed at a random moment, started again, finishes, and its result is compared with a computation
over all the input so far. Some moments hit the whole process group (driver, JVM, Python workers), the others only
Python: a worker, or the process of a source. The seed is fixed unless TIDELOCK_CHAOS_SEED says another; set
TIDELOCK_CHAOS_MOMENTS for more or fewer kills.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.waiting import eventually

from tidelock.cli.demo.leash import kill_session, session_members
from tidelock.epochs import Epoch
from tidelock.log import EpochLog

MOMENTS = int(os.environ.get("TIDELOCK_CHAOS_MOMENTS", "12"))
EPOCHS_PER_MOMENT = 4
SEED = int(os.environ.get("TIDELOCK_CHAOS_SEED", "7"))

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(1800)]


class Chain:
    """A home with input, and the process that works in it."""

    def __init__(self, home: Path, rng: random.Random) -> None:
        self.home, self.rng = home, rng
        self.victims = random.Random(SEED)
        """Apart: how much is drawn of it depends on how many processes are found, and the rest must not."""
        self.epochs = 0
        self.expected: Counter[str] = Counter()
        self.process: subprocess.Popen[str] | None = None
        (home / "input").mkdir()

    def feed(self, epochs: int) -> None:
        for number in range(self.epochs, self.epochs + epochs):
            rows = [{"word": f"w{self.rng.randint(0, 30)}", "n": self.rng.randint(1, 9)} for _ in range(40)]
            for row in rows:
                self.expected[row["word"]] += row["n"]
            aside = self.home / f".{number}"
            pq.write_table(pa.Table.from_pylist(rows), aside)
            os.utime(aside, (10**6 + number, 10**6 + number))
            aside.rename(self.home / "input" / f"{number:06}.parquet")
        self.epochs += epochs

    def start(self) -> None:
        root = Path(__file__).parents[2]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.chain", str(self.home)],
            cwd=root,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(root), str(root / "src")])},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=(self.home / "chain.log").open("ab"),
            text=True,
            start_new_session=True,
        )

    def finish(self) -> str:
        """Let the chain run to the newest epoch; what it says."""
        assert self.process is not None
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{self.epochs - 1}\n")
        self.process.stdin.flush()
        said = [self.process.stdout.readline().strip()]
        if said == ["started"]:
            said.append(self.process.stdout.readline().strip())
        return said[-1]

    def kill_all(self) -> None:
        assert self.process is not None
        kill_session(self.process.pid)
        self.process.wait()

    def kill_some_python(self) -> str | None:
        """Kill one Python process: a worker, their daemon, a source's process, or the nursery."""
        assert self.process is not None
        found = [pid for pid in session_members(self.process.pid) if _is_worker(pid)]
        if not found:
            return None
        victim = self.victims.choice(found)
        told = Path(f"/proc/{victim}/cmdline").read_bytes().replace(b"\0", b" ").decode()
        os.kill(victim, signal.SIGKILL)
        return told

    def result(self) -> dict[str, int]:
        log, values = EpochLog.open(f"file:{self.home}/counts"), {}
        for manifest in log.manifests(Epoch(-1), log.ranges()[-1].last):
            for part in manifest.parts:
                for batch in log.read_part(manifest.covers, part):
                    values.update({row["word"]: row["n"] for row in batch.to_pylist()})
        return values


def _is_worker(pid: int) -> bool:
    try:
        program, *arguments = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except OSError:
        return False
    # The JVM names the workers' daemon as well, among its settings: it is not a Python process.
    marks = ("spark.worker_daemon", "pyspark.daemon", "python_streaming_source_runner", "spark.nursery")
    return Path(program).name.startswith("python") and any(mark in " ".join(arguments) for mark in marks)


@pytest.fixture
def chain(tmp_path: Path) -> Chain:
    made = Chain(tmp_path, random.Random(SEED))
    yield made
    if made.process is not None and made.process.poll() is None:
        made.kill_all()


def test_the_result_is_exact_after_each_of_many_kills(chain: Chain) -> None:
    story = []
    rng = chain.rng
    chain.feed(EPOCHS_PER_MOMENT)
    for moment in range(MOMENTS):
        print(f"seed {SEED}, moment {moment}")
        if chain.process is None or chain.process.poll() is not None:
            chain.start()
            assert chain.process.stdout.readline().strip() == "started"
        events = EpochLog.open(f"file:{chain.home}/events")
        goal = max([r.last for r in events.ranges()], default=-1) + rng.randint(1, 2)
        chain.feed(EPOCHS_PER_MOMENT)
        eventually(lambda: [r.last for r in events.ranges()][-1:] >= [goal], f"epoch {goal}")  # noqa: B023
        time.sleep(rng.random())  # not to wait for anything: to hit any step of a batch
        whole = rng.random() < 0.6
        story.append("all" if whole else chain.kill_some_python())
        if whole:
            chain.kill_all()
            chain.start()
        said = chain.finish()
        if said.startswith("failed"):  # a source's process is the query's own: the query has to be started again
            assert not whole, f"seed {SEED}: {said}"
            chain.kill_all()
            chain.start()
            said = chain.finish()
        assert said == f"done {chain.epochs - 1}", f"seed {SEED}, moment {moment}: {said!r} after {story}"
        assert chain.result() == chain.expected, f"seed {SEED}, moment {moment}, after {story}"
    assert "all" in story
    assert any(told and told != "all" for told in story)
    chain.kill_all()
    parts = EpochLog.open(f"file:{chain.home}/events").take_over("the test").log.store.part_names()
    held = EpochLog.open(f"file:{chain.home}/events").ranges()
    assert len(parts) <= 4 * len(held)
    assert len(held) < chain.epochs, "what all have read is truncated"
