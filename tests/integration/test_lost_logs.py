"""Logs that are lost, between two runs or under one: the pipeline goes back, and every row counts once."""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from tests.integration.pipelines import Bench
from tests.integration.streams import Place
from tests.waiting import eventually

import tidelock
from tidelock.errors import BatchFailed
from tidelock.home.home import Home
from tidelock.log import EpochLog
from tidelock.running.run import Run

ROWS = 5


class Sums:
    """numbers -> sums -> files, in three segments, one of them with state; its home and its input."""

    def __init__(self, place: Place) -> None:
        self.spark = place.spark
        self.bench = Bench(place)
        self.home = place.home / "home"
        self.fed = 0
        self.runs: list[Run] = []

    def feed(self, epochs: int) -> None:
        rows = [[self._row(e * ROWS + i) for i in range(ROWS)] for e in range(self.fed, self.fed + epochs)]
        self.bench.feed("numbers", rows)
        self.fed += epochs

    @staticmethod
    def _row(number: int) -> dict[str, int]:
        return {"id": number, "key": number % 3}

    def pipeline(self) -> tidelock.Pipeline:
        pipeline = tidelock.Pipeline("sums", epoch="100 milliseconds")
        self.bench.source(pipeline, "numbers")

        @pipeline.operator(mode="update", anchor=True)
        def sums(numbers: DataFrame) -> DataFrame:
            return numbers.groupBy("key").agg(F.count("*").alias("n"), F.sum("id").alias("total"))

        pipeline.files("sums")
        return pipeline

    def start(self) -> Run:
        run = self.pipeline().start(self.spark, self.home, plan="each")
        self.runs.append(run)
        return run

    def run(self, *, drain: bool = True) -> None:
        """Run until the files are right, then stop."""
        run = self.start()
        eventually(lambda: self.present() == self.expected(), "all rows are counted")
        run.stop(drain=drain)
        assert run.wait(60)

    def expected(self) -> dict[int, tuple[int, int]]:
        ids: dict[int, list[int]] = defaultdict(list)
        for number in range(self.fed * ROWS):
            ids[number % 3].append(number)
        return {key: (len(some), sum(some)) for key, some in ids.items()}

    def present(self) -> dict[int, tuple[int, int]]:
        """The newest row of every key in the files of the sink."""
        out = self.home / "out" / "sums_files"
        if not any(out.glob("epoch=*/_manifest.json")):
            return {}
        rows = self.spark.read.parquet(str(out)).orderBy("epoch").collect()
        return {row["key"]: (row["n"], row["total"]) for row in rows}

    def log(self, node: str) -> Path:
        return self.home / "logs" / node

    def told(self) -> str:
        return "\n".join(e["text"] for e in Home(self.home).events() if e["kind"] == "logs lost")


@pytest.fixture
def sums(place: Place) -> Iterator[Sums]:
    made = Sums(place)
    made.feed(3)
    yield made
    for run in made.runs:
        run.stop(drain=False)
        with suppress(tidelock.TidelockError):
            run.wait(60)


def test_logs_that_are_gone_when_a_run_starts(sums: Sums) -> None:
    sums.run()
    identities = {node: EpochLog.open(str(sums.log(node))).header.id for node in ("numbers", "sums")}
    shutil.rmtree(sums.home / "logs")
    sums.feed(2)
    sums.run()
    assert "log numbers has lost everything; log sums has lost everything" in sums.told()
    assert {node: EpochLog.open(str(sums.log(node))).header.id for node in identities} == identities


@pytest.mark.chaos
def test_a_segment_that_was_behind_takes_the_others_back(sums: Sums) -> None:
    sums.run()
    sums.feed(3)
    _leave_behind(sums, "sums_files")
    shutil.rmtree(sums.home / "logs")
    before = len(Home(sums.home).events())
    sums.run()
    told = sums.told()
    assert "done again: numbers from epoch 3" in told and "sums from epoch 3" in told
    kinds = [event["kind"] for event in Home(sums.home).events()[before:]]
    assert kinds.index("logs lost") < kinds.index("run resumed")
    assert "segment failed" not in kinds


@pytest.mark.chaos
def test_a_tail_that_is_lost_is_made_again(sums: Sums) -> None:
    sums.run()
    sums.feed(3)
    _leave_behind(sums, "sums_files")
    newest = sorted((sums.log("sums") / "entries").glob("*.json"))[-1]
    newest.unlink()
    sums.run()
    assert "log sums has lost the epochs from" in sums.told()


@pytest.mark.chaos
def test_a_log_that_vanishes_under_a_run_is_told_and_the_next_run_goes_on(sums: Sums) -> None:
    run = sums.start()
    eventually(lambda: sums.present() == sums.expected(), "all rows are counted")
    shutil.rmtree(sums.log("numbers"))
    with pytest.raises(
        BatchFailed, match=r"cannot be retried.*logs/numbers: the log has lost .*Start the pipeline again"
    ):
        run.wait(60)
    sums.feed(2)
    sums.run()
    assert "log numbers has lost everything" in sums.told()


def _leave_behind(sums: Sums, segment: str) -> None:
    """Let everything but one segment take what was fed, as if the run had been killed then."""
    run = sums.start()
    supervisor = run._supervisor
    eventually(lambda: segment in supervisor.attempts, "it is started")
    supervisor.attempts[segment].gate.close()
    done = sums.fed - 1
    eventually(lambda: supervisor.machine.epoch("sums") >= done, "the others have gone on")
    run.stop(drain=False)
    assert run.wait(60)
