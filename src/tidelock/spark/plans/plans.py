"""What Spark's analysis says of a stream: does it keep state, does it follow event time, does event time leave it.

The analysed plan is looked at node by node, through the JVM. Nothing is run.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame

from tidelock.spark.plans.prints import INPUT
from tidelock.spark.plans.walks import FUNCTIONS, analysed, children, keeps_state, name_of, nodes
from tidelock.spark.schema import WATERMARK_DELAY
from tidelock.topology import Traits

_WATERMARK = "EventTimeWatermark"
_WATERMARKS = {_WATERMARK, "UpdateEventTimeWatermarkColumn"}
_TIMELESS = {"FlatMapGroupsWithState", "FlatMapGroupsInPandasWithState"}
"""Functions with state whose output has no watermark in Spark, whatever their input has."""
_GROUPED = {
    "FlatMapGroupsInPandas",
    "FlatMapGroupsInArrow",
    "FlatMapCoGroupsInPandas",
    "FlatMapCoGroupsInArrow",
}
_OWN = ""


def examine(stream: DataFrame, inputs: tuple[str, ...] = ()) -> Traits:
    """Look through the plan of ``stream``, down to its sources or to the stand-ins for its ``inputs``."""
    plan = analysed(stream)
    found = list(nodes(plan))
    stateful = [node for node in found if keeps_state(node)]
    leaving = _leaving(plan)
    watermark = any(map(_declares_watermark, found))
    return Traits(
        stateful=bool(stateful),
        event_time=any(map(_sees_event_time, stateful)),
        function=any(name_of(node) in FUNCTIONS for node in stateful),
        watermark=watermark,
        grouped=any(name_of(node) in _GROUPED and node.isStreaming() for node in found),
        silenced=frozenset(inputs) - leaving,
        mute=watermark and _OWN not in leaving,
        apart=frozenset(inputs).difference(*map(_arriving, found)) if watermark else frozenset(),
    )


def has_watermark(stream: DataFrame) -> bool:
    """Whether a watermark is declared anywhere below ``stream``."""
    return any(map(_declares_watermark, nodes(analysed(stream))))


def gives_watermark(stream: DataFrame) -> bool:
    """Whether rows leave ``stream`` with a watermark, which is declared below."""
    return _OWN in _leaving(analysed(stream))


def _leaving(node: Any) -> frozenset[str]:
    """The inputs whose watermark leaves a node, if they have one; the one that is declared below is `_OWN`."""
    if not node.isStreaming() or not _lets_through(node):
        return frozenset()
    if name_of(node) == _WATERMARK:
        return frozenset([_OWN])
    stands_for = _stands_for(node)
    if stands_for is not None:
        return frozenset([stands_for])
    return frozenset[str]().union(*map(_leaving, children(node)))


def _arriving(node: Any) -> frozenset[str]:
    """The inputs whose watermark arrives at a node that declares one."""
    return _leaving(children(node)[0]) if name_of(node) == _WATERMARK else frozenset()


def _lets_through(node: Any) -> bool:
    """Whether Spark passes a watermark on from the input of a node to its output."""
    name = name_of(node)
    if name.startswith("TransformWithState"):
        return str(node.timeMode()) != "ProcessingTime"
    if name == "Join" and str(node.joinType().sql()) == "LEFT SEMI" and keeps_state(node):
        return _has_event_time(node)
    return name not in _TIMELESS


def _stands_for(node: Any) -> str | None:
    """The input that a node stands for, if it is the stand-in for one."""
    if name_of(node) != "Project" or node.projectList().size() != 1:
        return None
    only = node.projectList().apply(0)
    return str(only.child().value().toString()) if str(only.name()) == INPUT else None


def _declares_watermark(node: Any) -> bool:
    return name_of(node) in _WATERMARKS and bool(node.isStreaming())


def _sees_event_time(node: Any) -> bool:
    return any(map(_has_event_time, children(node)))


def _has_event_time(node: Any) -> bool:
    columns = node.output()
    return any(columns.apply(i).metadata().contains(WATERMARK_DELAY) for i in range(columns.size()))
