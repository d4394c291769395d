"""How many epochs a segment's batch takes in, and where it must be one. Pure.

Several epochs in a batch save the fixed cost of batches, and change nothing for sums and counts. They would change
what is late (Spark moves the watermark between batches) and what a user's function with state sees, so everything
that leads to such an operator works epoch by epoch. So does a loop, whose next epoch needs the one before, and
what leads to it; and so does a head, whose batches are the epochs.

An aligned job has not asked for several epochs in a batch: whether it gets them depends on how slow it was. So
nothing may depend on that (`why_one_by_one`): neither what is late, nor what state lets out, which is one row per
key and batch even for sums, nor the epochs of what the job itself publishes, nor what a sink stores under an
epoch.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from tidelock.topology.graph import TopologyNode
from tidelock.topology.names import listed
from tidelock.topology.plan import Traits
from tidelock.topology.rules import Question
from tidelock.topology.segments import Cutting, Segment


def epochs_per_batch(question: Question, segments: tuple[Segment, ...]) -> tuple[dict[str, int], list[str]]:
    """The number of epochs of each segment by name, and a note for each that had asked for more than it gets."""
    upstream = {segment.name: _upstream(segment, segments) for segment in segments}
    sizes: dict[str, int] = {}
    notes = []
    for segment in segments:
        asked = _asked(question, segment)
        why = _why_one(question, segment, segments, upstream) if asked > 1 else None
        sizes[segment.name] = 1 if why else asked
        if why:
            notes.append(f"segment {segment.name} takes 1 epoch per batch instead of {asked}: {why}")
    return sizes, notes


def why_one_by_one(
    cutting: Cutting,
    traits: Mapping[str, Traits],
    reading: Collection[str],
    timed: Collection[str],
    storing: Collection[str],
) -> str | None:
    """Why an aligned job must take the epochs of its subjects one by one; None if several at once change nothing.

    Args:
        cutting: the job's segments.
        traits: what its operators do.
        reading: the segments that read the subjects.
        timed: those of the subjects that come with event time.
        storing: the sinks that get the rows of a batch together, and with their epoch.
    """
    if timed:
        return f"event time comes with {listed(timed)}, and what is late is judged batch by batch"
    for segment in cutting.segments:
        before = _upstream(segment, cutting.segments)
        if segment.name not in reading and not before & set(reading):
            continue
        if segment.name in before:
            return f"{segment.name} is part of a loop, which turns once per epoch"
        for name in segment.operators:
            why = _depends_on_batches(cutting.topology.node(name), traits.get(name, Traits()))
            if why:
                return why
            if name in storing:
                return f"the sink {name} gets the rows of each epoch for themselves"
    return None


def _depends_on_batches(node: TopologyNode, trait: Traits) -> str | None:
    if trait.watermark or trait.event_time:
        return f"what is late for {node.name} is judged batch by batch"
    if trait.stateful:
        return f"{node.name} keeps state, and what it gives depends on the batches"
    if trait.grouped:
        return f"a function of {node.name} sees the rows of a batch together"
    if node.subject is not None:
        return f"{node.name} is published as {node.subject}, and its followers may depend on its epochs"
    return None


def _asked(question: Question, segment: Segment) -> int:
    own = question.topology.node(segment.sink).epochs_per_batch if segment.sink else 1
    return question.plan.epochs_per_batch.get(segment.name, own)


def _upstream(segment: Segment, segments: tuple[Segment, ...]) -> frozenset[str]:
    """The segments that lead to this one over any edges: itself only when it is in a loop."""
    by_name = {one.name: one for one in segments}
    found: set[str] = set()
    ahead = [read.log for read in segment.inputs]
    while ahead:
        one = ahead.pop()
        if one not in found:
            found.add(one)
            ahead.extend(read.log for read in by_name[one].inputs)
    return frozenset(found)


def _why_one(
    question: Question, segment: Segment, segments: tuple[Segment, ...], upstream: Mapping[str, frozenset[str]]
) -> str | None:
    if segment.is_head:
        return "it reads a source, and its batches are the epochs"
    for other in segments:
        if other is not segment and segment.name not in upstream[other.name]:
            continue
        for name in other.operators:
            if question.trait(name).event_time_state:
                return f"what is late for {name} is judged batch by batch"
            if question.trait(name).function_state or question.trait(name).grouped:
                return f"the function of {name} is called batch by batch"
        if other.name in upstream[other.name]:
            return f"{other.name} is part of a loop, which turns once per epoch"
    return None
