"""Sinks of a few lines: a function of the user, the console, none."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame

from tidelock.errors import BatchFailed
from tidelock.spark.query.batches import Work
from tidelock.spark.query.queries import compute
from tidelock.spark.sinks.sink import Sink


class FunctionSink(Sink):
    """Calls the user's function with the rows and, if it has such a parameter, the epoch.

    The rows are kept until the function returns: the state of the operators before it is computed once, also if it
    does not look at them at all.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        parameters = inspect.signature(function).parameters
        self._rows = next(name for name in parameters if name != "epoch")
        self._takes_epoch = "epoch" in parameters

    def deliver(self, rows: DataFrame, work: Work) -> None:
        """Call the function with the last epoch that the batch covers."""
        epoch = {"epoch": work.covers.last} if self._takes_epoch else {}
        try:
            self._function(**{self._rows: rows}, **epoch)
        except SystemExit as leaving:  # it would end the thread that Spark waits for, and nothing else
            raise BatchFailed(f"the sink's function called exit({leaving.code!r})") from leaving


class ConsoleSink(Sink):
    """Prints the rows of every epoch."""

    def __init__(self, name: str, rows: int = 20) -> None:
        self._name = name
        self._limit = rows

    def deliver(self, rows: DataFrame, work: Work) -> None:
        """Print the first rows as a table, under the epochs that they belong to."""
        print(f"-- {self._name}, epoch {work.covers}")
        rows.show(self._limit, truncate=False)


class Nowhere(Sink):
    """Computes the rows and takes them nowhere."""

    keeps_rows = False

    def deliver(self, rows: DataFrame, work: Work) -> None:
        """Compute the rows."""
        compute(rows)
