"""What is checked of the declared nodes before they are put in order. Pure.

Each check raises `PipelineError` with one sentence: what is wrong, and what to do about it. They run from the
single node to the whole, so that the first error is the one nearest to the mistake.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import get_args

from tidelock.errors import PipelineError
from tidelock.topology.names import name_fault, suggestion
from tidelock.topology.node import Kind, Mode, TopologyNode


def check_nodes(pipeline: str, nodes: Sequence[TopologyNode]) -> None:
    """Check each node by itself, and that no two are in each other's way.

    Raises:
        PipelineError: a name, a mode, a rate or a subject is wrong, or there is nothing to read.
    """
    for node in nodes:
        _check_name(node)
        _check_settings(node)
        _check_subject(node)
    _check_one_node_per_name(nodes)
    _check_one_log_per_subject(nodes)
    if not any(node.kind is Kind.SOURCE for node in nodes):
        raise PipelineError(f"pipeline {pipeline} has no source: declare one with @pipeline.source")


def check_wiring(nodes: Sequence[TopologyNode]) -> None:
    """Check what each node reads and whether somebody reads it.

    Raises:
        PipelineError: an input that nobody makes, a wrong number of inputs, or an output that nobody reads.
    """
    known = {node.name: node for node in nodes}
    for node in nodes:
        _check_number_of_inputs(node)
        for name in node.inputs:
            _check_input(node, name, known)
    read = {name for node in nodes for name in node.inputs}
    for node in nodes:
        if node.kind is not Kind.SINK and node.name not in read and node.subject is None:
            raise PipelineError(f"nothing reads {node}: add a sink or publish it")


def check_feedback(nodes: Sequence[TopologyNode], feedback: Mapping[str, str]) -> None:
    """Check that only operators are fed back, each with a schema.

    Raises:
        PipelineError: an unknown name, a source or a sink, or no schema.
    """
    known = {node.name: node for node in nodes}
    operators = [node.name for node in nodes if node.kind is Kind.OPERATOR]
    for name, schema in feedback.items():
        if name not in known:
            hint = suggestion(name, operators)
            raise PipelineError(f"feedback of {name!r}: there is no operator of that name; {hint}")
        if known[name].kind is not Kind.OPERATOR:
            raise PipelineError(f"feedback of {name!r}: it is a {known[name].kind.value}; feed back an operator")
        if not schema.strip():
            raise PipelineError(
                f"feedback of {name!r} has no schema: name its columns, as in schema='id long, score double'"
            )


def _check_name(node: TopologyNode) -> None:
    fault = name_fault(node.name)
    if fault:
        article = "an" if node.kind is Kind.OPERATOR else "a"
        raise PipelineError(f"{node.name!r} cannot be the name of {article} {node.kind.value}: {fault}")


def _check_settings(node: TopologyNode) -> None:
    modes = get_args(Mode)
    if node.mode not in modes:
        raise PipelineError(f"{node} has the mode {node.mode!r}: use one of {', '.join(modes)}")
    rate = node.failure_rate
    if rate is not None and not 0 <= rate < float("inf"):  # NaN is in no range
        raise PipelineError(f"{node} has the failure_rate {rate}: use a finite number that is not negative")
    if node.epochs_per_batch < 1:
        raise PipelineError(f"{node} asks for {node.epochs_per_batch} epochs per batch: use 1 or more")


def _check_subject(node: TopologyNode) -> None:
    if node.subject is None:
        return
    if node.kind is Kind.SINK:
        raise PipelineError(f"{node} cannot be published: it writes no log; publish the operator that it reads")
    if not node.subject.strip():
        raise PipelineError(f"{node} is published under an empty subject: give the subject a name")


def _check_one_node_per_name(nodes: Sequence[TopologyNode]) -> None:
    seen: dict[str, TopologyNode] = {}
    for node in nodes:
        other = seen.setdefault(node.name, node)
        if other is not node:
            raise PipelineError(f"{other} and {node} have the same name: rename one of them")


def _check_one_log_per_subject(nodes: Sequence[TopologyNode]) -> None:
    seen: dict[str, TopologyNode] = {}
    for node in nodes:
        if node.subject is None:
            continue
        other = seen.setdefault(node.subject, node)
        if other is not node:
            raise PipelineError(
                f"{other} and {node} are both published as {node.subject!r}: a subject is one log, rename one"
            )


def _check_number_of_inputs(node: TopologyNode) -> None:
    if node.kind is Kind.SOURCE and node.inputs:
        raise PipelineError(f"{node} has the parameter {node.inputs[0]!r}: a source takes only the session, spark")
    if node.kind is Kind.OPERATOR and not node.inputs:
        raise PipelineError(
            f"{node} has no inputs: name a source or an operator as its parameter, or declare it as a source"
        )
    if node.kind is Kind.SINK and len(node.inputs) != 1:
        raise PipelineError(
            f"{node} has {len(node.inputs)} inputs: a sink reads exactly one source or operator; "
            "name it as the first parameter"
        )
    if len(set(node.inputs)) != len(node.inputs):
        raise PipelineError(f"{node} names one of its inputs twice: name each input once")


def _check_input(node: TopologyNode, name: str, known: Mapping[str, TopologyNode]) -> None:
    if name not in known:
        hint = suggestion(name, (other.name for other in known.values() if other.kind is not Kind.SINK))
        raise PipelineError(
            f"{node} has a parameter {name!r}, but there is no source or operator of that name; {hint}"
        )
    if known[name].kind is Kind.SINK:
        raise PipelineError(
            f"{node} reads {name}, but that is a sink and gives nothing on: read what the sink reads instead"
        )
