"""A pipeline as a graph: which node reads which, in an order that Spark can run. Pure.

Theory of operation
-------------------
Parameter names wire the graph. It may have cycles, but only through operators that are declared as feedback: what
such an operator gives in epoch N comes back as input of epoch N+1 (ABS, Algorithm 2). An edge from a feedback
operator f to a node c is a *back edge* when c also leads to f; every other edge is a *forward edge*. Without the
back edges the graph is acyclic, and that is the order of `Topology.nodes`: inputs first, and among nodes that are
free of each other the one that was declared first.

A topology holds n nodes and e edges; connecting costs O(n * (n + e)), which is nothing next to one micro-batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from typing import Any

from tidelock.errors import PipelineError
from tidelock.topology.declarations import check_feedback, check_nodes, check_wiring
from tidelock.topology.names import suggestion
from tidelock.topology.node import Kind, Mode, TopologyNode

__all__ = ["Edge", "Kind", "Mode", "Topology", "TopologyNode", "connect"]

Edge = tuple[str, str]


@dataclass(frozen=True)
class Topology:
    """A checked pipeline; `connect` makes one.

    Attributes:
        name: The pipeline's name.
        nodes: Every node, inputs before their readers (back edges left aside).
        feedback: The operators whose output returns as input of the next epoch, each with its schema.
        back_edges: The edges over which it returns, as (from, to).
    """

    name: str
    nodes: tuple[TopologyNode, ...]
    feedback: Mapping[str, str]
    back_edges: frozenset[Edge]

    def node(self, name: str) -> TopologyNode:
        """The node of that name.

        Raises:
            PipelineError: there is none.
        """
        try:
            return self._by_name[name]
        except KeyError:
            hint = suggestion(name, self._by_name)
            raise PipelineError(f"pipeline {self.name} has no {name!r}; {hint}") from None

    def consumers(self, name: str) -> tuple[str, ...]:
        """The nodes that read ``name``, those behind a back edge included."""
        return self._readers[name]

    def forward_consumers(self, name: str) -> tuple[str, ...]:
        """The nodes that read ``name`` in the epoch in which it is made."""
        return tuple(reader for reader in self._readers[name] if (name, reader) not in self.back_edges)

    def forward_inputs(self, name: str) -> tuple[str, ...]:
        """What ``name`` reads of the same epoch."""
        return tuple(one for one in self.node(name).inputs if (one, name) not in self.back_edges)

    def back_inputs(self, name: str) -> tuple[str, ...]:
        """What ``name`` reads of the epoch before."""
        return tuple(one for one in self.node(name).inputs if (one, name) in self.back_edges)

    def ancestors(self, name: str) -> frozenset[str]:
        """Everything that leads to ``name`` over forward edges, without itself."""
        return self._ancestors[name]

    def position(self, name: str) -> int:
        """The place of ``name`` in the topological order."""
        return self._positions[name]

    def signature(self) -> dict[str, Any]:
        """What tells this pipeline from another, as JSON: two runs of one home must agree in it."""
        return {
            "name": self.name,
            "nodes": [
                {
                    "name": node.name,
                    "kind": node.kind.value,
                    "inputs": list(node.inputs),
                    "mode": node.mode,
                    "subject": node.subject,
                }
                for node in self.nodes
            ],
            "feedback": dict(sorted(self.feedback.items())),
        }

    @cached_property
    def _by_name(self) -> dict[str, TopologyNode]:
        return {node.name: node for node in self.nodes}

    @cached_property
    def _positions(self) -> dict[str, int]:
        return {node.name: place for place, node in enumerate(self.nodes)}

    @cached_property
    def _readers(self) -> dict[str, tuple[str, ...]]:
        return {
            node.name: tuple(other.name for other in self.nodes if node.name in other.inputs)
            for node in self.nodes
        }

    @cached_property
    def _ancestors(self) -> dict[str, frozenset[str]]:
        found: dict[str, frozenset[str]] = {}
        for node in self.nodes:
            inputs = self.forward_inputs(node.name)
            found[node.name] = frozenset(inputs).union(*(found[one] for one in inputs))
        return found


def connect(name: str, nodes: Iterable[TopologyNode], feedback: Mapping[str, str]) -> Topology:
    """Check what was declared and put it in order.

    Args:
        name: The pipeline's name.
        nodes: The declared nodes, in the order of their declaration.
        feedback: The operators that are fed back, each with the schema of its rows as DDL.

    Raises:
        PipelineError: something is declared that cannot work; the message says what to change.
    """
    declared = tuple(nodes)
    if not name.strip():
        raise PipelineError("the pipeline has no name: give it one, as in Pipeline('trending')")
    check_nodes(name, declared)
    check_wiring(declared)
    check_feedback(declared, feedback)
    leading = {node.name: _leading_to(node.name, declared) for node in declared}
    back = _back_edges(declared, feedback, leading)
    _check_acyclic(declared, back)
    _check_loops(declared, feedback, back, leading)
    return Topology(name, _ordered(declared, back), dict(feedback), back)


def _leading_to(name: str, nodes: Sequence[TopologyNode]) -> frozenset[str]:
    """Everything that leads to ``name`` over any edges: itself only when it is on a cycle."""
    inputs = {node.name: node.inputs for node in nodes}
    found: set[str] = set()
    ahead = list(inputs[name])
    while ahead:
        one = ahead.pop()
        if one not in found:
            found.add(one)
            ahead.extend(inputs[one])
    return frozenset(found)


def _back_edges(
    nodes: Sequence[TopologyNode], feedback: Mapping[str, str], leading: Mapping[str, frozenset[str]]
) -> frozenset[Edge]:
    return frozenset(
        (one, node.name)
        for node in nodes
        for one in node.inputs
        if one in feedback and (node.name == one or node.name in leading[one])
    )


def _check_acyclic(nodes: Sequence[TopologyNode], back: frozenset[Edge]) -> None:
    sorter = TopologicalSorter({node.name: _forward(node, back) for node in nodes})
    try:
        sorter.prepare()
    except CycleError as error:
        cycle = _turned(error.args[1], [node.name for node in nodes])
        raise PipelineError(
            f"{' -> '.join(cycle)} is a circle: an operator cannot wait for its own result of the same epoch; "
            f'return it in the next one with pipeline.feedback("{cycle[0]}", schema=...)'
        ) from None


def _turned(cycle: Sequence[str], declared: Sequence[str]) -> list[str]:
    """The same circle, written from the node that was declared first."""
    ring = list(cycle[:-1])
    start = ring.index(min(ring, key=declared.index))
    return [*ring[start:], *ring[:start], ring[start]]


def _check_loops(
    nodes: Sequence[TopologyNode],
    feedback: Mapping[str, str],
    back: frozenset[Edge],
    leading: Mapping[str, frozenset[str]],
) -> None:
    inputs = {node.name: node.inputs for node in nodes}
    for name in feedback:
        if all(origin != name for origin, _ in back):
            raise PipelineError(
                f"feedback of {name!r} closes no circle: none of the operators that read {name} leads back to it; "
                "take the feedback away"
            )
        loop = {one for one in leading[name] if name in leading[one]}
        if all(one in loop for member in loop for one in inputs[member]):
            members = ", ".join(node.name for node in nodes if node.name in loop)
            raise PipelineError(
                f"the loop of {members} reads nothing but itself, so it would never begin: let one of its "
                "operators read a source as well"
            )


def _ordered(nodes: Sequence[TopologyNode], back: frozenset[Edge]) -> tuple[TopologyNode, ...]:
    placed: dict[str, TopologyNode] = {}
    while len(placed) < len(nodes):
        ready = next(
            node
            for node in nodes
            if node.name not in placed and all(one in placed for one in _forward(node, back))
        )
        placed[ready.name] = ready
    return tuple(placed.values())


def _forward(node: TopologyNode, back: frozenset[Edge]) -> list[str]:
    return [one for one in node.inputs if (one, node.name) not in back]
