"""Segments: the operators that one streaming query computes, and the logs between them. Pure.

A segment is what a query has to compute so that one stored node, or one sink, gets its rows: that node and
everything behind it, back to the nodes that are stored. It is an in-tree: several inputs, one output.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

from tidelock.errors import PlanError
from tidelock.topology.graph import Kind, Mode, Topology
from tidelock.topology.names import suggestion


@dataclass(frozen=True, order=True)
class Input:
    """A log that a segment reads; ``lag`` 1 means the epoch before the one that is computed (a back edge)."""

    log: str
    lag: int = 0


@dataclass(frozen=True)
class Segment:
    """Operators fused into one streaming query: the unit of commit, failure and restart.

    Attributes:
        name: The name of its output node.
        operators: All nodes computed in it, sources and the sink included, inputs first, the output node last.
        inputs: The logs that it reads.
        sources: The sources that it reads.
        sink: The sink at its end, if there is one.
        mode: The output mode of its query.
        epochs_per_batch: How many epochs of its inputs one batch takes in.
    """

    name: str
    operators: tuple[str, ...]
    inputs: tuple[Input, ...]
    sources: tuple[str, ...]
    sink: str | None
    mode: Mode
    epochs_per_batch: int = 1

    @property
    def is_head(self) -> bool:
        """Whether it reads sources, not logs: its batches make the epochs."""
        return bool(self.sources)

    @property
    def writes(self) -> str | None:
        """The name of the log that it writes; None if it ends in a sink."""
        return None if self.sink else self.name

    @property
    def result(self) -> str:
        """The node whose rows leave the query: the output node, or what its sink takes.

        A segment that is a sink alone has no other node, so it is the sink.
        """
        return self.operators[-2] if self.sink and len(self.operators) > 1 else self.name


@dataclass(frozen=True)
class Cut:
    """A node whose output is stored, and a sentence that says why."""

    log: str
    why: str


@dataclass(frozen=True)
class Cutting:
    """A topology cut into segments.

    Attributes:
        topology: What was cut.
        segments: Inputs before their readers (back edges left aside).
        cuts: Every stored node with its reason, in the order of the topology.
        notes: Sentences for a person: where a rule overrode what a plan or an operator asked for.
    """

    topology: Topology
    segments: tuple[Segment, ...]
    cuts: tuple[Cut, ...]
    notes: tuple[str, ...] = ()

    @property
    def order(self) -> tuple[str, ...]:
        """The names of the segments, inputs before their readers."""
        return tuple(segment.name for segment in self.segments)

    def segment(self, name: str) -> Segment:
        """The segment of that name.

        Raises:
            PlanError: there is none.
        """
        for segment in self.segments:
            if segment.name == name:
                return segment
        raise PlanError(f"pipeline {self.topology.name} has no segment {name!r}; {suggestion(name, self.order)}")

    def readers(self, log: str) -> tuple[Segment, ...]:
        """The segments that read ``log``, those behind a back edge included."""
        return tuple(one for one in self.segments if any(read.log == log for read in one.inputs))


def assemble(topology: Topology, stored: Container[str]) -> tuple[Segment, ...]:
    """The segments that result when exactly the nodes of ``stored`` are stored."""
    return tuple(
        _segment(topology, stored, node.name)
        for node in topology.nodes
        if node.kind is Kind.SINK or node.name in stored
    )


def feeding(topology: Topology, segment: Segment, name: str) -> frozenset[str]:
    """The nodes and logs that lead to ``name`` inside the segment, in the same epoch."""
    return _behind(topology, name, frozenset(segment.operators))


def _segment(topology: Topology, stored: Container[str], output: str) -> Segment:
    members = _members(topology, stored, output)
    fresh = {Input(one) for name in members for one in topology.forward_inputs(name) if one in stored}
    lagged = {Input(one, 1) for name in members for one in topology.back_inputs(name)}
    kind = topology.node(output).kind
    operators = tuple(sorted(members, key=topology.position))
    return Segment(
        name=output,
        operators=operators,
        inputs=tuple(sorted(fresh | lagged, key=lambda one: (topology.position(one.log), one.lag))),
        sources=tuple(name for name in operators if topology.node(name).kind is Kind.SOURCE),
        sink=output if kind is Kind.SINK else None,
        mode=_mode(topology, operators),
    )


def _members(topology: Topology, stored: Container[str], output: str) -> frozenset[str]:
    inner = frozenset(one for one in topology.ancestors(output) if one not in stored)
    return frozenset({output}) | (_behind(topology, output, inner) & inner)


def _behind(topology: Topology, name: str, inner: frozenset[str]) -> frozenset[str]:
    """What leads to ``name``, through nodes of ``inner`` only; the nodes where that ends are included."""
    found: set[str] = set()
    ahead = list(topology.forward_inputs(name))
    while ahead:
        one = ahead.pop()
        if one not in found:
            found.add(one)
            ahead.extend(topology.forward_inputs(one) if one in inner else ())
    return frozenset(found)


def _mode(topology: Topology, operators: tuple[str, ...]) -> Mode:
    """The mode of the output operator; a sink has the mode of the operator that it is fused with."""
    *_, output = operators
    node = topology.node(output)
    if node.kind is Kind.SINK:
        (read,) = node.inputs
        node = topology.node(read)
        fused = read in operators
    else:
        fused = True
    return node.mode if fused and node.kind is Kind.OPERATOR else "append"
