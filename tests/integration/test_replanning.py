"""A home goes on under another plan: every row counts once, and what cannot change is refused."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.integration import random_pipelines as drawn
from tests.integration.pipelines import Bench, Rows, present
from tests.integration.streams import Place
from tests.waiting import eventually

import tidelock
from tidelock import aggregates
from tidelock.backup.backup import Backup
from tidelock.backup.restore import restore
from tidelock.errors import PipelineError, PlanError
from tidelock.home.home import Home
from tidelock.log import EpochLog
from tidelock.replanning import replanning
from tidelock.replanning.replanning import Replanned, replan
from tidelock.running.status import status
from tidelock.spark.checkpoint.checkpoint import Checkpoint

EPOCHS, ROWS = 7, 6
EACH = "200 milliseconds"


def plan(*segments: str, **epochs: int) -> dict[str, Any]:
    """A plan's document: segments as their operators, and the epochs per batch of some by their last operator."""
    groups = [one.split() for one in segments]
    return {"segments": [{"operators": g, "epochs_per_batch": epochs.get(g[-1], 1)} for g in groups]}


TWO = plan("numbers odd doubled", "counts keep_counts")
FOUR = plan("numbers", "odd", "doubled", "counts keep_counts")
THREE = plan("numbers", "odd doubled", "counts keep_counts")


@pytest.fixture
def bench(place: Place) -> Bench:
    return Bench(place)


def numbers(spark: SparkSession) -> DataFrame:
    """The next numbers in every epoch, also when a query was stopped at a bad moment."""
    made = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS).option("startTimestamp", 0)
    return made.load().selectExpr("value AS id", f"value % {ROWS} % 4 AS key")


def in_spark(rows: DataFrame) -> DataFrame:
    return rows.groupBy("key").agg(F.count("*").alias("n"), F.sum("id").alias("total"))


def in_a_cache(rows: DataFrame) -> DataFrame:
    return tidelock.keyed(rows, "key").aggregate(n=aggregates.count(), total=aggregates.sum("id"))


def chain(
    bench: Bench, counted: Callable[[DataFrame], DataFrame] = in_spark, **care: Any
) -> tuple[tidelock.Pipeline, Rows]:
    """numbers -> odd -> doubled -> counts, and what came out of it; only counts have state."""
    pipeline = tidelock.Pipeline("chain", epoch=EACH, **care)
    pipeline.source(numbers)

    @pipeline.operator
    def odd(numbers: DataFrame) -> DataFrame:
        return numbers.where("id % 2 = 1")

    @pipeline.operator
    def doubled(odd: DataFrame) -> DataFrame:
        return odd.withColumn("id", F.col("id") * 2)

    @pipeline.operator(mode="update")
    def counts(doubled: DataFrame) -> DataFrame:
        return counted(doubled)

    return pipeline, bench.collect(pipeline, "counts")


def expected(last: int) -> dict[tuple[int], tuple[int, int, int]]:
    """The counts over all input up to an epoch, computed in one go."""
    rows = [(i % ROWS % 4, 2 * i) for i in range((last + 1) * ROWS) if i % 2 == 1]
    found = {key: [i for k, i in rows if k == key] for key, _ in rows}
    return {(key,): (key, len(some), sum(some)) for key, some in found.items()}


def contents(home: Path) -> dict[str, bytes]:
    """Everything that a home holds."""
    files = {file.relative_to(home).as_posix(): file for file in home.rglob("*") if file.is_file()}
    return {name: file.read_bytes() for name, file in files.items() if name != "lock"}


def refused(home: Path, change: Callable[[], object], message: str) -> None:
    """The change is refused, and the home is as it was."""
    before = contents(home)
    with pytest.raises(PlanError, match=message):
        change()
    assert contents(home) == before


def cut_off(monkeypatch: pytest.MonkeyPatch, change: Callable[[], object], *, recorded: bool) -> None:
    """Kill a change right before or right after the record of the home is replaced."""

    class Killed(Exception):
        pass

    write = Home.remember

    def remember(home: Home, record: Any) -> None:
        if recorded:
            write(home, record)
        patch.setattr(replanning, "finish", lambda home: None)
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(Home, "remember", remember)
        change()


def test_segments_are_split_and_merged_and_state_stays(
    spark: SparkSession, bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline, kept = chain(bench)
    root, copy = tmp_path / "home", f"file:{tmp_path}/copy"
    home = Home(root)
    with pytest.raises(PipelineError, match="is not the home of a pipeline"):
        replan(pipeline, spark, home, FOUR)
    assert not root.exists()

    pipeline.run(spark, root, plan=TWO, last_epoch=1, backup=copy)
    assert present(kept, 1) == expected(1)
    refused(
        root,
        lambda: replan(pipeline, spark, home, "one"),
        r"operator counts keeps state.*from segment keep_counts \(counts, keep_counts\) to segment keep_counts "
        r"\(numbers.*keep counts and keep_counts together.*use a new home",
    )
    commits = numbered(root / "checkpoints/keep_counts/commits")
    commit = commits[max(commits)]
    hidden = commit.rename(tmp_path / "hidden")
    refused(root, lambda: replan(pipeline, spark, home, FOUR), "doubled at epoch 1, keep_counts at epoch 0.*--now")
    hidden.rename(commit)

    cut_off(monkeypatch, lambda: replan(pipeline, spark, home, FOUR), recorded=False)
    pipeline.run(spark, root, last_epoch=2)
    assert present(kept, 2) == expected(2), "the old plan goes on"
    assert [s.name for s in status(home).segments] == ["doubled", "keep_counts"]
    cut_off(monkeypatch, lambda: replan(pipeline, spark, home, FOUR), recorded=True)
    finished = Replanned(("numbers", "odd", "doubled", "keep_counts"), (), (), (), {})
    assert replan(pipeline, spark, home, FOUR) == finished, "the new plan was there, and only the rest to do"

    pipeline.run(spark, root, last_epoch=4, backup=copy)
    assert present(kept, 4) == expected(4)
    assert min(r.first for r in EpochLog.open(home.log("odd")).ranges()) >= 2, (
        "a new log begins where the home was"
    )
    merged = replan(pipeline, spark, home, THREE)
    assert merged == Replanned(("numbers", "keep_counts"), ("doubled",), (), ("odd",), {})
    log = EpochLog.open(home.log("numbers"))
    assert log.header.retention.wait_for == {"doubled"}
    assert log.cursors().keys() == {"doubled", "backup"}
    with pytest.raises(tidelock.LogNotFound):
        EpochLog.open(home.log("odd"))
    assert not Path(home.checkpoint("odd")).exists()

    pipeline.run(spark, root, last_epoch=5, backup=copy)
    assert present(kept, 5) == expected(5)
    assert "backup failed" not in {event["kind"] for event in home.events()}
    Backup(home, copy).copy()
    shutil.rmtree(root)
    elsewhere = Home(tmp_path / "elsewhere")
    restore(copy, elsewhere)
    merged = replan(pipeline, spark, elsewhere, TWO)
    assert merged == Replanned(("keep_counts",), ("doubled",), (), ("numbers",), {})
    pipeline.run(spark, elsewhere.root, last_epoch=EPOCHS - 1)
    assert present(kept, EPOCHS - 1) == expected(EPOCHS - 1)
    assert sorted(kept) == list(range(EPOCHS)), "every epoch was delivered"


def test_state_in_a_cache_stays_where_it_is(
    spark: SparkSession, bench: Bench, tmp_path: Path, redis_url: str
) -> None:
    pipeline, kept = chain(bench, in_a_cache, snapshot_every=2)
    home = Home(tmp_path / "home")
    pipeline.run(spark, home.root, cache=redis_url, plan=TWO, last_epoch=1)
    assert present(kept, 1) == expected(1)
    waits_for = EpochLog.open(home.log("doubled")).header.retention.wait_for
    assert waits_for == {"keep_counts", "keep_counts.snapshot"}

    refused(
        home.root,
        lambda: replan(pipeline, spark, home, plan("numbers odd", "doubled counts keep_counts")),
        r"operator counts keeps state.*from segment keep_counts \(counts, keep_counts\) to segment keep_counts "
        r"\(doubled, counts, keep_counts\).*keep counts and keep_counts together.*use a new home",
    )
    split = replan(pipeline, spark, home, FOUR)
    assert split == Replanned(("keep_counts",), ("doubled",), ("numbers", "odd"), (), {})
    assert EpochLog.open(home.log("doubled")).header.retention.wait_for == waits_for
    batches = plan("numbers", "odd", "doubled", "counts keep_counts", doubled=2)
    assert replan(pipeline, spark, home, batches).epochs_per_batch == {"doubled": (1, 2)}

    pipeline.run(spark, home.root, last_epoch=5)
    assert present(kept, 5) == expected(5)
    assert sorted(kept)[:2] == [0, 1], "no epoch was computed twice"
    assert not {"state lost", "state loaded"} & {event["kind"] for event in home.events()}
    epoch, found = tidelock.cached_state(home.root, "counts").lookup([{"key": 1}])
    assert (epoch, found.column("total.v").to_pylist()) == (5, [expected(5)[1,][2]])

    other, _ = chain(bench, lambda rows: tidelock.keyed(rows, "key").aggregate(n=aggregates.count()))
    with pytest.raises(
        PipelineError, match=r"operator counts wants: the state of tidelock\.keyed is now without total"
    ):
        replan(other, spark, home, TWO)
    other, _ = chain(
        bench,
        lambda rows: tidelock.keyed(rows, "key").aggregate(n=aggregates.count(), total=aggregates.max("id")),
    )
    with pytest.raises(PipelineError, match=r"Operator counts goes on with state.*aggregates\.max"):
        other.run(spark, home.root, last_epoch=6)


def test_epochs_per_batch_change_in_the_middle_of_everything(
    spark: SparkSession, bench: Bench, tmp_path: Path
) -> None:
    pipeline, kept = chain(bench)
    home = Home(tmp_path / "home")
    half, tries = None, iter(range(20))
    while half is None:
        seen, _ = len(kept), next(tries)
        run = pipeline.start(spark, home.root, plan=TWO)
        eventually(lambda: 1 in kept and len(kept) > seen, "some epochs have gone through")  # noqa: B023
        run.stop(drain=False)
        assert run.wait(60)
        half = half_done(home, "keep_counts", "doubled")

    change = replan(pipeline, spark, home, plan("numbers odd doubled", "counts keep_counts", keep_counts=2))
    assert change == Replanned(("doubled", "keep_counts"), (), (), (), {"keep_counts": (1, 2)})
    head, _ = status(home).segments
    last = max(head.epoch, half + 2)
    last += (last - half) % 2
    kept.pop(half, None)
    pipeline.run(spark, home.root, last_epoch=last)
    assert sorted(kept) == [*range(half), *range(half, last + 1, 2)], "the half-done batch as it was, then by two"
    assert present(kept, last) == expected(last)
    assert [event["text"] for event in home.events() if event["kind"] == "plan changed"] == [str(change)]


@pytest.mark.chaos
def test_torn_files_are_mended_before_the_plan_changes(spark: SparkSession, bench: Bench, tmp_path: Path) -> None:
    pipeline, kept = chain(bench)
    home = Home(tmp_path / "home")
    pipeline.run(spark, home.root, plan=TWO, last_epoch=2)
    for segment in ("doubled", "keep_counts"):
        offsets, commits = (numbered(Path(home.checkpoint(segment)) / folder) for folder in ("offsets", "commits"))
        for file in (commits[max(commits)], *(file for batch, file in offsets.items() if batch > max(commits))):
            file.write_bytes(b"")
    with pytest.raises(PlanError, match="is not drained: segment doubled is in the middle of epoch 2"):
        replan(pipeline, spark, home, FOUR)
    assert "torn file removed" in [event["kind"] for event in home.events()]
    pipeline.run(spark, home.root, last_epoch=2)
    assert replan(pipeline, spark, home, FOUR).kept == ("keep_counts",)
    assert present(kept, 2) == expected(2)


def half_done(home: Home, segment: str, log: str) -> int | None:
    """The epoch whose batch is begun and not committed; if there is none, the newest one becomes it.

    None if that cannot be: the segment has told the log of its commit, so the log may have dropped its input.
    """
    checkpoint = Checkpoint(None, home.checkpoint(segment))
    offsets, commits = (numbered(Path(checkpoint.location) / folder) for folder in ("offsets", "commits"))
    newest = checkpoint.offsets(max(offsets)).last_epoch(max(offsets))
    if offsets.keys() == commits.keys():
        if EpochLog.open(home.log(log)).cursors()[segment] >= newest:
            return None
        commits[max(commits)].unlink()  # as if killed after the sink's effect, before Spark's commit
    return newest


def numbered(folder: Path) -> dict[int, Path]:
    return {int(file.name): file for file in folder.glob("[0-9]*")}


def clocked(name: str, *seconds: int) -> list[list[dict[str, Any]]]:
    """One row per epoch, at these times."""
    at = [drawn.START + timedelta(seconds=number) for number in seconds]
    return [[{"id": i, "user": name, "amount": 20, "at": one}] for i, one in enumerate(at)]


def windows(bench: Bench) -> tuple[tidelock.Pipeline, Rows]:
    """Two sources with a watermark each, united, and sums over windows of both."""
    pipeline = tidelock.Pipeline("windows", epoch=EACH)
    bench.source(pipeline, "clicks")
    bench.source(pipeline, "views")

    @pipeline.operator
    def clicked(clicks: DataFrame) -> DataFrame:
        return drawn.timed(clicks)

    @pipeline.operator
    def viewed(views: DataFrame) -> DataFrame:
        return drawn.timed(views)

    @pipeline.operator
    def both(clicked: DataFrame, viewed: DataFrame) -> DataFrame:
        return drawn.merged(viewed, clicked)

    @pipeline.operator
    def large(both: DataFrame) -> DataFrame:
        return both.where("amount >= 10")

    @pipeline.operator
    def sums(large: DataFrame) -> DataFrame:
        return drawn.windows(large)

    return pipeline, bench.collect(pipeline, "sums")


@pytest.mark.chaos
def test_positions_in_several_logs_and_watermarks_go_over(
    spark: SparkSession, bench: Bench, tmp_path: Path
) -> None:
    bench.feed("clicks", clocked("c", 0, 40, 80, 0, 0, 0), drawn.SCHEMA)
    bench.feed("views", clocked("v", 0, 10, 20, 60, 90, 120), drawn.SCHEMA)
    before = plan("clicks clicked", "views viewed", "both large", "sums keep_sums")
    after = plan("clicks", "clicked", "views viewed", "both", "large", "sums keep_sums")
    pipeline, usual = windows(bench)
    bench.run_in_turn(pipeline, before)
    assert usual[5], "the last windows are closed by what the clicks had told before the plan changed"

    pipeline, kept = windows(bench)
    home = Home(tmp_path / "replanned")
    pipeline.run(spark, home.root, plan=before, last_epoch=2)
    together = plan("clicks clicked views viewed both", "large", "sums keep_sums")
    refused(home.root, lambda: replan(pipeline, spark, home, together), "would read clicks and views in one query")
    change = replan(pipeline, spark, home, after)
    assert change == Replanned(("viewed", "keep_sums"), ("clicked", "large"), ("clicks", "both"), (), {})
    pipeline.run(spark, home.root, last_epoch=5)
    assert kept == usual
