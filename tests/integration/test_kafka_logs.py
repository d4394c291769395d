"""A pipeline whose logs are in Kafka: killed in the middle and run again, it computes what a batch computes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.waiting import eventually

from tidelock.cli.demo.leash import kill_session
from tidelock.log import EpochLog

ROOT = Path(__file__).parents[2]
EPOCHS, ROWS = 12, 20


def feed(folder: Path) -> list[dict[str, Any]]:
    """One file per epoch; the first numbers of a file are those that ended the one before."""
    folder.mkdir()
    everything = []
    for number in range(EPOCHS):
        first = number * (ROWS - 5)
        rows = [{"id": first + i, "key": f"k{(first + i) % 7}"} for i in range(ROWS)]
        file = folder / f"{number:06}.parquet"
        pq.write_table(pa.Table.from_pylist(rows), file)
        os.utime(file, (10**6 + number, 10**6 + number))
        everything += rows
    return everything


def expected(rows: list[dict[str, Any]]) -> dict[str, tuple[int, int]]:
    keys = {row["id"]: row["key"] for row in rows}
    ids = {key: [n for n, k in keys.items() if k == key] for key in set(keys.values())}
    return {key: (len(some), sum(some)) for key, some in ids.items()}


def written(home: Path) -> dict[int, dict[str, tuple[int, int]]]:
    found = {}
    for folder in (home / "out" / "sums_files").glob("epoch=*"):
        rows = [row for file in folder.glob("*.parquet") for row in pq.ParquetFile(file).read().to_pylist()]
        found[int(folder.name.removeprefix("epoch="))] = {row["key"]: (row["n"], row["total"]) for row in rows}
    return found


def start(place: Path, log: str, *options: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tidelock", "run", str(Path(__file__).with_name("kafka_job.py"))]
    command += ["--home", str(place / "home"), "--log", log, "--conf", "spark.sql.shuffle.partitions=2", *options]
    paths = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    environment = {**os.environ, "PYTHONPATH": paths, "TIDELOCK_TEST_INPUT": str(place / "input")}
    with (place / "job.log").open("ab") as told:
        return subprocess.Popen(command, env=environment, stdout=told, stderr=told, start_new_session=True)


@pytest.mark.chaos
def test_a_job_with_logs_in_kafka_that_is_killed_computes_what_a_batch_computes(
    tmp_path: Path, kafka_url: str
) -> None:
    rows, home = feed(tmp_path / "input"), tmp_path / "home"
    process = start(tmp_path, kafka_url, "--plan", "each")
    try:
        eventually(lambda: len(written(home)) >= 3 or process.poll() is not None, "some epochs have arrived", 120)
        assert process.poll() is None, (tmp_path / "job.log").read_text(errors="replace")[-3000:]
    finally:
        kill_session(process.pid)
        process.wait()
    before = written(home)
    assert len(before) < EPOCHS
    again = start(tmp_path, kafka_url, "--epochs", str(EPOCHS))
    try:
        assert again.wait(150) == 0, (tmp_path / "job.log").read_text(errors="replace")[-3000:]
    finally:
        if again.poll() is None:
            kill_session(again.pid)
            again.wait()
    epochs = written(home)
    assert sorted(epochs) == list(range(EPOCHS))
    assert {key: row for epoch in sorted(epochs) for key, row in epochs[epoch].items()} == expected(rows)
    assert all(epochs[epoch] == table for epoch, table in before.items()), "what was there has stayed"
    assert not (home / "logs").exists()
    for log in ("numbers", "once", "sums"):
        assert EpochLog.open(f"{kafka_url}/{log}").ranges()[-1].last == EPOCHS - 1
