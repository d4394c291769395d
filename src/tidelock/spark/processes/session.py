"""A Spark session that is set up for epochs, and the settings for those who build their own."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from tidelock.spark.processes import worker_daemon
from tidelock.spark.processes.java import GATEWAY, start_java
from tidelock.spark.processes.log_filters import leave_out
from tidelock.spark.processes.nursery import quick_python
from tidelock.spark.query.failures import silence_echoes

SETTINGS: Mapping[str, str] = {
    # The default manager forks a process for every rename on a local disk, twice per batch.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    # Larger Arrow batches: fewer hand-overs between Spark and Python.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    # Rows go to and from Python through a Unix socket instead of TCP. Its path must stay under 108 characters:
    # where the temporary directory is longer, set spark.python.unix.domain.socket.dir to a short one.
    "spark.python.unix.domain.socket.enabled": "true",
    # The jobs of several queries share the cores, instead of waiting for each other.
    "spark.scheduler.mode": "FAIR",
}
"""What Tidelock wants of a session; none of it changes results."""


_LOOPBACK = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
"""A driver whose executors are all on this machine has no business on its network."""


PARTITIONS = "spark.sql.shuffle.partitions"
_SPARKS_OWN = 200
_BEARABLE = 4
"""So many partitions for each core are no reason to speak."""
_DAEMON = "spark.python.daemon.module"
_WITHOUT_RETRIES = re.compile(r"local(?:\[(\*|\d+)\])?")


def with_retries(master: str) -> str:
    """A local master with as many attempts per task as a cluster has; any other as it is.

    >>> with_retries("local[2]"), with_retries("local"), with_retries("local[2,1]"), with_retries("yarn")
    ('local[2,4]', 'local[1,4]', 'local[2,1]', 'yarn')
    """
    plain = _WITHOUT_RETRIES.fullmatch(master)
    return f"local[{plain[1] or 1},4]" if plain else master


def session(
    name: str = "tidelock", *, master: str | None = None, settings: Mapping[str, str] | None = None
) -> SparkSession:
    """A Spark session with Tidelock's settings; the one that is running, if there is one.

    If nobody says how many shuffle partitions there are, neither here nor in Spark's own settings, there is one
    for each core.

    Args:
        name: the application's name.
        master: where it runs; all local cores if nothing is said here or by spark-submit. Tasks are retried in
            local mode too, unless the master says how often, as `local[2,1]` does.
        settings: further settings, which win.
    """
    silence_echoes()
    # Spark would start its workers with whatever `python3` is on the path.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    master = with_retries(master or _submitted().get("spark.master") or "local[*]")
    if master.startswith("local"):
        quick_python()  # it gets ready while Spark starts
    given = {
        **SETTINGS,
        **(_LOOPBACK if master.startswith("local") else {}),
        **_daemon(master, settings or {}),
        **(settings or {}),
    }
    runs = SparkContext._active_spark_context is not None
    start_java({**given, "spark.app.name": name, "spark.master": master})
    made = SparkSession.builder.appName(name).master(master).config(map=dict(given)).getOrCreate()
    leave_out(made)
    if not runs and not made.sparkContext.getConf().contains(PARTITIONS):
        made.conf.set(PARTITIONS, fitting_partitions(made.sparkContext.defaultParallelism))
    return made


def fitting_partitions(cores: int) -> int:
    """How many shuffle partitions a session gets for which nobody has said it.

    Every batch runs a task for each of them, for every operator with state, and a query with state keeps the
    number of its first batch. So one per core: Spark's 200 make a small machine run tasks that have nothing to do.

    >>> [fitting_partitions(cores) for cores in (1, 2, 16, 1000)]
    [2, 2, 16, 200]
    """
    return max(2, min(cores, _SPARKS_OWN))


def partitions_warning(partitions: int, cores: int, *, kept: bool) -> str | None:
    """What to tell about so many shuffle partitions on so many cores; None if they are no bad choice.

    ``kept``: the home has queries with state already, which keep their number.

    >>> partitions_warning(2, 2, kept=False) is partitions_warning(200, 64, kept=False) is None
    True
    """
    if partitions <= _BEARABLE * cores:
        return None
    what = f"{partitions} shuffle partitions on {cores} cores: each batch runs {partitions} tasks for each state"
    if kept:
        return f"{what}. This home keeps them, as its first batch had them; a new home takes {PARTITIONS} anew"
    better = fitting_partitions(cores)
    return f"{what}. Set {PARTITIONS} to about {better} before the first run: a home keeps the number"


def _submitted() -> SparkConf:
    """The settings that spark-submit was given, if it has started this process."""
    if GATEWAY in os.environ:
        SparkContext._ensure_initialized()  # without it SparkConf knows nothing of the JVM that is there
    return SparkConf()


def _daemon(master: str, settings: Mapping[str, str]) -> dict[str, str]:
    """The setting for a daemon that brings up Python workers at once, where it is sure that it can be imported.

    On a machine of its own an executor may have another Python, and there a daemon that is not found would leave
    no task running.
    """
    # A JVM that this process has started also tells what an earlier session was given: that is nobody's wish.
    submitted = dict(_submitted().getAll()) if GATEWAY in os.environ else {}
    if not master.startswith("local") or _DAEMON in submitted:
        return {}
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    # The JVM hands its own environment on, which is that of this process only if this process starts it.
    handed_on = not master.startswith("local-cluster") and GATEWAY not in os.environ
    ours = os.environ.get("PYTHONPATH", "") if handed_on else ""
    paths = settings.get("spark.executorEnv.PYTHONPATH", ours)
    chosen = settings.get("spark.pyspark.python") or submitted.get("spark.pyspark.python")
    python = chosen or os.environ["PYSPARK_PYTHON"]
    found = worker_daemon.is_found(python, {**environment, **({"PYTHONPATH": paths} if paths else {})})
    return {_DAEMON: worker_daemon.MODULE} if found else {}
