"""A pipeline's graph (`graph`), the segments that it is cut into (`cutting`), and pictures of both (`picture`)."""

from tidelock.topology.cutting import Cut, Cutting, Input, Plan, Segment, Traits, cut
from tidelock.topology.epochs_per_batch import why_one_by_one
from tidelock.topology.graph import Kind, Mode, Topology, TopologyNode, connect
from tidelock.topology.picture import mermaid, svg, text

__all__ = [
    "Cut",
    "Cutting",
    "Input",
    "Kind",
    "Mode",
    "Plan",
    "Segment",
    "Topology",
    "TopologyNode",
    "Traits",
    "connect",
    "cut",
    "mermaid",
    "svg",
    "text",
    "why_one_by_one",
]
