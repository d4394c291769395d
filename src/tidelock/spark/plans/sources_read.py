"""What a stream reads, in the order in which Spark numbers the sources of its query."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame

_RELATION = "StreamingRelationV2"


def streams_read(stream: DataFrame) -> list[str | None]:
    """One item for each place in the plan of ``stream`` at which a source stands: the URL of its log, or None.

    Spark writes one line per item into the offset log of the query, also if a source stands there twice.
    """
    frame: Any = stream
    leaves = frame._jdf.queryExecution().analyzed().collectLeaves()
    found = [leaves.apply(i) for i in range(leaves.size())]
    return [_log(leaf) for leaf in found if leaf.isStreaming()]


def _log(leaf: Any) -> str | None:
    if leaf.getClass().getSimpleName() != _RELATION:
        return None
    log = leaf.extraOptions().get("log")
    return None if log is None else str(log)
