"""A home on a disk that fills up: the run waits, says so once, and goes on when there is room."""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.integration.pipelines import Bench, present
from tests.integration.streams import Place
from tests.integration.test_draining import FIRST, WINDOWS, compare
from tests.small_disks import Disk, MountedDisk, PretendedDisk, small_disk
from tests.waiting import eventually

import tidelock
import tidelock.spark.checkpoint.checkpoint
from tidelock.cli import main
from tidelock.errors import BackendUnavailable
from tidelock.home.events import RunEvent
from tidelock.home.home import Home
from tidelock.running.run import Run

ROWS = 5
HALF = 3
EPOCHS = 2 * HALF


FEW_FILES = "no more files"


@pytest.fixture(params=["as the machine permits", "pretended", pytest.param(FEW_FILES, marks=pytest.mark.chaos)])
def disk(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    if request.param == "pretended":
        (tmp_path / "disk").mkdir()
        yield PretendedDisk(tmp_path / "disk", monkeypatch)
        return
    with small_disk(tmp_path / "disk", monkeypatch, few_files=request.param == FEW_FILES) as made:
        yield made


def test_a_full_disk_is_waited_for_and_told_once(
    spark: SparkSession, place: Place, disk: Disk, started: list[Run], capsys: pytest.CaptureFixture[str]
) -> None:
    bench, home, told = Bench(place), Home(disk.folder / "home"), list[RunEvent]()

    def feed(first: int) -> None:
        epochs = range(first, first + HALF)
        bench.feed("numbers", [[{"id": e * ROWS + i, "key": i % 3} for i in range(ROWS)] for e in epochs])

    feed(0)
    pipeline = tidelock.Pipeline("full", epoch="200 milliseconds", attempts=1, on_poison="dead-letter")
    bench.source(pipeline, "numbers")

    @pipeline.operator(mode="update", anchor=True)
    def counts(numbers: DataFrame) -> DataFrame:
        return numbers.groupBy("key").agg(F.count("*").alias("n"), F.sum("id").alias("total"))

    kept = bench.collect(pipeline, "counts")
    run = Run(pipeline, spark, home, plan="each", last_epoch=EPOCHS - 1, listener=told.append)
    started.append(run)
    eventually(lambda: run.status().epoch >= HALF - 1, "the first epochs are through")
    try:
        disk.fill()
        feed(HALF)

        def meets_it() -> object:
            disk.fill()
            kinds = Counter(event.kind for event in told)
            return kinds["outage"] >= 2 and kinds["home not writable"]

        eventually(meets_it, "a segment meets the full disk, again, and so does the status")
        assert run.status().state == "running"
        assert main(["status", "--home", str(home.root)]) == 0, "whoever asks gets an answer"
    finally:
        disk.free()
    assert run.wait(120)

    kinds = Counter(event.kind for event in told)
    said = [event.kind for event in told if event.kind in ("home not writable", "home writable")]
    assert said == ["home not writable", "home writable"] * (len(said) // 2), "in pairs"
    # On a real disk a file that somebody removes may leave room for one status, before it is filled again.
    assert len(said) == 2 or isinstance(disk, MountedDisk), "said once"
    assert not {"segment failed", "gave up", "set aside"} & set(kinds), "no epoch is blamed"
    by_key = {k: [i for i in range(EPOCHS * ROWS) if i % ROWS % 3 == k] for k in range(3)}
    assert present(kept, EPOCHS - 1) == {(k,): (k, len(some), sum(some)) for k, some in by_key.items()}
    assert sorted(kept) == list(range(EPOCHS)), "every epoch was delivered"
    assert not home.is_held()
    written = [event["kind"] for event in home.events()]
    assert written[0] == "run started" and "home writable" in written and written[-1] == "run ended"
    capsys.readouterr()
    assert main(["stop", "--home", str(home.root), "--json"]) == 0
    assert '"state": "stopped"' in capsys.readouterr().out

    disk.fill()
    other = Home(disk.folder / "other")
    with pytest.raises(BackendUnavailable, match=r"no room"):
        Run(pipeline, spark, other)
    assert not other.is_held(), "and the home is free"


def test_a_drain_waits_for_room(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The two files that a drain writes itself: that nothing more comes, and an epoch that closes windows."""
    asked: Counter[str] = Counter()

    def full_at_first(name: str, write: Callable[..., None]) -> Callable[..., None]:
        def written(*args: Any, **more: Any) -> None:
            asked[name] += 1
            if asked[name] <= 2:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            write(*args, **more)

        return written

    drain = full_at_first("drain", Home.drain)
    monkeypatch.setattr(Home, "drain", lambda home, now: drain(home, now) if now else None)
    put_file = full_at_first("epoch", tidelock.spark.checkpoint.checkpoint.put_file)
    monkeypatch.setattr(tidelock.spark.checkpoint.checkpoint, "put_file", put_file)
    compare(place, WINDOWS, ["each"], [FIRST])
    assert min(asked["drain"], asked["epoch"]) > 2, "both were asked for again"
    assert Counter(event["kind"] for event in Home(place.home / "each").events())["run ended"] == 1
