"""When a plan no longer fits: attributes that have changed since it was made. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tidelock.planning.model import Model
from tidelock.topology import Cutting, Segment

THRESHOLD = 1.5
"""By what factor an attribute has to differ before it is told."""
_LEAST_STATE = 1e6
"""So many bytes of state make no difference."""


@dataclass(frozen=True)
class Measured:
    """What a running segment does.

    Attributes:
        rows_per_second: The rows that come in.
        state_bytes: The size of its state.
    """

    rows_per_second: float
    state_bytes: float


@dataclass(frozen=True)
class Drifted:
    """An attribute of a segment that has changed."""

    segment: str
    attribute: str
    planned: float
    measured: float

    def __str__(self) -> str:
        return f"segment {self.segment}: {self.measured:.3g} {self.attribute}, planned for {self.planned:.3g}"


def drift(model: Model, cutting: Cutting, measured: Mapping[str, Measured]) -> tuple[list[Drifted], Model]:
    """What has changed by more than the threshold, and the model as it is now.

    A segment that is not in ``measured`` is taken to be as it was planned.
    """
    found: list[Drifted] = []
    for segment in cutting.segments:
        seen = measured.get(segment.name)
        if seen is None:
            continue
        planned = _incoming(model, segment)
        if _differs(planned, seen.rows_per_second):
            found.append(Drifted(segment.name, "rows per second", planned, seen.rows_per_second))
            model = _with_rate(model, segment, seen.rows_per_second / planned)
        state = sum(model.operators[model.index[name]].state_size for name in segment.operators)
        if _differs(max(state, _LEAST_STATE), max(seen.state_bytes, _LEAST_STATE)):
            found.append(Drifted(segment.name, "bytes of state", state, seen.state_bytes))
            model = _with_state(model, segment, state, seen.state_bytes)
    return found, model


def _differs(planned: float, measured: float) -> bool:
    if planned <= 0 or measured <= 0:
        return False  # nothing comes: that says nothing about what will
    return not 1 / THRESHOLD <= measured / planned <= THRESHOLD


def _incoming(model: Model, segment: Segment) -> float:
    """The rows that a segment is planned to read in a second."""
    sources = sum(model.rates[model.index[name]] for name in segment.sources)
    logs = [model.index[read.log] for read in segment.inputs]
    return sources + sum(model.rates[place] * model.operators[place].selectivity for place in logs)


def _with_rate(model: Model, segment: Segment, factor: float) -> Model:
    """The model when so much more comes in: more of the sources, or a larger selectivity before the segment."""
    operators = list(model.operators)
    for place in [model.index[name] for name in segment.sources]:
        operators[place] = replace(operators[place], input_rate=model.rates[place] * factor)
    for place in [model.index[read.log] for read in segment.inputs]:
        operators[place] = replace(operators[place], selectivity=operators[place].selectivity * factor)
    return replace(model, operators=tuple(operators))


def _with_state(model: Model, segment: Segment, planned: float, measured: float) -> Model:
    """The model when the state has that size; where there was none, the last operator has it."""
    operators = list(model.operators)
    for name in segment.operators:
        place = model.index[name]
        one = operators[place]
        if planned:
            factor = measured / planned
            commit = None if one.commit_cost is None else one.commit_cost * factor
            operators[place] = replace(one, state_size=one.state_size * factor, commit_cost=commit)
        elif name == segment.result:
            operators[place] = replace(one, state_size=measured, commit_cost=one.commit_cost or None)
    return replace(model, operators=tuple(operators))
