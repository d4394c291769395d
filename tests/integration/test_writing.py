"""The sink: one batch, one entry, exactly once, whatever happens between publishing and Spark's commit."""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType
from tests.integration.streams import NOW, Place, collect, failure, finish
from tests.waiting import eventually

import tidelock
from tidelock.errors import PipelineError, SchemaMismatch
from tidelock.log import EpochLog

WORDS = ["tide", "moon", "sea", "tide", "sea", "tide"]


def feed_words(place: Place, epochs: int) -> list[list[str]]:
    made = [[WORDS[(e + i) % len(WORDS)] for i in range(5 + e % 3)] for e in range(epochs)]
    place.feed("words", [[{"word": w} for w in words] for words in made])
    return made


def counted(stream: DataFrame) -> DataFrame:
    return stream.groupBy("word").count()


def test_a_head_numbers_epochs_by_batches_and_a_follower_keeps_the_numbers(place: Place) -> None:
    made = feed_words(place, 4)
    place.write(place.input("words"), "words")
    place.write(counted(place.read("words", epochs_per_batch=2)), "counts", mode="update")
    assert [str(r) for r in place.log("words").ranges()] == ["0", "1", "2", "3"]
    counts = place.log("counts")
    assert [str(r) for r in counts.ranges()] == ["0-1", "2-3"]
    manifest = counts.manifest(counts.ranges()[1])
    assert [(i.log, i.name, str(i.covers)) for i in manifest.inputs] == [
        (place.log("words").header.id, "words", "2-3")
    ]
    assert place.last_values("counts", "word", "count") == Counter(w for words in made for w in words)


def test_a_batch_that_is_run_again_is_published_once_and_keeps_its_state(place: Place) -> None:
    """Killed between publishing and Spark's commit: the commit log lacks the batch that the log holds."""
    made = feed_words(place, 3)
    place.write(place.input("words"), "words")
    place.write(counted(place.read("words", consumer="c")), "counts", mode="update")
    before = place.rows("counts")
    (Path(place.checkpoint("counts")) / "commits" / "2").unlink()
    place.log("words").move_cursor("c", 1)
    (Path(place.checkpoint("counts")) / "commits" / ".2.crc").unlink(missing_ok=True)
    more = feed_words(place, 2)
    place.write(place.input("words"), "words")
    query = place.write(counted(place.read("words", consumer="c")), "counts", mode="update")
    assert query.recentProgress[0]["batchId"] == 2
    after = place.rows("counts")
    assert {epoch: after[epoch] for epoch in before} == before
    assert list(after) == [0, 1, 2, 3, 4]
    assert place.last_values("counts", "word", "count") == Counter(w for words in made + more for w in words)


def test_a_second_run_fences_the_first(place: Place) -> None:
    feed_words(place, 1)
    first = tidelock.write_log(place.input("words"), place.url("words"), checkpoint=place.checkpoint("words"))
    eventually(lambda: place.log("words").ranges(), "the first run has published")
    intruder = EpochLog.open(place.url("words")).take_over("a second run")
    feed_words(place, 1)
    told = failure(first)
    assert "Fenced" in told
    assert "a second run has taken this log over" in told
    assert [r.last for r in place.log("words").ranges()] == [0]
    assert intruder.window.tail == 0
    place.write(place.input("words"), "words")
    assert [r.last for r in place.log("words").ranges()] == [0, 1]


def test_what_the_users_code_raises_is_told_and_nothing_is_published(place: Place) -> None:
    place.feed("n", [[{"n": 1}], [{"n": 0}], [{"n": 2}]])

    @F.udf(IntegerType())
    def divide(n):
        return 10 // n

    told = failure(
        tidelock.write_log(
            place.input("n").select(divide("n").alias("n")),
            place.url("log"),
            checkpoint=place.checkpoint("log"),
            trigger=NOW,
        )
    )
    assert "ZeroDivisionError" in told
    assert f"BatchFailed: {place.url('log')}: batch 1" in told
    assert place.rows("log") == {0: [(10,)]}
    assert len(place.log("log").store.part_names()) == 1
    place.write(place.input("n").select(F.col("n").cast("int")), "log")
    assert place.rows("log") == {0: [(10,)], 1: [(0,)], 2: [(2,)]}


def test_stopping_in_the_middle_of_a_batch_is_not_a_failure(place: Place) -> None:
    place.feed("n", [[{"n": 1}]])
    begun = place.home / "begun"

    @F.udf(IntegerType())
    def wait(n):
        import time

        begun.touch()
        time.sleep(60)
        return n

    stream = place.input("n").select(wait("n").alias("n"))
    query = tidelock.write_log(stream, place.url("log"), checkpoint=place.checkpoint("log"))
    eventually(begun.exists, "the batch is under way")
    query.stop()
    assert query.exception() is None
    assert place.log("log").ranges() == []


def test_a_new_checkpoint_on_a_used_log_is_refused(place: Place) -> None:
    feed_words(place, 2)
    place.write(place.input("words"), "words")
    shutil.rmtree(place.checkpoint("words"))
    query = tidelock.write_log(
        place.input("words"), place.url("words"), checkpoint=place.checkpoint("words"), trigger=NOW
    )
    told = failure(query)
    assert "hold the result of other work already" in told
    assert "a query with a new checkpoint needs a new log" in told
    assert list(place.rows("words")) == [0, 1]


def test_a_new_checkpoint_is_refused_also_where_the_log_was_truncated(place: Place) -> None:
    feed_words(place, 2)
    place.write(place.input("words"), "words")
    collect(place.read("words", consumer="c"), place.checkpoint("c"))
    feed_words(place, 1)
    place.write(place.input("words"), "words")
    assert [r.last for r in place.log("words").ranges()] == [2]
    shutil.rmtree(place.checkpoint("words"))
    query = tidelock.write_log(
        place.input("words"), place.url("words"), checkpoint=place.checkpoint("words"), trigger=NOW
    )
    assert "epochs 0 hold the result of other work already" in failure(query)


def test_columns_that_do_not_fit_are_named_before_anything_starts(place: Place) -> None:
    place.feed("a", [[{"x": 1, "y": "one", "z": 2.0}]])
    place.write(place.input("a"), "log")
    other = place.input("a").select(F.col("x").cast("string"), "y", F.lit(1).alias("new"))
    with pytest.raises(SchemaMismatch) as refused:
        place.write(other, "log")
    told = str(refused.value)
    assert "z is missing" in told
    assert "new is not a column of the log" in told
    assert "x is string, but bigint in the log" in told
    place.feed("a", [[{"x": 2, "y": "two", "z": 3.0}]])
    place.write(place.input("a").select("z", "y", "x"), "log")
    assert place.rows("log") == {0: [(1, "one", 2.0)], 1: [(2, "two", 3.0)]}


def test_columns_that_cannot_be_stored_are_named(place: Place) -> None:
    place.feed("a", [[{"x": 1}]])
    twice = place.input("a").select("x", F.col("x").alias("X"))
    with pytest.raises(SchemaMismatch, match="x stands more than once; X stands more than once"):
        place.write(twice, "log")
    odd = place.input("a").select(F.make_interval(F.col("x")).alias("span"))
    with pytest.raises(SchemaMismatch, match="span has the type interval, which Arrow cannot carry"):
        place.write(odd, "log")


def test_a_batch_dataframe_is_refused(place: Place) -> None:
    with pytest.raises(PipelineError, match="write_log takes a streaming DataFrame"):
        place.write(place.spark.range(3), "log")


def test_logs_that_are_read_one_by_one_in_one_query_are_refused(place: Place) -> None:
    feed_words(place, 2)
    place.write(place.input("words"), "a")
    place.write(place.input("words"), "b")
    both = place.read("a").union(place.read("b"))
    query = tidelock.write_log(both, place.url("c"), checkpoint=place.checkpoint("c"), trigger=NOW)
    assert "this query reads several logs one by one: read them with one call of tidelock.read_logs" in failure(
        query
    )


def test_the_users_settings_are_as_they_were(place: Place) -> None:
    feed_words(place, 1)
    assert place.spark.conf.get("spark.sql.streaming.noDataMicroBatches.enabled") == "true"
    place.write(place.input("words"), "words")
    assert place.spark.conf.get("spark.sql.streaming.noDataMicroBatches.enabled") == "true"


@pytest.mark.chaos
def test_a_large_epoch_has_several_parts_and_is_read_in_parallel(place: Place) -> None:
    place.feed("n", [[{"n": 1}]])
    grown = place.input("n").select(F.explode(F.expr("sequence(1L, 6000000L)")).alias("n"))
    place.write(grown, "log")
    log = place.log("log")
    assert len(log.manifest(log.ranges()[0]).parts) > 1
    found = place.spark.read.format("tidelock").option("log", place.url("log")).load()
    assert found.agg(F.sum("n"), F.count("*")).collect()[0] == (18_000_003_000_000, 6_000_000)
    assert found.rdd.getNumPartitions() > 1


def test_a_retention_keeps_what_all_have_read(place: Place) -> None:
    feed_words(place, 2)
    place.write(place.input("words"), "words", retention=tidelock.Retention(epochs=3))
    collect(place.read("words", consumer="c"), place.checkpoint("c"))
    feed_words(place, 4)
    place.write(place.input("words"), "words")
    collect(place.read("words", consumer="c"), place.checkpoint("c"))
    feed_words(place, 1)
    place.write(place.input("words"), "words")
    assert [r.last for r in place.log("words").ranges()] == [4, 5, 6]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of one megabyte."""
    mounted = tmp_path / "small"
    mounted.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", mounted], check=True)
    try:
        yield mounted
    finally:
        subprocess.run(["umount", "--lazy", mounted], check=True)


def test_a_full_disk_fails_the_batch_and_it_goes_on_when_there_is_room(place: Place, small_disk: Path) -> None:
    place.feed("n", [[{"n": e, "text": "x" * 20_000}] * 5 for e in range(3)])
    url, checkpoint = f"file:{small_disk}/log", place.checkpoint("log")
    ballast = small_disk / "ballast"
    stream = place.input("n").select("n", F.concat("text", F.expr("uuid()")).alias("text"))

    def start() -> object:
        return tidelock.write_log(stream, url, checkpoint=checkpoint, trigger=NOW)

    ballast.write_bytes(b"x" * 850_000)
    told = failure(start())
    assert "no room is left for this log; nothing was published" in told
    log = EpochLog.open(url)
    published = [r.last for r in log.ranges()]
    assert len(published) < 3
    assert all(isinstance(verdict, tidelock.log.entry.Manifest) for _, verdict in log.verify())
    ballast.unlink()
    finish(start())
    assert [r.last for r in log.ranges()] == [0, 1, 2]
    table = place.spark.read.format("tidelock").option("log", url).load()
    assert Counter(row["n"] for row in table.collect()) == {0: 5, 1: 5, 2: 5}
