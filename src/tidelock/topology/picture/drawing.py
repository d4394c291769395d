"""What is to be seen in a picture, before it has places: shapes and arrows. Pure.

A node that several segments compute has a shape in each of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tidelock.topology.cutting import Cutting, Segment
from tidelock.topology.graph import Kind, Topology

Picture = Cutting | Topology


@dataclass(frozen=True)
class DrawnNode:
    """A node as it is drawn, in the segment that computes it."""

    key: str
    name: str
    kind: Kind
    segment: str | None = None


@dataclass(frozen=True)
class Arrow:
    """What one shape reads of another: directly, or through a log; ``back`` for the epoch before."""

    start: str
    end: str
    log: str | None = None
    back: bool = False


@dataclass(frozen=True)
class Log:
    """A log and the shape that writes it."""

    name: str
    writer: str
    label: str


@dataclass(frozen=True)
class Drawing:
    """Shapes, inputs before their readers, and what is between them."""

    title: str
    shapes: tuple[DrawnNode, ...]
    arrows: tuple[Arrow, ...]
    segments: tuple[str, ...] = ()
    logs: tuple[Log, ...] = ()

    def forward_into(self, key: str) -> list[str]:
        """The shapes that ``key`` reads in the same epoch."""
        return [arrow.start for arrow in self.arrows if arrow.end == key and not arrow.back]

    def forward_from(self, key: str) -> list[str]:
        """The shapes that read ``key`` in the same epoch."""
        return [arrow.end for arrow in self.arrows if arrow.start == key and not arrow.back]


def topology_of(picture: Picture) -> Topology:
    """The topology that is drawn."""
    return picture.topology if isinstance(picture, Cutting) else picture


def draw(picture: Picture) -> Drawing:
    """The shapes and arrows of a cutting, or of a topology that is not cut yet."""
    return _cut(picture) if isinstance(picture, Cutting) else _bare(picture)


def _bare(topology: Topology) -> Drawing:
    return Drawing(
        title=topology.name,
        shapes=tuple(DrawnNode(node.name, node.name, node.kind) for node in topology.nodes),
        arrows=tuple(
            Arrow(one, node.name, back=(one, node.name) in topology.back_edges)
            for node in topology.nodes
            for one in node.inputs
        ),
    )


def _cut(cutting: Cutting) -> Drawing:
    topology = cutting.topology
    return Drawing(
        title=topology.name,
        shapes=tuple(
            DrawnNode(_key(segment.name, name), name, topology.node(name).kind, segment.name)
            for segment in cutting.segments
            for name in segment.operators
        ),
        arrows=tuple(arrow for segment in cutting.segments for arrow in _arrows(topology, segment)),
        segments=cutting.order,
        logs=tuple(_log(topology, one.log) for one in cutting.cuts),
    )


def _log(topology: Topology, name: str) -> Log:
    subject = topology.node(name).subject
    return Log(name, _key(name, name), f"{name} as {subject}" if subject else name)


def _arrows(topology: Topology, segment: Segment) -> Iterator[Arrow]:
    for name in segment.operators:
        end = _key(segment.name, name)
        for one in topology.forward_inputs(name):
            if one in segment.operators:
                yield Arrow(_key(segment.name, one), end)
            else:
                yield Arrow(_key(one, one), end, log=one)
        for one in topology.back_inputs(name):
            yield Arrow(_key(one, one), end, log=one, back=True)


def _key(segment: str, name: str) -> str:
    return f"{segment}/{name}"
