"""`tidelock demo` as people run it: real processes, a real kill, and a count that anybody can repeat."""

import hashlib
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import eventually

from tidelock import EpochLog
from tidelock.spark.demo import VOCABULARY

EPOCHS, ROWS, SEED = 8, 200, 5


def command(home: Path) -> list[str]:
    options = ["--epochs", str(EPOCHS), "--rows", str(ROWS), "--seed", str(SEED), "--home", str(home)]
    return [sys.executable, "-m", "tidelock", "demo", "--json", *options]


def alive(home: Path) -> list[int]:
    """The processes that have the home on their command line: the drivers and their JVMs."""
    mark = str(home).encode()
    return [int(entry.name) for entry in Path("/proc").glob("[0-9]*") if mark in _command_line(entry)]


def _command_line(process: Path) -> bytes:
    try:
        return (process / "cmdline").read_bytes()
    except OSError:
        return b""


def expected_counts(tweets: int) -> Counter[str]:
    """The words of all tweets, computed without Spark from the demo's own description of a tweet."""
    vocabulary, counts = VOCABULARY.split(), Counter[str]()
    for number in range(tweets):
        digits = hashlib.md5(f"{SEED}:{number}".encode()).hexdigest()
        for place in range(1 + int(digits[28:], 16) % 7):
            share = int(digits[4 * place : 4 * place + 4], 16) / 65536
            counts[vocabulary[int(len(vocabulary) * share * share)]] += 1
    return counts


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    home = tmp_path_factory.mktemp("demo") / "a home"
    done = subprocess.run(command(home), capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    result: dict[str, Any] = json.loads(done.stdout)
    return home, result


def test_the_counts_are_those_of_a_computation_without_spark(finished: tuple[Path, dict[str, Any]]) -> None:
    _, result = finished
    assert result["equal"]
    assert result["differences"] == []
    assert result["epochs"] >= EPOCHS
    assert result["tweets"] == result["epochs"] * ROWS
    assert result["counts"] == expected_counts(result["tweets"])
    assert result["total"] == sum(result["counts"].values())


def test_the_downstream_query_was_really_killed(finished: tuple[Path, dict[str, Any]]) -> None:
    home, result = finished
    killed, recovered = result["killed"], result["recovered"]
    assert killed["exit_code"] == -signal.SIGKILL
    assert len({killed["pid"], recovered["pid"], result["producer"]["pid"]}) == 3
    assert EPOCHS // 3 - 1 <= killed["epoch"] < result["epochs"] - 1
    assert recovered["epoch"] == killed["epoch"] + 1
    assert not alive(home)


def test_every_epoch_stands_in_the_log_once_and_in_order(finished: tuple[Path, dict[str, Any]]) -> None:
    home, result = finished
    log = EpochLog.open(f"{home}/counts")
    counts: dict[str, int] = {}
    for epoch, covers in enumerate(log.ranges()):
        manifest = log.manifest(covers)
        assert (covers.first, covers.last) == (epoch, epoch)
        assert [source.covers for source in manifest.inputs] == [covers]
        for part in manifest.parts:
            for batch in log.read_part(covers, part):
                counts.update(zip(batch["word"].to_pylist(), batch["count"].to_pylist(), strict=True))
    assert counts == expected_counts(result["tweets"])


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 130), (signal.SIGKILL, -9)])
def test_no_process_outlives_the_demo(tmp_path: Path, number: int, code: int) -> None:
    home = tmp_path / "home"
    demo = subprocess.Popen(command(home), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    eventually(lambda: len(alive(home)) >= 4, "the demo, two drivers and a JVM are there")
    os.kill(demo.pid, number)
    demo.communicate(timeout=60)
    assert demo.returncode == code
    eventually(lambda: not alive(home), "all processes of the demo are gone")
