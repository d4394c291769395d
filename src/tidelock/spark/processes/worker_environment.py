"""What the Python processes that Spark starts are told by their environment.

That is who this job is at its servers, and the word for notes on errors (`tidelock.error_notes`).

URLs in tasks, options and plans are places without credentials (`tidelock.credentials`), because Spark writes them
into its event log and shows them in its pages. The environments of Python processes it neither writes nor shows:
on this machine only their owner can read them. To executors on other machines they travel with the tasks. So a
cluster whose network is not trusted needs Spark's own encryption, or a file of credentials on every machine.

Spark takes the environment for a function when the function becomes part of a plan, and that of a data source when
it is registered: `tell_workers` has to come before.
"""

from __future__ import annotations

import os
import threading
from typing import Any

from pyspark.sql import SparkSession

from tidelock.credentials import FILE, PASSWORDS, exported
from tidelock.error_notes import NAME, WORD

__all__ = ["changing", "tell_workers"]

changing = threading.RLock()
"""Held by whoever puts another environment in the place of that of a session."""


def tell_workers(spark: SparkSession) -> None:
    """Give functions and data sources of this session, from now on, what this process tells them. Idempotent."""
    context: Any = spark.sparkContext
    all_of_it = ((PASSWORDS, exported()), (FILE, os.environ.get(FILE)), (NAME, WORD))
    told = {name: value for name, value in all_of_it if value}
    with changing:
        if any(context.environment.get(name) != value for name, value in told.items()):
            # Another one, because threads that build plans may be reading this one.
            context.environment = {**context.environment, **told}
