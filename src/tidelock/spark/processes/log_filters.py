"""Lines of Spark's log that tell of nothing, so that a person sees those that do.

Each is known by its words. Everything else is logged as it is set up, by Spark or by the user.
"""

from __future__ import annotations

import weakref
from typing import Any

from pyspark.sql import SparkSession

_UNTOLD = (
    # Whoever stops a query cancels its jobs, also if it has none at that moment, and does so twice.
    r"Failed to cancel job group \S+ Cannot find active jobs for it\.",
    # Spark finds the source by itself too, later and slower: see `registering`.
    r"The data source tidelock\S* replaced a statically registered data source\.",
    # Every segment has its pool, with the settings that a pool has if nothing is said.
    r"A job was submitted with scheduler pool [\s\S]+ which has not been configured\.[\s\S]*",
)
_quiet: weakref.WeakSet[Any] = weakref.WeakSet()


def leave_out(spark: SparkSession) -> None:
    """Keep these lines out of the log of this process's Java. Idempotent."""
    context: Any = spark.sparkContext
    if context._gateway in _quiet:
        return
    log4j = context._jvm.org.apache.logging.log4j
    logging = log4j.LogManager.getContext(False)
    results = log4j.core.Filter.Result
    words = rf"(\[[^\]]*\] )*({'|'.join(_UNTOLD)})"  # Spark begins with the query and the batch, if it knows them
    untold = log4j.core.filter.RegexFilter.createFilter(words, None, False, results.DENY, results.NEUTRAL)
    logging.getConfiguration().getRootLogger().addFilter(untold)
    logging.updateLoggers()
    _quiet.add(context._gateway)
