"""A job of three real queries is copied while it runs, lost, restored elsewhere and finished."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from tests.integration.streams import NOW, Place, finish
from tests.waiting import eventually

import tidelock
from tidelock.backup.backup import Backup, position
from tidelock.backup.restore import restore
from tidelock.home.home import Home, Record, SegmentRecord
from tidelock.spark.query.batches import OpenGate
from tidelock.spark.query.queries import start_query
from tidelock.spark.sinks.files import FileSink
from tidelock.spark.sinks.sink import DeliverySink

PROVIDERS = "org.apache.spark.sql.execution.streaming.state."
EPOCHS = 8
ALWAYS = {"processingTime": "0 seconds"}


class Job:
    """`words` from files, `counts` of them, and `report`, which reads both and writes Parquet."""

    def __init__(self, place: Place, home: Home) -> None:
        self._place = place
        self.home = home

    def remember(self) -> None:
        inputs = {"words": (), "counts": (("words", 0),), "report": (("words", 0), ("counts", 0))}
        segments = tuple(
            SegmentRecord(name, (name,), read, None if name == "report" else self.home.log(name))
            for name, read in inputs.items()
        )
        self.home.remember(Record("trending", {}, {}, segments, {}))

    def start(self, segment: str, trigger: dict[str, object]) -> StreamingQuery:
        if segment == "report":
            return self._report(trigger)
        stream, mode = (
            (self._place.input("tweets"), "append") if segment == "words" else (self._counted(), "update")
        )
        checkpoint = self.home.checkpoint(segment)
        return tidelock.write_log(
            stream, self.home.log(segment), checkpoint=checkpoint, mode=mode, trigger=trigger
        )

    def _counted(self) -> DataFrame:
        read = tidelock.read_log(self._place.spark, self.home.log("words"), consumer="counts")
        return read.groupBy("word").count()

    def _report(self, trigger: dict[str, object]) -> StreamingQuery:
        urls = [self.home.log("words"), self.home.log("counts")]
        words, counts = tidelock.read_logs(self._place.spark, urls, consumer="report")
        rows = words.select("word", F.lit(0).cast("long").alias("count")).union(counts.select("word", "count"))
        checkpoint, deliver = self.home.checkpoint("report"), FileSink(self._place.spark, self.home.out("report"))
        sink = DeliverySink(self._place.spark, "report", deliver, checkpoint, OpenGate())
        return start_query(rows, sink, checkpoint=checkpoint, mode="append", name=None, trigger=trigger)

    def run(self, *segments: str) -> None:
        for segment in segments:
            finish(self.start(segment, NOW))

    def results(self) -> tuple[Counter[str], dict[str, int]]:
        """How often each word has come through, and what was counted last."""
        rows = self._place.spark.read.parquet(self.home.out("report")).orderBy("epoch").collect()
        return Counter(r.word for r in rows if r["count"] == 0), {r.word: r["count"] for r in rows if r["count"]}


def tweets(epoch: int) -> list[dict[str, str]]:
    return [{"word": f"w{(epoch * 7 + n) % 11}"} for n in range(20 + epoch)]


@pytest.mark.parametrize("provider", ["HDFSBackedStateStoreProvider", "RocksDBStateStoreProvider"])
def test_a_job_goes_on_elsewhere_exactly_once(
    place: Place, spark: SparkSession, tmp_path: Path, provider: str
) -> None:
    settings = {
        "spark.sql.streaming.stateStore.providerClass": f"{PROVIDERS}{provider}",
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.sql.streaming.stateStore.minDeltasForSnapshot": "2",
    }
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        lose_and_restore(place, tmp_path)
    finally:
        for name in settings:
            spark.conf.unset(name)


def lose_and_restore(place: Place, tmp_path: Path) -> None:
    job = Job(place, Home(tmp_path / "home"))
    job.remember()
    backup = Backup(job.home, f"file:{tmp_path}/backup")
    place.feed("tweets", [tweets(epoch) for epoch in range(3)])
    job.run("words", "counts", "report")
    assert backup.copy().copied == {"words": 2, "counts": 2, "report": 2}

    place.feed("tweets", [tweets(epoch) for epoch in range(3, 6)])
    job.run("words")
    backup.copy()
    query = job.start("counts", ALWAYS)
    eventually(lambda: backup.copy().copied["counts"] >= 4, "counts are copied while they are made", 200)
    query.stop()
    shutil.rmtree(job.home.root)

    again = Job(place, Home(tmp_path / "elsewhere"))
    report = restore(f"{tmp_path}/backup", again.home)
    assert report.damaged == ()
    assert report.sinks == {"report": 2}
    assert report.segments["counts"].restored == position(again.home, "counts") >= 4

    place.feed("tweets", [tweets(epoch) for epoch in range(6, EPOCHS)])
    again.run("words", "counts", "report")
    expected = Counter(row["word"] for epoch in range(EPOCHS) for row in tweets(epoch))
    assert again.results() == (expected, dict(expected))
