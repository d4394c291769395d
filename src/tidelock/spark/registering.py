"""Making the data source known to a session before it is used.

Spark would find it by itself, but only after starting a Python process that looks through all installed packages.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource

from tidelock.spark.nursery import quick_python
from tidelock.spark.source import TidelockSource

_known: weakref.WeakKeyDictionary[SparkSession, set[str]] = weakref.WeakKeyDictionary()
_registering = threading.Lock()


def register_source(spark: SparkSession, source: type[DataSource] = TidelockSource) -> None:
    """Make a data source, `format("tidelock")` if nothing is said, known to the session, once. Thread-safe."""
    with _registering:
        known = _known.setdefault(spark, set())
        if source.name() not in known:
            _register(spark, source)
            known.add(source.name())


def _register(spark: SparkSession, source: type[DataSource]) -> None:
    # What is registered keeps the interpreter and the environment of this moment.
    context: Any = spark.sparkContext
    ordinary = context.pythonExec, context.environment
    if str(context.master).startswith("local"):
        context.pythonExec = quick_python()
    context.environment = _shared(context)
    try:
        spark.dataSource.register(source)
    finally:
        context.pythonExec, context.environment = ordinary


def _shared(context: Any) -> Any:
    """The environment of Python processes in a map that several threads may change.

    Spark adds to this map whenever a query starts, while others serialize it. In an ordinary map of Java that
    leaves a wrong number of entries behind, and from then on no task can be deserialized.
    """
    environment = context._jvm.java.util.concurrent.ConcurrentHashMap()
    for name, value in context.environment.items():
        environment.put(name, value)
    return environment
