"""Pipelines whose logs are in Redis: restarts read from memory, and a server that fills up pauses the source."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.integration import faults
from tests.integration.pipelines import Bench, Rows, present
from tests.integration.streams import Place
from tests.redis_servers import RedisServers
from tests.waiting import PATIENCE, eventually

import tidelock
from tidelock.errors import PipelineError
from tidelock.home.home import Home
from tidelock.home.status import SegmentStatus
from tidelock.log import EpochLog
from tidelock.running.run import Run

EPOCHS = 6
ROWS = 5
EACH = "200 milliseconds"


@pytest.fixture
def bench(place: Place) -> Bench:
    made = Bench(place)
    made.feed("numbers", [[{"id": e * ROWS + i, "key": i % 3} for i in range(ROWS)] for e in range(EPOCHS)])
    return made


def counting(bench: Bench, fault: faults.Fault, counter: Path) -> tuple[tidelock.Pipeline, Rows]:
    """numbers -> checked -> counts, with a fault in counts that ends its query once, in epoch 3."""
    pipeline = tidelock.Pipeline("counting", epoch=EACH)
    bench.source(pipeline, "numbers")

    @pipeline.operator
    def checked(numbers: DataFrame) -> DataFrame:
        return numbers.where("id >= 0")

    @pipeline.operator(mode="update", anchor=True)
    def counts(checked: DataFrame) -> DataFrame:
        doomed = faults.at_row(checked, 17, counter, 4, fault)
        return doomed.groupBy("key").agg(F.count("*").alias("n"), F.sum("id").alias("total"))

    return pipeline, bench.collect(pipeline, "counts")


def expected() -> dict[tuple[Any, ...], tuple[Any, ...]]:
    by_key = {k: [i for i in range(EPOCHS * ROWS) if i % ROWS % 3 == k] for k in range(3)}
    return {(k,): (k, len(some), sum(some)) for k, some in by_key.items()}


def check_counts(kept: Rows) -> None:
    assert present(kept, EPOCHS - 1) == expected()
    assert sorted(kept) == list(range(EPOCHS)), "every epoch was delivered"


def restarted(home: Path) -> list[str]:
    return [event["segment"] for event in Home(home).events() if event["kind"] == "segment restart"]


def test_a_failed_segment_replays_from_memory_when_the_source_has_forgotten(
    spark: SparkSession, bench: Bench, tmp_path: Path, started: list[Run], redis_url: str
) -> None:
    forgotten, counter, home = tmp_path / "forgotten", tmp_path / "counter", tmp_path / "home"
    pipeline, kept = counting(bench, faults.raising_after(forgotten, "too late"), counter)
    run = pipeline.start(spark, home, log=redis_url, last_epoch=EPOCHS - 1)
    started.append(run)
    log = EpochLog.open(f"{redis_url}/checked")
    eventually(lambda: log.ranges() and log.ranges()[-1].last == EPOCHS - 1, "the head has taken all in")
    for file in (bench.place.home / "input" / "numbers").iterdir():
        file.unlink()
    forgotten.touch()
    assert run.wait(120)
    check_counts(kept)
    assert restarted(home) == ["keep_counts"]
    assert not (home / "logs").exists()


@pytest.mark.chaos
def test_logs_in_several_places_make_one_pipeline(
    spark: SparkSession, bench: Bench, tmp_path: Path, started: list[Run], redis_url: str
) -> None:
    counter, home = tmp_path / "counter", tmp_path / "home"
    places = {"numbers": f"{redis_url}?timeout=10", "*": f"file:{tmp_path}/elsewhere"}
    pipeline, kept = counting(bench, faults.killing(), counter)
    run = pipeline.start(spark, home, log=places, plan="each", last_epoch=2)
    started.append(run)
    assert run.wait(120)

    # It goes on where it was, without being told where its logs are; then a worker is killed until Spark gives up.
    run = pipeline.start(spark, home, last_epoch=EPOCHS - 1)
    started.append(run)
    assert run.wait(120)
    check_counts(kept)
    assert faults.happened(counter) == 4
    assert restarted(home) == ["counts"]
    logs = {s.name: s.log for s in Home(home).known().segments if s.log}
    assert logs == {
        "numbers": f"{redis_url}/numbers?timeout=10",
        "checked": f"file:{tmp_path}/elsewhere/checked",
        "counts": f"file:{tmp_path}/elsewhere/counts",
    }
    for url in logs.values():
        assert EpochLog.open(url).ranges()[-1].last == EPOCHS - 1


@pytest.mark.chaos
def test_a_server_that_comes_back_empty_costs_no_row(
    spark: SparkSession, bench: Bench, tmp_path: Path, started: list[Run], redis_servers: RedisServers
) -> None:
    server, blocked = redis_servers.start(), tmp_path / "blocked"
    pipeline, kept = counting(bench, faults.raising_after(blocked, "let go"), tmp_path / "counter")
    run = pipeline.start(spark, tmp_path / "home", log=f"{server.url}/job?timeout=2", last_epoch=EPOCHS - 1)
    started.append(run)
    eventually(lambda: sorted(kept) == [0, 1, 2] and head(run).epoch >= 4, "epoch 3 is stuck, later ones wait")
    server.restart(empty=True)
    blocked.touch()
    with pytest.raises(tidelock.TidelockError):
        run.wait(120)

    # Spark's file source takes all that it has seen before into the first epoch that it makes again.
    run = pipeline.start(spark, tmp_path / "home")
    started.append(run)
    eventually(lambda: present(kept, EPOCHS) == expected(), "every row is counted")
    run.stop()
    assert run.wait(120)
    assert present(kept, EPOCHS) == expected(), "every row is counted once"
    (back,) = (event for event in Home(tmp_path / "home").events() if event["kind"] == "logs lost")
    assert "log checked has lost everything; done again: checked from epoch 3" in back["text"]


def test_places_for_logs_that_are_not_there(spark: SparkSession, bench: Bench, tmp_path: Path) -> None:
    pipeline, _ = counting(bench, faults.raising("never"), tmp_path / "counter")
    with pytest.raises(PipelineError, match="there is no source or operator of that name: did you mean 'checked'"):
        pipeline.start(spark, tmp_path / "home", log={"check": "redis://localhost/0/job"})
    with pytest.raises(PipelineError, match="under this plan it has none: the logs are those of checked"):
        pipeline.start(spark, tmp_path / "home", log={"numbers": "redis://localhost/0/job"})


def test_a_server_that_fills_up_pauses_the_source_and_drops_nothing(
    spark: SparkSession, place: Place, tmp_path: Path, started: list[Run], redis_servers: RedisServers
) -> None:
    epochs, rows, text = 20, 500, "x" * 1000
    server = redis_servers.start(maxmemory="8mb")
    bench = Bench(place)
    bench.feed("big", [[{"id": e * rows + i, "text": text} for i in range(rows)] for e in range(epochs)])
    pipeline = tidelock.Pipeline("filling", epoch="100 milliseconds")
    bench.source(pipeline, "big")
    seen: dict[int, Counter[int]] = {}
    paused = threading.Event()

    @pipeline.operator(anchor=True)
    def whole(big: DataFrame) -> DataFrame:
        return big.where(F.length("text") == len(text)).select("id")

    @pipeline.sink
    def keep(whole: DataFrame, epoch: int) -> None:
        assert paused.wait(PATIENCE), "the source was never paused"
        seen[epoch] = Counter(row["id"] for row in whole.collect())

    run = pipeline.start(spark, tmp_path / "home", log=server.url + "/job", last_epoch=epochs - 1)
    started.append(run)
    eventually(lambda: head(run).state == "paused", "the source is paused")
    assert head(run).epoch < epochs - 1
    paused.set()
    assert run.wait(120)
    assert seen == {e: Counter(range(e * rows, (e + 1) * rows)) for e in range(epochs)}
    assert restarted(tmp_path / "home") == []
    with server.client() as client:
        assert dict(client.info("stats"))["evicted_keys"] == 0


def head(run: Run) -> SegmentStatus:
    return run.status().segments[0]
