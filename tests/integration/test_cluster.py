"""Separate executor processes: one of them is killed, and another one's Python worker runs out of memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

pytestmark = pytest.mark.chaos

SCRIPT = """
import json, os, signal, sys
from pathlib import Path
import tidelock
from pyspark.sql import functions as F

home = sys.argv[1]
spark = tidelock.session("cluster", master="local-cluster[2,1,1024]", settings={
    "spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.sql.shuffle.partitions": "2",
    "spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"], "spark.executor.pyspark.memory": "1500m"})
spark.sparkContext.setLogLevel("OFF")

@F.udf("string")
def kill_an_executor_once(n):
    # The JVM that started this worker is its executor; the daemon stands between the two.
    if n == 25:
        try:
            os.mkdir(home + "/killed")
        except FileExistsError:
            return "w%d" % (n % 7)
        daemon = os.getppid()
        stat = Path(f"/proc/{daemon}/stat").read_text()
        executor = int(stat.rpartition(")")[2].split()[1])
        command = Path(f"/proc/{executor}/cmdline").read_bytes()
        assert b"ExecutorBackend" in command, command
        os.kill(executor, signal.SIGKILL)
        import time
        time.sleep(30)
    return "w%d" % (n % 7)

@F.udf("string")
def ask_for_too_much_memory(word, n):
    if n == 37:
        for attempt in range(4):  # as often as Spark tries a task
            try:
                os.mkdir(home + "/hoarded-%d" % attempt)
            except FileExistsError:
                continue
            bytearray(1 << 34)
    return word

pipeline = tidelock.Pipeline("cluster", epoch="200 milliseconds")

@pipeline.source
def numbers(spark):
    return spark.readStream.schema("id long").option("maxFilesPerTrigger", 2).parquet(home + "/input")

@pipeline.operator
def words(numbers):
    return numbers.select("id", kill_an_executor_once("id").alias("word"))

@pipeline.operator(mode="update", anchor=True)
def counts(words):
    return words.select(ask_for_too_much_memory("word", "id").alias("word")).groupBy("word").count()

pipeline.publish("counts", subject="cluster.counts")

for n in range(5):
    spark.range(n * 10, n * 10 + 10, numPartitions=2).write.mode("append").parquet(home + "/input")
last = pipeline.run(spark, home + "/home", last_epoch=4)
log = last.subjects["cluster.counts"]
found = spark.read.format("tidelock").option("log", log).option("epochColumn", "e").load()
newest = {row["word"]: row["count"] for row in sorted(found.collect(), key=lambda row: row["e"])}
print(json.dumps({"counts": newest, "restarts": {s.name: s.restarts for s in last.segments}}))
spark.stop()
"""


def test_a_pipeline_survives_the_loss_of_an_executor_and_the_lack_of_memory(tmp_path: Path) -> None:
    script = tmp_path / "cluster.py"
    script.write_text(SCRIPT)
    paths = os.pathsep.join(p for p in sys.path if p)
    run = subprocess.run(
        [sys.executable, str(script), str(tmp_path)],
        env={**os.environ, "PYTHONPATH": paths, "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    told = json.loads(run.stdout.strip().splitlines()[-1])
    assert (tmp_path / "killed").exists()
    assert told["counts"] == Counter(f"w{n % 7}" for n in range(50))
    assert told["restarts"] == {"words": 0, "counts": 1}, "an executor costs no query, an epoch without memory one"
    events = [json.loads(line) for line in (tmp_path / "home" / "events.jsonl").read_text().splitlines()]
    kinds = Counter(event["kind"] for event in events)
    assert kinds["executor lost"] == 1
    assert kinds["task retry"] >= 1
    (failed,) = [event for event in events if event["kind"] == "segment failed"]
    assert "MemoryError" in failed["text"]
    assert failed["segment"] == "counts"
