"""A Spark session that is set up for epochs, and the settings for those who build their own."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from tidelock.spark import worker_daemon
from tidelock.spark.nursery import quick_python

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


_DAEMON = "spark.python.daemon.module"
_GATEWAY = "PYSPARK_GATEWAY_PORT"
"""Is set where spark-submit has started Python, and not the other way round."""
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

    Args:
        name: the application's name.
        master: where it runs; all local cores if nothing is said here or by spark-submit. Tasks are retried in
            local mode too, unless the master says how often, as `local[2,1]` does.
        settings: further settings, which win.
    """
    # Spark would start its workers with whatever `python3` is on the path.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    master = with_retries(master or _submitted().get("spark.master") or "local[*]")
    if master.startswith("local"):
        quick_python()  # it gets ready while Spark starts
    given: dict[str, bool | float | int | str | None] = {
        **SETTINGS,
        **(_LOOPBACK if master.startswith("local") else {}),
        **_daemon(master, settings or {}),
        **(settings or {}),
    }
    return SparkSession.builder.appName(name).master(master).config(map=given).getOrCreate()


def _submitted() -> SparkConf:
    """The settings that spark-submit was given, if it has started this process."""
    if _GATEWAY in os.environ:
        SparkContext._ensure_initialized()  # without it SparkConf knows nothing of the JVM that is there
    return SparkConf()


def _daemon(master: str, settings: Mapping[str, str]) -> dict[str, str]:
    """The setting for a daemon that brings up Python workers at once, where it is sure that it can be imported.

    On a machine of its own an executor may have another Python, and there a daemon that is not found would leave
    no task running.
    """
    # A JVM that this process has started also tells what an earlier session was given: that is nobody's wish.
    submitted = dict(_submitted().getAll()) if _GATEWAY in os.environ else {}
    if not master.startswith("local") or _DAEMON in submitted:
        return {}
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    # The JVM hands its own environment on, which is that of this process only if this process starts it.
    handed_on = not master.startswith("local-cluster") and _GATEWAY not in os.environ
    ours = os.environ.get("PYTHONPATH", "") if handed_on else ""
    paths = settings.get("spark.executorEnv.PYTHONPATH", ours)
    chosen = settings.get("spark.pyspark.python") or submitted.get("spark.pyspark.python")
    python = chosen or os.environ["PYSPARK_PYTHON"]
    found = worker_daemon.is_found(python, {**environment, **({"PYTHONPATH": paths} if paths else {})})
    return {_DAEMON: worker_daemon.MODULE} if found else {}
