"""What Spark's analysis says of a stream: does it keep state, does it follow event time.

The analysed plan is looked at node by node, through the JVM. Nothing is run.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame

from tidelock.spark.schema import WATERMARK_DELAY
from tidelock.topology import Traits

_FUNCTIONS = {
    "FlatMapGroupsWithState",
    "FlatMapGroupsInPandasWithState",
    "TransformWithState",
    "TransformWithStateInPySpark",
}
_KEEPS_STATE = _FUNCTIONS | {
    "Aggregate",
    "Distinct",
    "Deduplicate",
    "DeduplicateWithinWatermark",
    "GlobalLimit",
}
_WATERMARKS = {"EventTimeWatermark", "UpdateEventTimeWatermarkColumn"}


def examine(stream: DataFrame) -> Traits:
    """Look through the plan of ``stream``, down to its sources."""
    nodes = list(_nodes(_analysed(stream)))
    stateful = [node for node in nodes if _keeps_state(node)]
    return Traits(
        stateful=bool(stateful),
        event_time=any(map(_sees_event_time, stateful)),
        function=any(_name(node) in _FUNCTIONS for node in stateful),
        watermark=any(_name(node) in _WATERMARKS for node in nodes),
    )


def has_watermark(stream: DataFrame) -> bool:
    """Whether a watermark is declared anywhere below ``stream``."""
    return any(_name(node) in _WATERMARKS for node in _nodes(_analysed(stream)))


def _analysed(stream: DataFrame) -> Any:
    frame: Any = stream
    return frame._jdf.queryExecution().analyzed()


def _nodes(node: Any) -> Iterator[Any]:
    yield node
    for child in _children(node):
        yield from _nodes(child)


def _children(node: Any) -> list[Any]:
    children = node.children()
    return [children.apply(i) for i in range(children.size())]


def _name(node: Any) -> str:
    return str(node.nodeName())


def _keeps_state(node: Any) -> bool:
    if not node.isStreaming():
        return False
    if _name(node) == "Join":
        return all(child.isStreaming() for child in _children(node))
    return _name(node) in _KEEPS_STATE


def _sees_event_time(node: Any) -> bool:
    return any(
        child.output().apply(i).metadata().contains(WATERMARK_DELAY)
        for child in _children(node)
        for i in range(child.output().size())
    )
