"""How a run ends that is asked to by the keyboard or the system: on an epoch, in its own words, with nothing left.

The signals go to the whole process group, as a terminal, `timeout` and service managers send them.
"""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import eventually

from tidelock.cli.demo.leash import kill_session, session_members
from tidelock.home.home import Home

PATIENCE = 240.0
_SLOW = "interval too short"
"""What a slow machine is told, at any moment."""
_OWN = re.compile(rf"\d\d:\d\d:\d\d  (run started|run resumed|stop asked|run ended|{_SLOW}|epoch (\d+|none)) ")
_HUNG_UP = re.compile(r"Traceback \(most recent call last\):\n(?:  .*\n)+BrokenPipeError: .*\n")
"""What Spark's own daemons, which plan sources, say if a query is stopped while it starts; only in that log."""
ROWS = 50
TIDELOCK = [sys.executable, "-m", "tidelock"]
JOB = f"""
import json
from pathlib import Path
from pyspark.sql import functions as F
import tidelock

pipeline = tidelock.Pipeline("sums", epoch="100 milliseconds")


@pipeline.source
def numbers(spark):
    return spark.readStream.format("rate-micro-batch").option("rowsPerBatch", {ROWS}).load().select("value")


@pipeline.operator
def kinds(numbers):
    return numbers.select((F.col("value") % 3).alias("kind"), "value")


@pipeline.operator(mode="update", anchor=True)
def sums(kinds):
    return kinds.groupBy("kind").agg(F.sum("value").alias("total"), F.count("*").alias("n"))


@pipeline.sink
def keep(sums, epoch):
    rows = [[row["kind"], row["total"], row["n"]] for row in sums.collect()]
    Path("kept", f"{{epoch}}.json").write_text(json.dumps(rows))
"""
SCRIPT = """
import tidelock
from job import pipeline

spark = tidelock.session("sums", master="local[2]", settings={"spark.sql.shuffle.partitions": "2"})
pipeline.run(spark, "home")
print("the program goes on")
"""


class Place:
    """A directory with a job and its home, and the process that runs it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "job.py").write_text(JOB)
        (folder / "script.py").write_text(SCRIPT)
        (folder / "kept").mkdir()
        self.process: subprocess.Popen[str] | None = None

    def start(self, *command: str) -> None:
        """Start a command in a session of its own; its output, both kinds, goes to a file."""
        with (self.folder / "output").open("wb") as output:
            self.process = subprocess.Popen(
                command, cwd=self.folder, stdout=output, stderr=output, text=True, start_new_session=True
            )

    def run(self, *options: str) -> None:
        settings = ["--master", "local[2]", "--conf", "spark.sql.shuffle.partitions=2"]
        self.start(*TIDELOCK, "run", "job.py", "--home", "home", *settings, *options)

    def wait_for(self, epoch: int) -> None:
        process = self.process
        assert process is not None
        eventually(lambda: self.newest() >= epoch or process.poll() is not None, f"epoch {epoch}", PATIENCE)
        assert process.poll() is None, self.output()

    def signal(self, number: int) -> None:
        assert self.process is not None
        os.killpg(self.process.pid, number)

    def end(self) -> int:
        """Wait until the process has ended, and everything that it had started; its exit code."""
        assert self.process is not None
        code = self.process.wait(PATIENCE)
        eventually(lambda: not session_members(self.process.pid), "no process is left", 30)  # type: ignore[union-attr]
        assert not Home(self.folder / "home").is_held()
        return code

    def output(self) -> str:
        return (self.folder / "output").read_text()

    def newest(self) -> int:
        return max((int(path.stem) for path in (self.folder / "kept").glob("*.json")), default=-1)

    def events(self) -> list[dict[str, Any]]:
        return [event for event in Home(self.folder / "home").events() if event["kind"] != _SLOW]

    def count(self, kind: str) -> int:
        return sum(event["kind"] == kind for event in self.events())

    def check_sums(self) -> None:
        """Every epoch that was kept has the sums of all numbers up to there."""
        assert self.newest() >= 0
        for path in (self.folder / "kept").glob("*.json"):
            numbers = range(ROWS * (int(path.stem) + 1))
            expected = [[kind, sum(numbers[kind::3]), len(numbers[kind::3])] for kind in range(3)]
            assert sorted(json.loads(path.read_text())) == expected, path.name


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    if made.process is not None:
        kill_session(made.process.pid)
        made.process.wait()


def told(place: Place) -> list[str]:
    """The lines of the output, which are the run's own; nor does Spark's log tell of a failure where none was."""
    log = _HUNG_UP.sub("", (place.folder / "home" / "spark.log").read_text())
    for text in (place.output(), log):
        for word in ("Traceback", "Exception", "Error", "ERROR", "py4j", "refused", "SparkContext", "failed"):
            assert word not in text, text
    lines = place.output().splitlines()
    assert lines[0].startswith("starting Spark, ")
    assert all(_OWN.match(line) for line in lines[1:-1]), place.output()
    return lines


@pytest.mark.chaos
@pytest.mark.timeout(900)
def test_signals_to_the_whole_group_stop_a_run_on_an_epoch(place: Place) -> None:
    place.run()
    place.wait_for(2)
    place.signal(signal.SIGTERM)
    assert place.end() == 0
    last = told(place)[-1]
    first_end = json.loads((place.folder / "home" / "status.json").read_text())["epoch"]
    assert last == f"stopped  sums: every epoch up to {first_end} has gone through everywhere"
    assert place.newest() == first_end

    place.run()
    place.wait_for(first_end + 2)
    for _ in range(2):
        place.signal(signal.SIGINT)
    assert place.end() == 0
    assert told(place)[-1].startswith("stopped  sums: every epoch up to ")

    place.run()
    place.wait_for(place.newest() + 2)
    before = place.count("stop asked")
    place.signal(signal.SIGINT)
    eventually(lambda: place.count("stop asked") > before, "it has heard the first", PATIENCE)
    for _ in range(4):
        place.signal(signal.SIGINT)
    assert place.end() in (0, 130)
    assert "Traceback" not in place.output()

    place.check_sums()
    assert not [event for event in place.events() if event["kind"] in ("segment failed", "task retry")]


@pytest.mark.chaos
@pytest.mark.timeout(600)
def test_a_program_of_ones_own_stops_on_an_epoch_too(place: Place) -> None:
    place.start(sys.executable, "script.py")
    place.wait_for(1)
    place.signal(signal.SIGTERM)
    assert place.end() == 128 + signal.SIGTERM
    for word in ("Traceback", "ERROR", "job group", "replaced a statically registered", "the program goes on"):
        assert word not in place.output(), place.output()
    assert place.events()[-1]["kind"] == "run ended"
    assert not [event for event in place.events() if event["kind"] == "segment failed"]

    place.start(sys.executable, "script.py")
    place.wait_for(place.newest() + 2)
    process = place.process
    assert process is not None
    process.kill()
    place.end()
    assert place.events()[-1]["kind"] == "run resumed"
    place.check_sums()
