"""How a run ends when something that it does not depend on hangs, and when Spark is gone."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.waiting import eventually

import tidelock
from tidelock.cli.demo.leash import kill_session, session_members
from tidelock.home.home import Home
from tidelock.running.run import Run

PATIENCE = 240.0
JOB = """
from pathlib import Path
import tidelock

pipeline = tidelock.Pipeline("kept", epoch="200 milliseconds")


@pipeline.source
def numbers(spark):
    return spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load().select("value")


@pipeline.sink
def keep(numbers, epoch):
    numbers.collect()
    Path("kept", str(epoch)).touch()
"""


def test_a_backup_that_hangs_does_not_hold_up_the_end(
    spark: SparkSession, tmp_path: Path, started: list[Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    hanging, hangs = threading.Event(), threading.Event()

    def hang(_: object) -> None:
        hangs.set()
        hanging.wait()

    monkeypatch.setattr("tidelock.backup.backup.Backup.copy", hang)
    monkeypatch.setattr("tidelock.running.run._LAST_COPY", 0.1)
    pipeline = tidelock.Pipeline("kept", epoch="200 milliseconds")

    @pipeline.source
    def numbers(spark):  # type: ignore[no-untyped-def]
        return spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()

    @pipeline.sink
    def keep(numbers, epoch):  # type: ignore[no-untyped-def]
        numbers.collect()

    home = Home(tmp_path / "home")
    try:
        run = pipeline.start(spark, home.root, last_epoch=1, backup=f"{tmp_path}/copy")
        started.append(run)
        assert run.wait(120)
        assert hangs.is_set()
        assert not home.is_held()
        assert run.status().epoch == 1
    finally:
        hanging.set()
    (told,) = [event["text"] for event in home.events() if event["kind"] == "backup failed"]
    assert "did not end within 0.1 s" in told


@pytest.fixture
def job(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """`tidelock run`, in a session of its own; its output goes to a file."""
    (tmp_path / "job.py").write_text(JOB)
    (tmp_path / "kept").mkdir()
    command = [sys.executable, "-m", "tidelock", "run", "job.py", "--home", "home", "--master", "local[1]"]
    with (tmp_path / "output").open("wb") as output:
        made = subprocess.Popen(
            command, cwd=tmp_path, stdout=output, stderr=output, text=True, start_new_session=True
        )
    yield made
    kill_session(made.pid)
    made.wait()


def java(session: int) -> int:
    """The Java process of a session."""
    named = {member: Path(f"/proc/{member}/comm").read_text().strip() for member in session_members(session)}
    (found,) = [member for member, name in named.items() if name == "java"]
    return found


@pytest.mark.chaos
@pytest.mark.timeout(600)
def test_a_run_whose_jvm_is_killed_says_so_in_one_sentence(job: subprocess.Popen[str], tmp_path: Path) -> None:
    eventually(
        lambda: (tmp_path / "kept" / "1").exists() or job.poll() is not None, "an epoch is through", PATIENCE
    )
    assert job.poll() is None, (tmp_path / "output").read_text()
    os.kill(java(job.pid), signal.SIGKILL)
    assert job.wait(PATIENCE) == 2
    assert not Home(tmp_path / "home").is_held()
    first, *lines, last = (tmp_path / "output").read_text().splitlines()
    assert first.startswith("starting Spark, ")
    assert last.startswith("tidelock: Spark's JVM is gone") and "it goes on where it was" in last
    told = re.compile(r"\d\d:\d\d:\d\d  |failed  kept: ")
    assert all(told.match(line) for line in lines), "\n".join(lines)
    eventually(lambda: not session_members(job.pid), "no process is left", 60)
