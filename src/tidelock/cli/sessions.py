"""A Spark session for a command: what Spark says does not bury what the command says.

The JVM inherits standard output and standard error when it is started and keeps them. So both lead to a file while
it starts, and its messages, those of its Python workers included, are found there ever after. What Py4J logs in
this process about failures, which the supervisor tells in its own words, goes to the same file.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tidelock.cli.java import check_java
from tidelock.spark.frames import SparkSession
from tidelock.spark.processes.session import session
from tidelock.spark.query.failures import is_gone, keep_loss_short, told_if_gone, told_shortly

_QUIET = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}


@contextmanager
def command_session(
    name: str, settings: Iterable[tuple[str, str]], *, master: str | None, log: Path
) -> Iterator[SparkSession]:
    """A session that ends with the command; Spark's own messages are added to ``log``.

    Raises:
        PipelineError: there is no Java.
        BatchFailed: Spark refuses to start; the message has its words.
        BackendUnavailable: its JVM went away meanwhile.
    """
    check_java()
    with _logged_to(log):
        with (
            _kept_interrupt(),
            _output_to(log),
            told_shortly(f"Spark cannot be started (it may say more in {log})"),
        ):
            spark = session(name, master=master, settings={**_QUIET, **dict(settings)})
        spark.sparkContext.setLogLevel("ERROR")
        keep_loss_short(spark)
        try:
            with told_if_gone(lambda: is_gone(spark)):
                yield spark
        finally:
            _stop(spark)


def _stop(spark: SparkSession) -> None:
    try:
        spark.stop()
    except Exception:  # without a JVM there is nothing to stop, and nothing new to tell
        if not is_gone(spark):
            raise


@contextmanager
def _kept_interrupt() -> Iterator[None]:
    """Let Ctrl-C mean afterwards what it meant before: PySpark would have it cancel all jobs under the run."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)


@contextmanager
def _output_to(log: Path) -> Iterator[None]:
    """Lead standard output and standard error, as processes see them, to a file."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):  # there is no room: what is left to write has to wait
            stream.flush()
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
    handler = _Noted(log, encoding="utf-8", delay=True)
    handler.setLevel(logging.WARNING)
    logger.addHandler(handler)
    before, logger.propagate = logger.propagate, False

    def is_anothers(record: logging.LogRecord) -> bool:
        # Some of what Py4J has to say of a broken connection it says through the root of all loggers.
        ours = record.module == "java_gateway"
        if ours:
            handler.handle(record)
        return not ours

    logging.getLogger().addFilter(is_anothers)
    try:
        yield
    finally:
        logging.getLogger().removeFilter(is_anothers)
        logger.propagate = before
        logger.removeHandler(handler)
        handler.close()


class _Noted(logging.FileHandler):
    """Adds to a file what there is room for. What is only noted ends nothing and is not worth a stack trace."""

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(OSError):  # it opens the file, too
            super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:
        pass

    def close(self) -> None:
        with suppress(OSError):  # it writes what is left to write, and is closed all the same
            super().close()
