"""Walking through Spark's analysed plans, node by node, through the JVM. Nothing is run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame

FUNCTIONS = {
    "FlatMapGroupsWithState",
    "FlatMapGroupsInPandasWithState",
    "TransformWithState",
    "TransformWithStateInPySpark",
}
"""The nodes that call functions with state."""
_KEEPS_STATE = FUNCTIONS | {
    "Aggregate",
    "Distinct",
    "Deduplicate",
    "DeduplicateWithinWatermark",
    "GlobalLimit",
}


def analysed(stream: DataFrame) -> Any:
    """The analysed plan of a stream."""
    frame: Any = stream
    return frame._jdf.queryExecution().analyzed()


def nodes(node: Any) -> Iterator[Any]:
    """A node of a plan, or an expression, and all below it; those above come first."""
    yield node
    for child in children(node):
        yield from nodes(child)


def children(node: Any) -> list[Any]:
    """What is directly below a node."""
    below = node.children()
    return [below.apply(i) for i in range(below.size())]


def name_of(node: Any) -> str:
    """What Spark calls a node of a plan."""
    return str(node.nodeName())


def keeps_state(node: Any) -> bool:
    """Whether a node of a streaming plan keeps state."""
    if not node.isStreaming():
        return False
    if name_of(node) == "Join":
        return all(child.isStreaming() for child in children(node))
    return name_of(node) in _KEEPS_STATE
