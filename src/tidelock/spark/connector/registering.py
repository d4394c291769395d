"""Making the data source known to a session before it is used.

Spark would find it by itself, but only after starting a Python process that looks through all installed packages.
"""

from __future__ import annotations

import weakref
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource

from tidelock.credentials import exported
from tidelock.spark.connector.source import TidelockSource
from tidelock.spark.processes.nursery import quick_python
from tidelock.spark.processes.worker_environment import changing, tell_workers

_known: weakref.WeakKeyDictionary[SparkSession, dict[str, str | None]] = weakref.WeakKeyDictionary()
"""The sources that a session knows, each with the credentials that it was registered with."""


def register_source(spark: SparkSession, source: type[DataSource] = TidelockSource) -> None:
    """Make a data source, `format("tidelock")` if nothing is said, known to the session. Thread-safe.

    That is done once, and again when this process has been given other credentials since.
    """
    with changing:
        known, credentials = _known.setdefault(spark, {}), exported()
        if source.name() not in known or known[source.name()] != credentials:
            tell_workers(spark)
            _register(spark, source)
            known[source.name()] = credentials


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
