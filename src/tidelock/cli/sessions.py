"""A Spark session for a command: what Spark says does not bury what the command says.

The JVM inherits standard output and standard error when it is started and keeps them. So both lead to a file while
it starts, and its messages, those of its Python workers included, are found there ever after. What Py4J logs in
this process about failures, which the supervisor tells in its own words, goes to the same file.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tidelock.cli.java import check_java
from tidelock.spark.failures import told_shortly
from tidelock.spark.frames import SparkSession
from tidelock.spark.session import session

_QUIET = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}


@contextmanager
def command_session(
    name: str, settings: Iterable[tuple[str, str]], *, master: str | None, log: Path
) -> Iterator[SparkSession]:
    """A session that ends with the command; Spark's own messages are added to ``log``.

    Raises:
        PipelineError: there is no Java.
        BatchFailed: Spark refuses to start; the message has its words.
    """
    check_java()
    with _logged_to(log):
        with _output_to(log), told_shortly(f"Spark cannot be started (it may say more in {log})"):
            spark = session(name, master=master, settings={**_QUIET, **dict(settings)})
        spark.sparkContext.setLogLevel("ERROR")
        try:
            yield spark
        finally:
            spark.stop()


@contextmanager
def _output_to(log: Path) -> Iterator[None]:
    """Lead standard output and standard error, as processes see them, to a file."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept = [os.dup(number) for number in (1, 2)]
    with log.open("ab") as file:
        for number in (1, 2):
            os.dup2(file.fileno(), number)
    try:
        yield
    finally:
        for number, before in zip((1, 2), kept, strict=True):
            os.dup2(before, number)
            os.close(before)


@contextmanager
def _logged_to(log: Path) -> Iterator[None]:
    logger = logging.getLogger("py4j")
    handler = logging.FileHandler(log, encoding="utf-8", delay=True)
    handler.setLevel(logging.WARNING)
    logger.addHandler(handler)
    before, logger.propagate = logger.propagate, False
    try:
        yield
    finally:
        logger.propagate = before
        logger.removeHandler(handler)
        handler.close()
