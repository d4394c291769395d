"""A running pipeline while many threads look at it, with the interpreter changing between them all the time."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.hammering import hasty
from tests.integration.pipelines import Bench, present
from tests.integration.streams import Place

import tidelock
from tidelock.home.home import Home
from tidelock.running.run import Run
from tidelock.running.status import status

EPOCHS = 12
ROWS = 5
_PAUSE = 0.003


def test_looking_at_a_run_all_the_time_changes_nothing(
    spark: SparkSession, place: Place, tmp_path: Path, started: list[Run]
) -> None:
    bench = Bench(place)
    bench.feed("numbers", [[{"id": e * ROWS + i, "key": i % 3} for i in range(ROWS)] for e in range(EPOCHS)])
    pipeline = tidelock.Pipeline("watched", epoch="100 milliseconds", max_pending_epochs=5)
    bench.source(pipeline, "numbers")

    @pipeline.operator(anchor=True)
    def doubled(numbers: DataFrame) -> DataFrame:
        return numbers.select("key", (F.col("id") * 2).alias("id"))

    @pipeline.operator(mode="update", anchor=True)
    def counts(doubled: DataFrame) -> DataFrame:
        return doubled.groupBy("key").agg(F.count("*").alias("n"), F.sum("id").alias("total"))

    kept = bench.collect(pipeline, "counts")
    home = tmp_path / "home"
    seen: Counter[int] = Counter()
    failures: list[BaseException] = []

    def watch(ask: Any) -> None:
        try:
            while not over.wait(_PAUSE):
                seen[len(ask().segments)] += 1
        except BaseException as failure:
            failures.append(failure)

    over = threading.Event()
    with hasty():
        run = pipeline.start(spark, str(home), plan="each", last_epoch=EPOCHS - 1)
        started.append(run)
        asks = [run.status, lambda: status(Home(home))]
        watchers = [threading.Thread(target=watch, args=(ask,)) for ask in asks]
        for watcher in watchers:
            watcher.start()
        try:
            assert run.wait(240)
        finally:
            over.set()
            for watcher in watchers:
                watcher.join()
    assert failures == []
    assert set(seen) == {4}, "every answer is whole"
    by_key = {k: [2 * i for i in range(EPOCHS * ROWS) if i % ROWS % 3 == k] for k in range(3)}
    assert present(kept, EPOCHS - 1) == {(k,): (k, len(some), sum(some)) for k, some in by_key.items()}
    assert sorted(kept) == list(range(EPOCHS)), "every epoch was delivered"
    assert run.status().events == run.events
    assert (run.events[0].kind, run.events[-1].kind) == ("run started", "run ended")
    assert [event.to_json() for event in run.events] == Home(home).events()[-len(run.events) :]
    kinds = {event["kind"] for event in Home(home).events()}
    assert kinds - {"interval too short"} == {"run started", "stop asked", "run ended"}, "nothing failed"
