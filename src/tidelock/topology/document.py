"""A plan as a JSON document. Pure.

The groups of operators say what is stored: when no group holds both ends of an edge, its origin has a log. Anchors
say the same of all inputs of a node. A document that `write_document` made has both, and reading it gives back the
same stored nodes, so it gives the same segments however the rules of cutting came to them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidelock.errors import PlanError
from tidelock.topology.graph import Topology
from tidelock.topology.names import suggestion
from tidelock.topology.segments import Cutting


@dataclass(frozen=True)
class DocumentWishes:
    """What a document asks for."""

    anchors: frozenset[str]
    copies: frozenset[str]
    epochs_per_batch: Mapping[str, int]
    logs: frozenset[str]


@dataclass(frozen=True)
class _Group:
    """One segment of a document; None for what it leaves out."""

    path: str
    anchors: frozenset[str] | None
    operators: frozenset[str] | None
    epochs: int | None


def write_document(cutting: Cutting) -> dict[str, Any]:
    """The document of a cutting: its groups, their anchors and frequencies, and what is copied."""
    topology = cutting.topology
    stored = {cut.log for cut in cutting.cuts}
    return {
        "segments": [
            {
                "anchors": [name for name in segment.operators if _is_anchor(topology, name, stored)],
                "operators": list(segment.operators),
                "epochs_per_batch": segment.epochs_per_batch,
            }
            for segment in cutting.segments
        ],
        "copies": sorted(node.name for node in topology.nodes if _is_copy(cutting, node.name, stored)),
    }


def _is_copy(cutting: Cutting, name: str, stored: set[str]) -> bool:
    """Whether it is computed for each of its readers, in one segment or in several."""
    homes = sum(name in segment.operators for segment in cutting.segments)
    return name not in stored and (homes > 1 or len(cutting.topology.consumers(name)) > 1)


def _is_anchor(topology: Topology, name: str, stored: set[str]) -> bool:
    node = topology.node(name)
    return bool(node.inputs) and node.anchor is not False and stored.issuperset(node.inputs)


def read_document(fields: object, topology: Topology) -> DocumentWishes:
    """What ``fields``, a parsed JSON document, asks of ``topology``.

    Raises:
        PlanError: it does not have the form of a plan, or names what the topology does not have.
    """
    plan = _mapping(fields, "plan")
    copies = _names(plan.get("copies", []), "copies", topology)
    groups = [
        _group(part, f"segments[{place}]", topology)
        for place, part in enumerate(_list(plan.get("segments"), "segments"))
    ]
    _check_one_group_per_operator(groups, copies)
    anchors = frozenset().union(*(_anchors(group, groups, topology) for group in groups))
    return DocumentWishes(anchors, copies, _epochs(groups, topology), _logs(groups, anchors, topology))


def _group(part: object, path: str, topology: Topology) -> _Group:
    fields = _mapping(part, path)
    anchors, operators = (
        _names(fields[key], f"{path}.{key}", topology) if key in fields else None
        for key in ("anchors", "operators")
    )
    if anchors is None and operators is None:
        raise PlanError(f"{path}: name the segment's operators, its anchors or both")
    if operators is not None and not operators:
        raise PlanError(f"{path}.operators: a segment has at least one operator")
    epochs = fields.get("epochs_per_batch")
    if epochs is not None and (isinstance(epochs, bool) or not isinstance(epochs, int) or epochs < 1):
        raise PlanError(f"{path}.epochs_per_batch: {epochs!r} is not a whole number of at least 1")
    if epochs is not None and epochs > 1 and operators is None:
        raise PlanError(f"{path}.operators: needed to know which segment takes {epochs} epochs per batch")
    return _Group(path, anchors, operators, epochs)


def _anchors(group: _Group, groups: Sequence[_Group], topology: Topology) -> frozenset[str]:
    if group.anchors is not None:
        return group.anchors
    return frozenset(name for name in group.operators or () if _starts(name, groups, topology))


def _starts(name: str, groups: Sequence[_Group], topology: Topology) -> bool:
    inputs = topology.node(name).inputs
    return bool(inputs) and all(_crosses(one, name, groups) for one in inputs)


def _logs(groups: Sequence[_Group], anchors: frozenset[str], topology: Topology) -> frozenset[str]:
    return frozenset(
        one
        for node in topology.nodes
        if node.name not in anchors
        for one in topology.forward_inputs(node.name)
        if _crosses(one, node.name, groups)
    )


def _crosses(origin: str, reader: str, groups: Sequence[_Group]) -> bool:
    """Whether both are in groups, and in none together."""
    named = [group.operators for group in groups if group.operators is not None]
    apart = not any(origin in group and reader in group for group in named)
    return apart and all(any(one in group for group in named) for one in (origin, reader))


def _epochs(groups: Sequence[_Group], topology: Topology) -> dict[str, int]:
    """By segment name, which is the last of its operators."""
    return {
        max(group.operators, key=topology.position): group.epochs
        for group in groups
        if group.operators is not None and group.epochs is not None
    }


def _check_one_group_per_operator(groups: Sequence[_Group], copies: frozenset[str]) -> None:
    seen: dict[str, str] = {}
    for group in groups:
        for name in sorted((group.operators or frozenset()) - copies):
            other = seen.setdefault(name, group.path)
            if other != group.path:
                raise PlanError(
                    f"{group.path}.operators: {name!r} is in {other} already; put it into one segment, or into "
                    "copies if each should compute it"
                )


def _mapping(value: object, path: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise PlanError(f"{path}: expected an object, found {value!r}")
    return value


def _list(value: object, path: str) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise PlanError(f"{path}: expected a list, found {value!r}")
    return list(value)


def _names(value: object, path: str, topology: Topology) -> frozenset[str]:
    known = [node.name for node in topology.nodes]
    for place, name in enumerate(_list(value, path)):
        if name not in known:
            hint = suggestion(str(name), known)
            raise PlanError(f"{path}[{place}]: pipeline {topology.name} has no {name!r}; {hint}")
    return frozenset(_list(value, path))
