"""Short words for the nodes and pipelines of these tests."""

from __future__ import annotations

from typing import Any

from tidelock.topology import Cutting, Kind, Plan, Topology, TopologyNode, Traits, connect, cut

STATE = Traits(stateful=True)
WINDOW = Traits(stateful=True, event_time=True)
FUNCTION = Traits(stateful=True, function=True)
TIMED_FUNCTION = Traits(stateful=True, event_time=True, function=True)
CLOCK = Traits(watermark=True)
GROUPED = Traits(grouped=True)


def source(name: str, **settings: Any) -> TopologyNode:
    return TopologyNode(name, Kind.SOURCE, **settings)


def operator(name: str, *inputs: str, **settings: Any) -> TopologyNode:
    return TopologyNode(name, Kind.OPERATOR, inputs, **settings)


def sink(name: str, *inputs: str, **settings: Any) -> TopologyNode:
    return TopologyNode(name, Kind.SINK, inputs, **settings)


def pipeline(*nodes: TopologyNode, **feedback: str) -> Topology:
    return connect("trending", nodes, feedback)


def chain(**settings: dict[str, Any]) -> Topology:
    """The source a, the operators b, c and d, the sink z."""
    return pipeline(
        source("a", **settings.get("a", {})),
        operator("b", "a", **settings.get("b", {})),
        operator("c", "b", **settings.get("c", {})),
        operator("d", "c", **settings.get("d", {})),
        sink("z", "d", **settings.get("z", {})),
    )


def cut_one(topology: Topology, dead_letters: bool = False, **traits: Traits) -> Cutting:
    """Cut by nothing but force."""
    return cut(topology, Plan.one(), traits, dead_letters=dead_letters)


def groups(cutting: Cutting) -> list[str]:
    """The segments' operators, as words: names of one letter give ``["abc", "dz"]``."""
    return ["".join(segment.operators) for segment in cutting.segments]


def why(cutting: Cutting, log: str) -> str:
    (found,) = (one.why for one in cutting.cuts if one.log == log)
    return found
