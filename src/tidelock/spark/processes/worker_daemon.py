"""Spark's daemon of Python workers, with everything imported before it forks them.

Each executor has a daemon that forks a worker whenever a task needs one and none is idle. Spark's own imports
nothing, so every worker imports PySpark, Arrow and pandas anew, for one to two seconds of a core. A task that
fails takes its worker with it, and segments that catch up need several at once: that was most of a recovery.

Spark imports after forking, because it cannot know which modules start threads. Those that are imported here do
not, or (the allocator of Arrow) renew them in a child; `tidelock.spark.processes.nursery` relies on the same. Only
numpy has to be told that it was forked: otherwise all workers would draw the same random numbers.

Spark finds this module by the setting `spark.python.daemon.module`. A module that is imported here is the one of
the environment: `addPyFile` cannot replace it.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from typing import Any

_READY = (
    "pyarrow.compute",
    "pandas",
    "pyspark.worker",
    "pyspark.sql.pandas.serializers",
    "tidelock.log.stores.files",
    "tidelock.redis.server",
    "tidelock.spark.segments.keyed",
    "tidelock.spark.sinks.log",
    "tidelock.spark.connector.source",
)


# -- the driver's side

MODULE = "tidelock.spark.processes.worker_daemon"
_LOOK = "import sys, importlib.util; sys.exit(importlib.util.find_spec('tidelock') is None)"


def is_found(python: str, environment: Mapping[str, str]) -> bool:
    """Whether ``python`` has this module from the start, and does not get it from Spark with a task."""
    try:
        looked = subprocess.run(
            [python, "-c", _LOOK], env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=False
        )
    except OSError:
        return False
    return looked.returncode == 0


# -- the daemon itself


def serve() -> None:
    """Get ready, and do what Spark's own daemon does."""
    from pyspark import daemon

    for module in _READY:
        with suppress(ImportError):  # a worker that needs it says so better
            import_module(module)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        os.register_at_fork(after_in_child=numpy.random.seed)
    warnings.filterwarnings("ignore", message=".*multi-threaded.*fork", category=DeprecationWarning)
    daemon.worker = _quiet(daemon.worker)
    gc.freeze()
    daemon.manager()


def _quiet(work: Callable[..., int]) -> Callable[..., int]:
    """A worker that goes without a word if Spark has hung up.

    That is how Spark ends a task that it needs no longer: nothing is wrong, and nobody is left to be told.
    """

    def quietly(*arguments: Any) -> int:
        try:
            return work(*arguments)
        except (BrokenPipeError, ConnectionResetError):
            os._exit(1)

    return quietly


if __name__ == "__main__":
    serve()
