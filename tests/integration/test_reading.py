"""The source: batches end exactly on epochs, the cursor follows Spark's commit log, lag is visible."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from tests.integration.streams import NOW, Place, collect, failure, finish
from tests.waiting import eventually

import tidelock
from tidelock.errors import LogNotFound, PipelineError, SchemaMismatch
from tidelock.log import EpochLog


@pytest.fixture
def growing(place: Place) -> Place:
    """A log `numbers` of seven epochs, to which more can be written; epoch n holds n * 10 and n * 10 + 1."""
    return _written(place)


@pytest.fixture(scope="module")
def template(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same log, written once."""
    return _written(Place(spark, tmp_path_factory.mktemp("template"))).home / "numbers"


@pytest.fixture
def numbers(place: Place, template: Path) -> Place:
    """The same log, to be read."""
    shutil.copytree(template, place.home / "numbers")
    return place


def _written(place: Place) -> Place:
    place.feed("numbers", [[{"n": e * 10}, {"n": e * 10 + 1}] for e in range(7)])
    place.write(place.input("numbers"), "numbers")
    return place


def epochs(*numbers: int) -> list[tuple[int]]:
    return sorted(((n * 10 + i,) for n in numbers for i in (0, 1)), key=repr)


def test_the_plain_format_needs_no_registration(numbers: Place) -> None:
    stream = numbers.spark.readStream.format("tidelock").option("log", numbers.url("numbers")).load()
    assert collect(stream, numbers.checkpoint("c")) == {e: epochs(e) for e in range(7)}


@pytest.mark.parametrize(
    ("taken", "batches"),
    [(1, [[e] for e in range(7)]), (3, [[0, 1, 2], [3, 4, 5], [6]]), ("all", [[0, 1, 2, 3, 4, 5, 6]])],
)
def test_a_batch_takes_so_many_epochs(numbers: Place, taken: int | str, batches: list[list[int]]) -> None:
    found = collect(numbers.read("numbers", epochs_per_batch=taken), numbers.checkpoint("c"))
    assert list(found.values()) == [epochs(*batch) for batch in batches]


def test_a_running_query_waits_for_as_many_epochs_as_it_takes(growing: Place) -> None:
    seen: list[list[tuple[int]]] = []
    stream = growing.read("numbers", epochs_per_batch=3)
    query = stream.writeStream.foreachBatch(
        lambda rows, n: seen.append(sorted(map(tuple, rows.collect()), key=repr))
    )
    running = query.option("checkpointLocation", growing.checkpoint("c")).start()
    eventually(lambda: len(seen) == 2, "two batches of three epochs")
    growing.feed("numbers", [[{"n": e * 10}, {"n": e * 10 + 1}] for e in (7, 8)])
    growing.write(growing.input("numbers"), "numbers")
    eventually(lambda: len(seen) == 3, "the third batch")
    running.stop()
    assert seen == [epochs(0, 1, 2), epochs(3, 4, 5), epochs(6, 7, 8)]


def test_a_query_begins_where_it_was_told(growing: Place) -> None:
    assert list(collect(growing.read("numbers", starting_epoch=5), growing.checkpoint("a")).values()) == [
        epochs(5),
        epochs(6),
    ]
    assert collect(growing.read("numbers", starting_epoch="latest"), growing.checkpoint("b")) == {0: []}
    growing.feed("numbers", [[{"n": 70}, {"n": 71}]])
    growing.write(growing.input("numbers"), "numbers")
    assert collect(growing.read("numbers", starting_epoch="latest"), growing.checkpoint("b")) == {1: epochs(7)}


def test_a_first_batch_that_is_run_again_reads_the_same(growing: Place) -> None:
    """`earliest` of a log that was truncated in between is another epoch, but the batch has been decided."""
    seen: list[list[tuple[int]]] = []

    def fail_once(rows: DataFrame, batch: int) -> None:
        seen.append(sorted(map(tuple, rows.collect()), key=repr))
        if len(seen) == 1:
            raise RuntimeError("once")

    def start() -> StreamingQuery:
        stream = growing.read("numbers", starting_epoch="earliest", epochs_per_batch="all", consumer="c")
        writer = stream.writeStream.foreachBatch(fail_once).trigger(**NOW)
        return writer.option("checkpointLocation", growing.checkpoint("c")).start()

    assert "once" in failure(start())
    growing.feed("numbers", [[{"n": 70}, {"n": 71}]])
    growing.write(growing.input("numbers"), "numbers")
    finish(start())
    assert seen == [epochs(*range(7)), epochs(*range(7)), epochs(7)]


def test_the_lag_is_in_sparks_own_progress(numbers: Place) -> None:
    stream = numbers.read("numbers")
    query = stream.writeStream.format("noop").trigger(availableNow=True)
    progress = finish(query.option("checkpointLocation", numbers.checkpoint("c")).start()).recentProgress
    ends = [json.loads(p["sources"][0]["endOffset"])["epoch"] for p in progress]
    newest = {json.loads(p["sources"][0]["latestOffset"])["epoch"] for p in progress}
    assert (ends[:7], newest) == ([0, 1, 2, 3, 4, 5, 6], {6})


def test_the_cursor_moves_only_after_the_commit_log(numbers: Place) -> None:
    log, during = numbers.log("numbers"), []

    def look(rows: DataFrame, batch: int) -> None:
        rows.collect()
        during.append((batch, log.cursor("c")))
        if batch == 3:
            raise RuntimeError("batch 3 fails")

    def run() -> StreamingQuery:
        stream = numbers.read("numbers", consumer="c")
        writer = stream.writeStream.foreachBatch(look).trigger(availableNow=True)
        return writer.option("checkpointLocation", numbers.checkpoint("c")).start()

    assert "batch 3 fails" in failure(run())
    assert during == [(0, -1), (1, 0), (2, 1), (3, 2)]
    assert log.cursor("c") == 2
    assert "batch 3 fails" in failure(run())
    assert log.cursor("c") == 2


def test_a_finished_query_has_acknowledged_everything(numbers: Place) -> None:
    collect(numbers.read("numbers", consumer="c"), numbers.checkpoint("c"))
    assert numbers.log("numbers").cursors() == {"c": 6}


def test_the_writer_drops_what_all_have_read_and_the_rest_stays(growing: Place) -> None:
    collect(growing.read("numbers", consumer="c"), growing.checkpoint("c"))
    growing.log("numbers").move_cursor("slow", 3)
    growing.feed("numbers", [[{"n": 70}, {"n": 71}]])
    growing.write(growing.input("numbers"), "numbers")
    assert [r.last for r in growing.log("numbers").ranges()] == [4, 5, 6, 7]
    assert collect(growing.read("numbers", consumer="c"), growing.checkpoint("c")) == {7: epochs(7)}


def test_a_nameless_reader_that_was_not_waited_for_is_told(growing: Place) -> None:
    writer = (
        growing.read("numbers").writeStream.format("noop").option("checkpointLocation", growing.checkpoint("x"))
    )
    finish(writer.trigger(availableNow=True).start())
    growing.feed("numbers", [[{"n": 70}], [{"n": 80}]])
    growing.write(growing.input("numbers"), "numbers")
    growing.log("numbers").move_cursor("c", 8)
    growing.feed("numbers", [[{"n": 90}]])
    growing.write(growing.input("numbers"), "numbers")
    told = failure(writer.trigger(availableNow=True).start())
    assert "epochs 7 to" in told
    assert "give the reader a name" in told


def test_the_epoch_as_a_column_and_only_some_columns(place: Place) -> None:
    place.feed("wide", [[{"a": 1, "b": "x", "c": 2.5}], [{"a": 2, "b": "y", "c": 3.5}]])
    place.write(place.input("wide"), "wide")
    stream = place.read("wide", columns=["c", "a"], epoch_column="epoch")
    assert stream.columns == ["c", "a", "epoch"]
    assert collect(stream, place.checkpoint("c")) == {0: [(2.5, 1, 0)], 1: [(3.5, 2, 1)]}


def test_no_column_at_all_still_counts(numbers: Place) -> None:
    counted = numbers.read("numbers").select().groupBy().count()
    assert collect(counted, numbers.checkpoint("c"), "complete") == {e: [(2 * e + 2,)] for e in range(7)}


def test_a_log_is_a_batch_too(numbers: Place) -> None:
    table = numbers.spark.read.format("tidelock").option("log", numbers.url("numbers")).load()
    assert sorted(tuple(row) for row in table.collect()) == sorted(epochs(*range(7)))


def test_a_schema_that_does_not_fit_is_refused_by_its_columns(numbers: Place) -> None:
    with pytest.raises(SchemaMismatch, match="m is not a column of the log; it has n"):
        numbers.read("numbers", columns=["m"])
    reader = numbers.spark.readStream.format("tidelock").option("log", numbers.url("numbers"))
    query = reader.schema("n string").load().writeStream.format("noop").trigger(availableNow=True)
    told = failure(query.option("checkpointLocation", numbers.checkpoint("c")).start())
    assert "n is string, but bigint in the log" in told


def test_a_log_that_is_not_there_is_named(place: Place) -> None:
    with pytest.raises(LogNotFound, match=r"there is no epoch log at .*missing"):
        place.read("missing")
    with pytest.raises(AnalysisException, match=r"there is no epoch log at .*missing"):
        place.spark.readStream.format("tidelock").option("log", place.url("missing")).load()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (
            {"starting_epoch": "yesterday"},
            "startingEpoch is 'yesterday': it must be `earliest`",
        ),
        ({"epochs_per_batch": 0}, "epochsPerBatch is '0': it must be a whole number above 0"),
        ({"consumer": "a b"}, "'a b' cannot be the name of a consumer"),
    ],
)
def test_options_that_cannot_be(numbers: Place, options: dict[str, object], told: str) -> None:
    with pytest.raises(PipelineError, match=told):
        numbers.read("numbers", **options)


def test_an_unknown_option_is_named(numbers: Place) -> None:
    reader = numbers.spark.readStream.format("tidelock").option("log", numbers.url("numbers"))
    with pytest.raises(AnalysisException, match=r"unknown option startingepoc: .*startingEpoch"):
        reader.option("startingEpoc", "latest").load()


def test_an_epoch_that_is_gone_is_no_starting_point(growing: Place) -> None:
    growing.log("numbers").move_cursor("c", 6)
    growing.feed("numbers", [[{"n": 70}]])
    growing.write(growing.input("numbers"), "numbers")
    stream = growing.read("numbers", starting_epoch=2).writeStream.format("noop").trigger(**NOW)
    told = failure(stream.option("checkpointLocation", growing.checkpoint("c")).start())
    assert "epoch 2 is gone, the oldest that is left is 7: start from `earliest`" in told


def test_a_log_that_was_made_anew_is_not_taken_for_the_old_one(growing: Place) -> None:
    import shutil

    def run() -> StreamingQuery:
        writer = growing.read("numbers").writeStream.format("noop").trigger(**NOW)
        return writer.option("checkpointLocation", growing.checkpoint("c")).start()

    finish(run())
    shutil.rmtree(growing.home / "numbers")
    shutil.rmtree(growing.checkpoint("numbers"))
    growing.write(growing.input("numbers"), "numbers")
    assert "this is not the log that the query has read so far" in failure(run())


def test_a_damaged_part_stops_the_query_and_the_other_epochs_stay_readable(numbers: Place) -> None:
    log = numbers.log("numbers")
    part = log.manifest(log.ranges()[4]).parts[0]
    log.store.remove_parts([part.file])
    writer = numbers.read("numbers").writeStream.format("noop").trigger(**NOW)
    told = failure(writer.option("checkpointLocation", numbers.checkpoint("c")).start())
    assert f"part {part.file} of epoch 4 is missing" in told
    assert list(collect(numbers.read("numbers", starting_epoch=5), numbers.checkpoint("d")).values()) == [
        epochs(5),
        epochs(6),
    ]


def test_a_log_that_begins_late_is_read_from_its_beginning(place: Place) -> None:
    """A query that has run before begins a new log with its next batch, not with epoch 0."""
    place.feed("n", [[{"n": 0}, {"n": 1}], [{"n": 10}, {"n": 11}]])
    finish(
        place.input("n")
        .writeStream.format("noop")
        .option("checkpointLocation", place.checkpoint("log"))
        .trigger(**NOW)
        .start()
    )
    EpochLog.create(
        place.url("log"),
        {"type": "struct", "fields": [{"name": "n", "type": "long", "nullable": True, "metadata": {}}]},
    )
    reading = tidelock.read_log(place.spark, place.url("log"), consumer="c")
    place.feed("n", [[{"n": 20}, {"n": 21}]])
    place.write(place.input("n"), "log")
    assert collect(reading, place.checkpoint("c")) == {0: epochs(2)}


def test_queries_may_start_at_the_same_time(numbers: Place) -> None:
    """Spark changes one map for all that start, and others serialize it meanwhile: it must stand that."""
    numbers.read("numbers")  # registers the source, if nobody has
    session: Any = numbers.spark._jsparkSession  # type: ignore[attr-defined]
    function = session.sessionState().dataSourceManager().lookupDataSource("tidelock").dataSourceCls()
    concurrent = numbers.spark._jvm.java.lang.Class.forName("java.util.concurrent.ConcurrentMap")  # type: ignore[union-attr]
    assert concurrent.isInstance(function.envVars())
    assert dict(function.envVars())["PYTHONHASHSEED"] == "0"
