"""What went wrong in a batch, told shortly.

An exception that leaves `foreachBatch` reaches Spark as text, and Spark looks into that text to tell a query that
is being stopped from one that failed. Its pattern overflows the thread's stack on the long text of a Py4J error
(Spark 4.3), which would end the query with neither. So the text that leaves is made here: short, and worded so
that Spark recognises a stop.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from tidelock.error_notes import WORD
from tidelock.errors import BackendUnavailable, BatchFailed, TidelockError
from tidelock.spark.query.batches import Stopped

_LOGGER = logging.getLogger("py4j.accumulators")
_PATIENCE_MS = 60_000
_PROBE = 5.0
_GONE = (
    "Spark's JVM is gone, perhaps killed because the machine had no memory left: start it again, it goes on where "
    "it was"
)
_INTERRUPTIONS = (
    "java.lang.InterruptedException",
    "java.io.InterruptedIOException",
    "java.nio.channels.ClosedByInterruptException",
)


_ECHOES = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")
"""Where PySpark writes an error that it also raises once more, as one line of JSON with all of the JVM's stack."""


def silence_echoes() -> None:
    """Let PySpark say what it raises once: in what it raises."""
    for name in _ECHOES:
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL + 1)


@contextmanager
def told_shortly(where: str) -> Iterator[None]:
    """Translate what Py4J and Spark raise inside; ``where`` begins the message. Our own errors are marked.

    Raises:
        BatchFailed: Spark failed, or is being stopped.
    """
    try:
        yield
    except TidelockError as error:
        error.mark(WORD)
        raise
    except Py4JJavaError as error:
        raise BatchFailed(_story(where, str(error), _message(error.java_exception))) from None
    except PySparkException as error:
        raise BatchFailed(_story(where, str(error), str(error))) from None
    except Py4JError as error:
        raise BatchFailed(f"{where}: the connection to Spark broke: {str(error)[:500]}") from None


@contextmanager
def told_if_gone(gone: Callable[[], bool]) -> Iterator[None]:
    """Say so if what fails inside fails because there is no JVM any more, as ``gone`` knows.

    Raises:
        BackendUnavailable: it is gone; otherwise whatever was raised.
    """
    try:
        yield
    except Exception as failure:  # without the JVM whatever asks it fails in ways of its own
        if gone():
            raise BackendUnavailable(_GONE) from failure
        raise


def is_gone(spark: SparkSession) -> bool:
    """Whether the JVM of a session has ended: nobody listens any more where Py4J found it."""
    context: Any = spark.sparkContext
    where = context._gateway.gateway_parameters
    try:
        socket.create_connection((where.address, where.port), _PROBE).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return False


def keep_loss_short(spark: SparkSession) -> None:
    """Let PySpark log, and not print, the stack of its thread for accumulators when the JVM is gone."""
    context: Any = spark.sparkContext
    context._accumulatorServer.handle_error = lambda *_: _LOGGER.warning("accumulators", exc_info=True)


def _message(exception: Any) -> str:
    """What an exception of the JVM says; its type if it says nothing."""
    return str(exception.getMessage() or exception.getClass().getName())


def rest_until_stopped(spark: SparkSession) -> str:
    """Wait, in the thread of a batch, until its query is stopped; the words by which Spark takes it for that.

    The thread of the query sleeps in Java, because there the stop reaches it. Without these words Spark would tell
    that the query has failed. There are none if nobody stops it within a minute.
    """
    jvm: Any = spark.sparkContext._jvm
    try:
        jvm.java.lang.Thread.sleep(_PATIENCE_MS)
    except Py4JError:
        return f": {_story('', _INTERRUPTIONS[0], '')}"
    return ""


def keep_stops_untold() -> None:
    """Let Py4J not log it as a failure when a batch ends because its query was stopped. Idempotent."""
    logging.getLogger("py4j.clientserver").addFilter(_tells_more_than_a_stop)


def _tells_more_than_a_stop(record: logging.LogRecord) -> bool:
    kind = record.exc_info[0] if record.exc_info else None
    return kind is None or not issubclass(kind, Stopped)


def _story(where: str, text: str, message: str) -> str:
    interruption = next((name for name in _INTERRUPTIONS if name in text), None)
    if interruption is not None:
        return f"py4j.protocol.Py4JJavaError: An error occurred while calling Spark: {interruption}"
    return f"{where}: org.apache.spark.SparkException: {message}"
