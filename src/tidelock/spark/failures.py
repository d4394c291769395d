"""What went wrong in a batch, told shortly.

An exception that leaves `foreachBatch` reaches Spark as text, and Spark looks into that text to tell a query that
is being stopped from one that failed. Its pattern overflows the thread's stack on the long text of a Py4J error
(Spark 4.3), which would end the query with neither. So the text that leaves is made here: short, and worded so
that Spark recognises a stop.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException

from tidelock.errors import BatchFailed

_INTERRUPTIONS = (
    "java.lang.InterruptedException",
    "java.io.InterruptedIOException",
    "java.nio.channels.ClosedByInterruptException",
)


@contextmanager
def told_shortly(where: str) -> Iterator[None]:
    """Translate what Py4J and Spark raise inside; ``where`` begins the message.

    Raises:
        BatchFailed: Spark failed, or is being stopped.
    """
    try:
        yield
    except Py4JJavaError as error:
        raise BatchFailed(_story(where, str(error), error.java_exception.getMessage())) from None
    except PySparkException as error:
        raise BatchFailed(_story(where, str(error), str(error))) from None
    except Py4JError as error:
        raise BatchFailed(f"{where}: the connection to Spark broke: {str(error)[:500]}") from None


def _story(where: str, text: str, message: str) -> str:
    interruption = next((name for name in _INTERRUPTIONS if name in text), None)
    if interruption is not None:
        return f"py4j.protocol.Py4JJavaError: An error occurred while calling Spark: {interruption}"
    return f"{where}: org.apache.spark.SparkException: {message}"
