"""Making the data source known to a session before it is used.

Spark would find it by itself, but only after starting a Python process that looks through all installed packages.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any

from pyspark.sql import SparkSession

from tidelock.spark.nursery import quick_python
from tidelock.spark.source import TidelockSource

_known: weakref.WeakSet[SparkSession] = weakref.WeakSet()
_registering = threading.Lock()


def register_source(spark: SparkSession) -> None:
    """Make `format("tidelock")` known to the session, once. Thread-safe."""
    with _registering:
        if spark not in _known:
            _register(spark)
            _known.add(spark)


def _register(spark: SparkSession) -> None:
    context: Any = spark.sparkContext
    ordinary = context.pythonExec
    if str(context.master).startswith("local"):
        context.pythonExec = quick_python()  # what is registered keeps the interpreter of this moment
    try:
        spark.dataSource.register(TidelockSource)
    finally:
        context.pythonExec = ordinary
