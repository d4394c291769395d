"""Python workers come from a daemon that has imported everything, and are as independent as Spark's own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PythonException
from pyspark.sql import SparkSession

from tidelock.spark.processes.worker_daemon import MODULE

Batches = Iterator[pa.RecordBatch]

SUBMITTED = """
import tidelock
spark = tidelock.session("submitted", settings={"spark.ui.enabled": "false"})
print("found", spark.sparkContext.master, spark.conf.get("spark.python.daemon.module"))
spark.stop()
"""


def looked_at(folder: Path) -> Callable[[Batches], Batches]:
    """What two workers say about themselves, each of them once the other one is there, too."""
    place = str(folder)

    def look(batches: Batches) -> Batches:
        import os
        import sys
        import time
        from pathlib import Path

        known = set(sys.modules)
        import numpy as np

        for _ in batches:
            pass
        Path(place, str(os.getpid())).touch()
        while len(list(Path(place).iterdir())) < 2:
            time.sleep(0.01)
        yield pa.RecordBatch.from_pydict(
            {
                "pid": [os.getpid()],
                "parent": [Path(f"/proc/{os.getppid()}/cmdline").read_text()],
                "ready": [
                    {
                        "pandas",
                        "pyspark.worker",
                        "tidelock.spark.segments.keyed",
                        "tidelock.spark.connector.source",
                    }
                    <= known
                ],
                "stores": ["away_store" in known],
                "drawn": [float(np.random.rand())],
            }
        )

    return look


def failing(batches: Batches) -> Batches:
    raise ValueError("it was to fail")
    yield from batches


def look(spark: SparkSession, folder: Path) -> dict[int, float]:
    """Two workers, by what each has drawn."""
    folder.mkdir()
    schema = "pid long, parent string, ready boolean, stores boolean, drawn double"
    rows = spark.range(2, numPartitions=2).mapInArrow(looked_at(folder), schema).collect()
    for row in rows:
        assert MODULE in row["parent"].split("\0")
        assert row["ready"], "it has not imported anything by itself"
        assert row["stores"], "it sees what the path of the session has"
    return {row["pid"]: row["drawn"] for row in rows}


def test_workers_are_ready_from_the_start_and_after_a_failure(spark: SparkSession, tmp_path: Path) -> None:
    first = look(spark, tmp_path / "first")
    with pytest.raises(PythonException, match="it was to fail"):
        spark.range(2, numPartitions=2).mapInArrow(failing, "id long").collect()
    second = look(spark, tmp_path / "second")
    assert not first.keys() & second.keys(), "those of the failed tasks are gone"
    drawn = [*first.values(), *second.values()]
    assert len(set(drawn)) == 4, "each has random numbers of its own"


def test_what_spark_submit_is_told_wins(tmp_path: Path) -> None:
    script = tmp_path / "submitted.py"
    script.write_text(SUBMITTED)
    submit = Path(sys.executable).with_name("spark-submit")
    daemon = "spark.python.daemon.module=pyspark.daemon"
    run = subprocess.run(
        [str(submit), "--master", "local[1]", "--conf", daemon, str(script)],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "found local[1,4] pyspark.daemon" in run.stdout, run.stderr[-3000:]
