"""Separate executor processes: parts are written and read by them, and one of them may die."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

SCRIPT = """
import json, os, signal, sys
from pathlib import Path
import tidelock
from pyspark.sql import functions as F
from pyspark.sql.types import StringType

home = sys.argv[1]
spark = tidelock.session("cluster", master="local-cluster[2,1,1024]", settings={
    "spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.sql.shuffle.partitions": "2",
    "spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"]})
spark.sparkContext.setLogLevel("OFF")
NOW = {"availableNow": True}

@F.udf(StringType())
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

for n in range(5):
    spark.range(n * 10, n * 10 + 10, numPartitions=2).write.mode("append").parquet(home + "/input")
numbers = spark.readStream.schema("id long").option("maxFilesPerTrigger", 2).parquet(home + "/input")
words = numbers.select(kill_an_executor_once("id").alias("word"))
tidelock.write_log(words, f"file:{home}/words", checkpoint=home + "/c1", trigger=NOW).awaitTermination()
counts = tidelock.read_log(spark, f"file:{home}/words", consumer="counts").groupBy("word").count()
query = tidelock.write_log(counts, f"file:{home}/counts", checkpoint=home + "/c2", mode="update", trigger=NOW)
query.awaitTermination()
found = spark.read.format("tidelock").option("log", f"file:{home}/counts").option("epochColumn", "e").load()
newest = {row["word"]: row["count"] for row in sorted(found.collect(), key=lambda row: row["e"])}
print(json.dumps({"counts": newest, "executor killed": os.path.exists(home + "/killed")}))
spark.stop()
"""


def test_a_chain_on_separate_executors_survives_the_loss_of_one(tmp_path: Path) -> None:
    script = tmp_path / "cluster.py"
    script.write_text(SCRIPT)
    paths = os.pathsep.join(p for p in sys.path if p)
    run = subprocess.run(
        [sys.executable, str(script), str(tmp_path)],
        env={**os.environ, "PYTHONPATH": paths, "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    told = json.loads(run.stdout.strip().splitlines()[-1])
    assert told["executor killed"]
    assert told["counts"] == Counter(f"w{n % 7}" for n in range(50))
