"""A running pipeline: what fails is restarted and nothing else, and every row counts once."""

from __future__ import annotations

import inspect
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.integration import faults
from tests.integration.pipelines import Bench, Rows, named, present
from tests.integration.streams import Place
from tests.waiting import eventually

import tidelock
from tidelock.errors import BatchFailed, PipelineError
from tidelock.home.home import Home
from tidelock.log import EpochLog
from tidelock.running.run import Run
from tidelock.running.status import status
from tidelock.spark.checkpoint.checkpoint import Checkpoint

EPOCHS = 8
ROWS = 5
EACH = "200 milliseconds"


@pytest.fixture
def bench(place: Place) -> Bench:
    made = Bench(place)
    made.feed("numbers", [[{"id": e * ROWS + i, "key": i % 3} for i in range(ROWS)] for e in range(EPOCHS)])
    return made


def ids(rows: Rows) -> Counter[int]:
    return Counter(row[0] for some in rows.values() for row in some)


def events(home: Path, kind: str) -> list[dict[str, Any]]:
    return [event for event in Home(home).events() if event["kind"] == kind]


def chain(bench: Bench, **care: Any) -> tidelock.Pipeline:
    """numbers -> doubled -> counts, in three segments."""
    pipeline = tidelock.Pipeline("chain", epoch=EACH, **care)
    bench.source(pipeline, "numbers")
    return pipeline


def test_only_the_failed_segment_restarts_and_its_story_is_told(
    spark: SparkSession, bench: Bench, tmp_path: Path, started: list[Run]
) -> None:
    once, dies = tmp_path / "once", tmp_path / "dies"
    pipeline = chain(bench)

    @pipeline.operator
    def checked(numbers: DataFrame) -> DataFrame:
        # Killed once: Spark runs the task again, and the query never knows.
        return faults.at_row(numbers, 7, dies, 1, faults.killing())

    @pipeline.operator(mode="update", anchor=True)
    def counts(checked: DataFrame) -> DataFrame:
        # As often as Spark tries a task, so the query fails, once.
        doomed = faults.at_row(checked, 17, once, 4, faults.raising("no seventeens"))
        return doomed.groupBy("key").agg(F.count("*").alias("n"), F.sum("id").alias("total"))

    kept = bench.collect(pipeline, "counts")
    home = tmp_path / "home"
    run = pipeline.start(spark, str(home), last_epoch=EPOCHS - 1)
    started.append(run)
    assert run.wait(120)

    assert (faults.happened(dies), faults.happened(once)) == (1, 4)
    by_key = {k: [i for i in range(EPOCHS * ROWS) if i % ROWS % 3 == k] for k in range(3)}
    expected = {(k,): (k, len(some), sum(some)) for k, some in by_key.items()}
    assert present(kept, EPOCHS - 1) == expected
    assert sorted(kept) == list(range(EPOCHS)), "every epoch was delivered"
    (failed,) = events(home, "segment failed")
    assert failed["segment"] == "keep_counts" and failed["epoch"] == 3
    assert "in operator counts: ValueError: no seventeens" in failed["text"]
    assert [e["segment"] for e in events(home, "segment restart")] == ["keep_counts"]
    assert [e["segment"] for e in events(home, "segment recovered")] == ["keep_counts"]
    assert events(home, "task retry")
    restarts = {s.name: s.restarts for s in run.status().segments}
    assert restarts == {"checked": 0, "keep_counts": 1}
    assert {s.epoch for s in status(Home(home)).segments} == {EPOCHS - 1}


def test_a_query_that_was_killed_while_it_wrote_its_first_batch_down_can_begin(
    spark: SparkSession, bench: Bench, tmp_path: Path
) -> None:
    """Spark refuses to begin where so much as a hidden file is, and `kill -9` leaves one."""
    home = Home(tmp_path / "home")
    pipeline = chain(bench)

    @pipeline.operator(mode="update", anchor=True)
    def counts(numbers: DataFrame) -> DataFrame:
        return numbers.groupBy("key").agg(F.count("*").alias("n"), F.sum("id").alias("total"))

    for folder in ("offsets", "commits"):
        place = Path(home.checkpoint("keep_counts")) / folder
        place.mkdir(parents=True)
        (place / ".0.2c0c9702.tmp").write_text("v1")
    kept = bench.collect(pipeline, "counts")
    pipeline.run(spark, str(home.root), last_epoch=EPOCHS - 1)
    assert sum(row[1] for row in present(kept, EPOCHS - 1).values()) == EPOCHS * ROWS
    assert events(home.root, "segment failed") == []


def test_an_epoch_that_always_fails_stops_the_pipeline_and_nothing_is_lost(
    spark: SparkSession, bench: Bench, tmp_path: Path
) -> None:
    sick = tmp_path / "sick"
    home = tmp_path / "home"

    def declare(times: int) -> tuple[tidelock.Pipeline, Rows]:
        pipeline = chain(bench, attempts=2)

        @pipeline.operator(anchor=True)
        def checked(numbers: DataFrame) -> DataFrame:
            return faults.at_row(numbers, 12, sick, times, faults.raising("sick"))

        return pipeline, bench.collect(pipeline, "checked")

    pipeline, before = declare(times=1000)
    with pytest.raises(
        BatchFailed, match=r"segment keep_checked was given up.*2 times.*epoch 2.*ValueError: sick"
    ):
        pipeline.run(spark, str(home))
    assert status(Home(home)).state == "failed"
    assert sorted(before) == [0, 1]

    pipeline, after = declare(times=0)  # the user has mended it
    pipeline.run(spark, str(home), last_epoch=EPOCHS - 1)
    assert ids({**before, **after}) == Counter(range(EPOCHS * ROWS))
    assert sorted(after) == list(range(2, EPOCHS)), "what was finished is not done again"


def test_a_poison_epoch_is_set_aside(
    spark: SparkSession, bench: Bench, tmp_path: Path, started: list[Run]
) -> None:
    pipeline = chain(bench, attempts=2, on_poison="dead-letter")

    @pipeline.operator
    def checked(numbers: DataFrame) -> DataFrame:
        return faults.at_row(numbers, 12, tmp_path / "sick", 1000, faults.raising("sick"))

    kept = bench.collect(pipeline, "checked")
    home = tmp_path / "home"
    run = pipeline.start(spark, str(home), last_epoch=EPOCHS - 1)
    started.append(run)
    assert run.wait(120)

    poisoned = set(range(2 * ROWS, 3 * ROWS))
    assert ids(kept) == Counter(set(range(EPOCHS * ROWS)) - poisoned)
    assert kept[2] == [], "its epoch is there, and empty"
    dead = spark.read.format("tidelock").option("log", f"{home}/dead/keep_checked.numbers").load()
    assert {row["id"] for row in dead.collect()} == poisoned
    (entry,) = EpochLog.open(f"{home}/dead/keep_checked.numbers").verify()
    assert entry[1].inputs[0].covers.last == 2, "it says where it came from"
    (told,) = events(home, "set aside")
    assert "5 rows" in told["text"] and told["epoch"] == 2


@pytest.mark.chaos
def test_a_hanging_operator_is_cut_off_while_the_source_waits(
    spark: SparkSession, bench: Bench, tmp_path: Path, started: list[Run]
) -> None:
    pipeline = chain(bench, hang_after=15.0, max_pending_epochs=2)

    @pipeline.operator
    def passed(numbers: DataFrame) -> DataFrame:
        return numbers

    @pipeline.operator(anchor=True)
    def slow(passed: DataFrame) -> DataFrame:
        return faults.at_row(passed, 7, tmp_path / "hang", 1, faults.sleeping())

    kept = bench.collect(pipeline, "slow")
    home = tmp_path / "home"
    run = pipeline.start(spark, str(home), last_epoch=EPOCHS - 1)
    started.append(run)

    def paused() -> bool:
        return run.status().segment("passed").state == "paused"

    eventually(paused, "the source is paused")
    head = run.status().segment("passed")
    assert head.pending_epochs == 2, "the source waits, although it has more"
    assert run.wait(120)
    assert ids(kept) == Counter(range(EPOCHS * ROWS))
    (failed,) = events(home, "segment failed")
    assert "did not end within 15 s" in failed["text"]


def test_a_home_belongs_to_one_pipeline_and_one_process(
    spark: SparkSession, bench: Bench, tmp_path: Path, started: list[Run]
) -> None:
    def declare(*operators: str) -> tidelock.Pipeline:
        pipeline = chain(bench)
        previous = "numbers"
        for name in operators:

            def operator(**given: DataFrame) -> DataFrame:
                return next(iter(given.values()))

            operator.__name__ = name
            pipeline.operator(named(operator, previous))
            previous = name
        bench.collect(pipeline, previous)
        return pipeline

    home = str(tmp_path / "home")
    run = declare("one").start(spark, home)
    started.append(run)
    with pytest.raises(PipelineError, match=r"in use by process \d+.*tidelock stop"):
        declare("one").start(spark, home)
    eventually(lambda: run.status().epoch >= 1, "an epoch is through")
    run.stop()
    assert run.wait(60)
    at = {s.name: s.epoch for s in status(Home(home)).segments}
    assert len(set(at.values())) == 1, "drained: all at one epoch"
    with pytest.raises(PipelineError, match=r"two is new"):
        declare("one", "two").start(spark, home)
    with pytest.raises(tidelock.PlanError, match=r"other segments"):
        declare("one").start(spark, home, plan="each")


def test_another_job_follows_a_subject(spark: SparkSession, bench: Bench, tmp_path: Path) -> None:
    first = chain(bench)

    @first.operator
    def odd(numbers: DataFrame) -> DataFrame:
        return numbers.where("id % 2 = 1")

    first.publish("odd", subject="chain.odd")
    first.run(spark, tmp_path / "first", last_epoch=EPOCHS - 1)

    second = tidelock.Pipeline("follower", epoch=EACH)
    second.subscribe("chain.odd", home=str(tmp_path / "first"), aligned=True)
    kept = bench.collect(second, "odd")
    second.run(spark, tmp_path / "second", last_epoch=EPOCHS - 1)
    assert sorted(kept) == list(range(EPOCHS)), "it has the epochs of the subject"
    assert ids(kept) == Counter(range(1, EPOCHS * ROWS, 2))
    cursor = EpochLog.open(f"{tmp_path}/first/logs/odd").cursor("follower.odd")
    assert cursor is not None
    assert cursor >= EPOCHS - 2, "it is waited for"


def test_a_drain_also_takes_what_is_less_than_a_batch(
    spark: SparkSession, bench: Bench, tmp_path: Path, started: list[Run]
) -> None:
    pipeline = chain(bench)

    @pipeline.operator(anchor=True)
    def passed(numbers: DataFrame) -> DataFrame:
        return numbers

    kept = bench.collect(pipeline, "passed")
    plan = {
        "segments": [{"operators": ["numbers"]}, {"operators": ["passed", "keep_passed"], "epochs_per_batch": 3}]
    }
    run = pipeline.start(spark, tmp_path / "home", plan=plan, last_epoch=EPOCHS - 1)
    started.append(run)
    assert run.wait(120)
    assert ids(kept) == Counter(range(EPOCHS * ROWS))
    assert sorted(kept) == [2, 5, 7]
    assert {s.epoch for s in run.status().segments} == {EPOCHS - 1}


def cast_in_a_frame() -> Callable[[DataFrame], DataFrame]:
    def doomed(numbers: DataFrame) -> DataFrame:
        return numbers.withColumn("n", F.concat(F.lit("x"), "id").cast("long"))

    return doomed


def cast_in_sql() -> Callable[[DataFrame], DataFrame]:
    def doomed(numbers: DataFrame) -> DataFrame:
        return numbers.selectExpr("id", "key", "cast(concat('x', id) as long) as n")

    return doomed


def other_columns() -> Callable[[DataFrame], DataFrame]:
    def doomed(numbers: DataFrame) -> DataFrame:
        return numbers.mapInPandas(lambda frames: (frame[["key"]] for frame in frames), "n long")

    return doomed


@pytest.mark.parametrize(
    ("declare", "told"),
    [
        (cast_in_a_frame, r"in operator doomed: \[CAST_INVALID_INPUT\] .*\(test_supervision.py, line \d+\)$"),
        (cast_in_sql, r"in one of numbers, doomed, rest: \[CAST_INVALID_INPUT\] .*\(in \"cast\(concat.*\"\)$"),
        (other_columns, r"in one of numbers, doomed, rest: PySparkRuntimeError: \[RESULT_COLUMN_NAMES_MISMATCH\]"),
    ],
)
def test_a_failure_inside_spark_is_told_in_one_line(
    spark: SparkSession,
    bench: Bench,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    declare: Callable[[], Callable[[DataFrame], DataFrame]],
    told: str,
) -> None:
    """Which operator, which line of the user's, and no stack of the JVM, here or on standard error."""
    pipeline = chain(bench, attempts=1)

    @pipeline.operator
    def rest(doomed: DataFrame) -> DataFrame:
        return doomed.where("n > 0")

    pipeline.operator(declare())
    bench.collect(pipeline, "rest")
    with pytest.raises(BatchFailed, match=told) as failure:
        pipeline.run(spark, str(tmp_path / "home"))
    assert "\n" not in str(failure.value) and len(str(failure.value)) < 700
    assert "org.apache.spark" not in capfd.readouterr().err


def asks_for_no_column(numbers: DataFrame) -> None:
    numbers.select("nocolumn").collect()


def asks_java(numbers: DataFrame) -> None:
    jvm: Any = numbers.sparkSession._jvm
    jvm.java.util.ArrayList().get(5)


@pytest.mark.parametrize(
    ("ask", "told"),
    [
        (asks_for_no_column, r"\[UNRESOLVED_COLUMN.*"),
        (asks_java, "IndexOutOfBoundsException: Index 5 out of bounds for length 0"),
    ],
)
def test_an_error_of_spark_in_a_sink_has_the_line_that_called_spark(
    spark: SparkSession, bench: Bench, tmp_path: Path, ask: Callable[[DataFrame], None], told: str
) -> None:
    pipeline = chain(bench, attempts=1)

    @pipeline.sink
    def out(numbers: DataFrame, epoch: int) -> None:
        ask(numbers)

    lines, first = inspect.getsourcelines(ask)
    line = rf"\(test_supervision.py, line {first + len(lines) - 1}, in {ask.__name__}\)"
    with pytest.raises(BatchFailed, match=f"in operator out: {told} {line}$"):
        pipeline.run(spark, str(tmp_path / "home"))


def test_an_operator_that_spark_cannot_build_is_told_with_its_line(
    spark: SparkSession, bench: Bench, tmp_path: Path
) -> None:
    pipeline = chain(bench)

    @pipeline.operator
    def doomed(numbers: DataFrame) -> DataFrame:
        return numbers.select("nocolumn")

    bench.collect(pipeline, "doomed")
    told = r"operator doomed cannot be built: \[UNRESOLVED_COLUMN.* \(test_supervision.py, line \d+, in doomed\)$"
    with pytest.raises(PipelineError, match=told):
        pipeline.run(spark, str(tmp_path / "home"))


def test_a_stop_while_the_next_epoch_is_planned_changes_no_epoch(
    spark: SparkSession, bench: Bench, tmp_path: Path
) -> None:
    """The file source has listed a file, and Spark has not begun the batch that takes it."""
    home = tmp_path / "home"
    first = bench.collect(made := chain(bench), "numbers")
    made.run(spark, home, last_epoch=1)
    (steps,) = (home / "checkpoints").glob("*/sources/0")
    planned = Checkpoint(None, str(steps.parents[1])).newest_begun() + 1
    (file,) = tmp_path.rglob(f"{planned:06}.parquet")
    entry = {"path": file.as_uri(), "timestamp": int(file.stat().st_mtime * 1000), "batchId": planned}
    (steps / str(planned)).write_text(f"v1\n{json.dumps(entry)}")
    (steps / f".{planned}.crc").unlink(missing_ok=True)
    then = bench.collect(made := chain(bench), "numbers")
    made.run(spark, home, last_epoch=EPOCHS - 1)
    seen = {epoch: [row[0] for row in rows] for epoch, rows in {**first, **then}.items()}
    assert seen == {epoch: [*range(epoch * ROWS, (epoch + 1) * ROWS)] for epoch in range(EPOCHS)}


def test_an_output_mode_that_cannot_be_is_told_with_those_that_can(
    spark: SparkSession, bench: Bench, tmp_path: Path
) -> None:
    pipeline = chain(bench)

    @pipeline.operator
    def doomed(numbers: DataFrame) -> DataFrame:
        return numbers.groupBy("key").count()

    bench.collect(pipeline, "doomed")
    told = r"doomed cannot run with mode='append': .* With `mode='update'` or `mode='complete'` in its declaration"
    with pytest.raises(PipelineError, match=told):
        pipeline.run(spark, str(tmp_path / "home"))


def test_a_sink_that_leaves_the_program_fails_like_any_other(
    spark: SparkSession, bench: Bench, tmp_path: Path
) -> None:
    pipeline = chain(bench, attempts=1)

    @pipeline.sink
    def leave(numbers: DataFrame, epoch: int) -> None:
        raise SystemExit(3)

    with pytest.raises(BatchFailed, match=r"in operator leave: SystemExit: 3 \(test_supervision.py, line"):
        pipeline.run(spark, str(tmp_path / "home"))
