"""The topology of a home, without the code of its pipeline: for pictures."""

from __future__ import annotations

from typing import Any

from tidelock.home.home import Record
from tidelock.topology import Cut, Cutting, Kind, Topology, TopologyNode, connect
from tidelock.topology.segments import assemble
from tidelock.urls import masked


def cutting_of(record: Record) -> Cutting:
    """The segments that a home remembers, with the places of their logs where a plan has reasons."""
    topology = topology_of(record)
    logs = {segment.name: masked(segment.log) for segment in record.segments if segment.log is not None}
    return Cutting(topology, assemble(topology, logs), tuple(Cut(name, url) for name, url in logs.items()))


def topology_of(record: Record) -> Topology:
    """The graph that a home remembers."""
    signature = record.signature
    return connect(signature["name"], map(_node, signature["nodes"]), signature["feedback"])


def _node(fields: dict[str, Any]) -> TopologyNode:
    return TopologyNode(
        fields["name"],
        Kind(fields["kind"]),
        tuple(fields["inputs"]),
        mode=fields["mode"],
        subject=fields["subject"],
    )
