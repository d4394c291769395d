"""The victim: a chain of two queries in one process, to be killed. Started by `test_kills.py`, never by hand.

    python chain.py HOME     for every line of its standard input, says `done LINE` when all input is counted

The head takes one input file per epoch and writes the log `events`; the follower counts words with Spark's own
state and writes the log `counts`. Both are started at once and go on for ever. (A head that was killed between two
of Spark's own logs may take two files in one batch: epochs are not files.)
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.errors import StreamingQueryException

import tidelock


def main(home: Path) -> None:
    spark = tidelock.session(
        "chain",
        master="local[2,4]",
        settings={
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.sql.shuffle.partitions": "2",
        },
    )
    spark.sparkContext.setLogLevel("OFF")
    source = spark.readStream.schema("word string, n long").option("maxFilesPerTrigger", 1)
    events = source.parquet(str(home / "input"))
    head = tidelock.write_log(events, f"file:{home}/events", checkpoint=f"{home}/checkpoints/events")
    words = tidelock.read_log(spark, f"file:{home}/events", consumer="counts")
    sums = words.groupBy("word").sum("n").withColumnRenamed("sum(n)", "n")
    counts = f"file:{home}/counts"
    follower = tidelock.write_log(sums, counts, checkpoint=f"{home}/checkpoints/counts", mode="update")
    print("started", flush=True)
    for line in sys.stdin:
        try:
            head.processAllAvailable()
            follower.processAllAvailable()
        except StreamingQueryException as failed:
            print(f"failed {failed}".replace("\n", " "), flush=True)
        else:
            print(f"done {line.strip()}", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
