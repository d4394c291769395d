"""Cut a topology into segments: what a plan asks for, within what Spark allows. Pure.

`plan` has what is asked for, `rules` which nodes have to be stored, `segments` what results, `batches` how many
epochs a batch takes. The rules are numbered in the project's design notes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tidelock.errors import PipelineError, PlanError
from tidelock.topology.epochs_per_batch import epochs_per_batch
from tidelock.topology.graph import Kind, Topology
from tidelock.topology.names import suggestion
from tidelock.topology.plan import Plan, Traits
from tidelock.topology.rules import Question, Reasons, grow, settled
from tidelock.topology.segments import Cut, Cutting, Input, Segment, assemble

__all__ = ["Cut", "Cutting", "Input", "Plan", "Segment", "Traits", "cut"]


def cut(topology: Topology, plan: Plan, traits: Mapping[str, Traits], *, dead_letters: bool = False) -> Cutting:
    """Cut ``topology`` by ``plan``, and where Spark needs a cut the plan does not have.

    The answer depends on nothing but the arguments. Cutting again with its document gives the same segments.

    Args:
        topology: What to cut.
        plan: Where cuts are wanted.
        traits: What the operators' code does; an operator that is missing keeps no state and has no watermark.
        dead_letters: Whether rows of a bad epoch may be set aside, for which every source must stand alone.

    Raises:
        PlanError: the plan does not fit the topology.
        PipelineError: a watermark is declared where the rows have one already.
    """
    question = Question(topology, plan, traits, dead_letters)
    _check_plan(question)
    _check_watermarks(question)
    anchors = _anchors(topology, plan)
    asked = settled(question, anchors)
    stored = grow(question, asked)
    segments = assemble(topology, stored)
    sizes, size_notes = epochs_per_batch(question, segments)
    return Cutting(
        topology,
        tuple(replace(segment, epochs_per_batch=sizes[segment.name]) for segment in segments),
        tuple(Cut(node.name, stored[node.name]) for node in topology.nodes if node.name in stored),
        (*_anchor_notes(question, stored), *_plan_notes(question, anchors, stored), *size_notes),
    )


def _anchors(topology: Topology, plan: Plan) -> Reasons:
    """The nodes that read all their inputs from logs, each with the reason why."""
    found: Reasons = {}
    for node in topology.nodes:
        if node.anchor:
            found[node.name] = f"{node.name} is declared as an anchor"
        elif node.kind is Kind.SINK and node.epochs_per_batch > 1:
            found[node.name] = f"{node.name} takes {node.epochs_per_batch} epochs at once, so it reads a log"
        elif node.name in plan.anchors and node.anchor is None:
            found[node.name] = f"{node.name} is an anchor of the plan"
    return found


# -- notes


def _anchor_notes(question: Question, stored: Reasons) -> list[str]:
    topology, plan = question.topology, question.plan
    notes = []
    for node in topology.nodes:
        if node.anchor is not False:
            continue
        if node.name in plan.anchors:
            notes.append(f"{node.name} is no anchor although the plan has it as one: it is declared anchor=False")
        notes += [
            f"{node.name} is declared anchor=False and reads {one} from a log all the same: {stored[one]}"
            for one in topology.forward_inputs(node.name)
            if one in stored
        ]
    return notes


def _plan_notes(question: Question, anchors: Reasons, stored: Reasons) -> list[str]:
    """Where the plan got something else; a plan that asks for nothing is never overridden."""
    plan = question.plan
    notes = [f"{name} is stored and not copied: {stored[name]}" for name in sorted(plan.copies) if name in stored]
    if plan.anchors or plan.logs:
        notes += [
            f"the plan has no cut behind {name}, but there is one: {why}"
            for name, why in stored.items()
            if question.topology.forward_consumers(name)
            and name not in plan.logs
            and not any(one in anchors for one in question.topology.consumers(name))
        ]
    outputs = {*stored, *(node.name for node in question.topology.nodes if node.kind is Kind.SINK)}
    return notes + [
        f"{name} is not the end of a segment, so its {size} epochs per batch are left aside"
        for name, size in sorted(plan.epochs_per_batch.items())
        if name not in outputs and size > 1
    ]


# -- checks


def _check_plan(question: Question) -> None:
    topology, plan = question.topology, question.plan
    known = [node.name for node in topology.nodes]
    for field, names in (
        ("anchors", plan.anchors),
        ("copies", plan.copies),
        ("logs", plan.logs),
        ("epochs_per_batch", plan.epochs_per_batch),
    ):
        for name in sorted(names):
            if name not in known:
                hint = suggestion(name, known)
                raise PlanError(f"the plan's {field} name {name!r}, which pipeline {topology.name} lacks; {hint}")
    for name, size in plan.epochs_per_batch.items():
        if size < 1:
            raise PlanError(f"the plan gives segment {name} {size} epochs per batch: use 1 or more")
    for name in sorted(plan.logs):
        if topology.node(name).kind is Kind.SINK:
            raise PlanError(f"the plan cannot store {name}: it is a sink and has no output")
    for name in sorted(plan.copies):
        _check_copy(question, name)


def _check_copy(question: Question, name: str) -> None:
    node = question.topology.node(name)
    fault = None
    if node.kind is not Kind.OPERATOR:
        fault = f"it is a {node.kind.value}, and only operators can be copied"
    elif question.trait(name).stateful:
        fault = "it keeps state, which must exist once"
    elif node.subject is not None:
        fault = f"it is published as {node.subject}, so it has a log"
    elif name in question.topology.feedback:
        fault = "it is fed back, so it has a log"
    elif question.topology.back_inputs(name):
        fault = "it reads a loop's records, which belong to one segment"
    if fault:
        raise PlanError(f"the plan cannot copy {name}: {fault}; take it out of copies")


def _check_watermarks(question: Question) -> None:
    for node in question.topology.nodes:
        trait = question.trait(node.name)
        if not trait.watermark:
            continue
        for arriving in question.topology.forward_inputs(node.name):
            one = None if arriving in trait.apart else question.clock(arriving)
            if one is not None:
                raise PipelineError(
                    f"{node} declares a watermark, but {one} before it does so already: declare it once"
                )
