"""How many epochs a segment's batch takes in, and where it must be one. Pure.

Several epochs in a batch save the fixed cost of batches, and change nothing for sums and counts. They would change
what is late (Spark moves the watermark between batches) and what a user's function with state sees, so everything
that leads to such an operator works epoch by epoch. So does a loop, whose next epoch needs the one before, and
what leads to it; and so does a head, whose batches are the epochs.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidelock.topology.rules import Question
from tidelock.topology.segments import Segment


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
            if question.trait(name).function_state:
                return f"the function of {name} is called batch by batch"
        if other.name in upstream[other.name]:
            return f"{other.name} is part of a loop, which turns once per epoch"
    return None
