"""Logs in a store of another package, found by its entry point, also by executors in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from tests.foreign_package import install

pytestmark = pytest.mark.chaos

STORE = """
import os

from tidelock.errors import BackendUnavailable
from tidelock.log.stores.files import FileStore

TASK_FAILURES = 4


class ShelfAway(BackendUnavailable):
    '''An error of its own.'''


class Shelf(FileStore):
    '''It is away for the first task that writes a part, as often as Spark tries it, and once it is read.'''

    def __init__(self, url):
        super().__init__("file:" + url.partition(":")[2])
        self.url = url

    def write_part(self, name, write):
        self._be_away("write")
        return super().write_part(name, write)

    def read_part(self, name):
        self._be_away("read")
        return super().read_part(name)

    def _be_away(self, what):
        for attempt in range(TASK_FAILURES):
            try:
                os.mkdir(os.environ["SHELF"] + f"/{what}-{attempt}")
            except FileExistsError:
                continue
            raise ShelfAway(f"{self.url}: nobody is there to {what}")
"""
JOB = """
import json, os, sys
import tidelock
from pyspark.sql import functions as F

home = sys.argv[1]
spark = tidelock.session("shelf", master="local-cluster[1,1,1024]", settings={
    "spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.sql.shuffle.partitions": "1",
    "spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"], "spark.executorEnv.SHELF": os.environ["SHELF"]})
spark.sparkContext.setLogLevel("OFF")
pipeline = tidelock.Pipeline("shelf", epoch="200 milliseconds", policy=tidelock.Policy(attempts=1))

@pipeline.source
def numbers(spark):
    return spark.readStream.schema("id long").option("maxFilesPerTrigger", 1).parquet(home + "/input")

@pipeline.operator
def words(numbers):
    return numbers.select(F.concat(F.lit("w"), F.col("id") % 7).alias("word"))

@pipeline.operator(mode="update", anchor=True)
def counts(words):
    return words.groupBy("word").count()

pipeline.publish("counts", subject="shelf.counts")

for n in range(3):
    spark.range(n * 10, n * 10 + 10, numPartitions=1).write.mode("append").parquet(home + "/input")
last = pipeline.run(spark, home + "/home", log="shelf:" + home + "/logs", last_epoch=2)
log = last.subjects["shelf.counts"]
found = spark.read.format("tidelock").option("log", log).option("epochColumn", "e").load()
newest = {row["word"]: row["count"] for row in sorted(found.collect(), key=lambda row: row["e"])}
print(json.dumps(newest))
spark.stop()
"""


def test_executors_find_the_store_and_its_own_errors_are_known_for_what_they_are(tmp_path: Path) -> None:
    install(tmp_path, "shelves", STORE, {"tidelock.logs": {"shelf": "Shelf"}})
    (tmp_path / "job.py").write_text(JOB)
    (tmp_path / "away").mkdir()
    paths = os.pathsep.join([str(tmp_path), *(path for path in sys.path if path)])
    run = subprocess.run(
        [sys.executable, str(tmp_path / "job.py"), str(tmp_path)],
        env={**os.environ, "PYTHONPATH": paths, "SPARK_LOCAL_IP": "127.0.0.1", "SHELF": str(tmp_path / "away")},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-3000:]
    assert json.loads(run.stdout.strip().splitlines()[-1]) == Counter(f"w{n % 7}" for n in range(30))
    events = [json.loads(line) for line in (tmp_path / "home" / "events.jsonl").read_text().splitlines()]
    told = [event["text"] for event in events if event["kind"] == "outage"]
    assert [words for words in told if "ShelfAway" in words and "nobody is there to write" in words], told
    assert [words for words in told if "ShelfAway" in words and "nobody is there to read" in words], told
