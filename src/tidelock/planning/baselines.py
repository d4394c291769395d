"""The two plans that need no search: as few anchors as possible, and as many (FastRecover 3.1). Pure."""

from __future__ import annotations

from tidelock.errors import PlanError
from tidelock.planning.costs import Configuration
from tidelock.planning.model import Model
from tidelock.planning.sums import share, sums


def one_segment(model: Model, budget: float) -> Configuration | None:
    """1Segment: only those are anchors who have to be, with their best frequencies; None if that is infeasible.

    Raises:
        PlanError: Δ is not linear.
    """
    return _with_anchors(model, budget, model.forced)


def each_segment(model: Model, budget: float) -> Configuration | None:
    """NSegments: all are anchors who may be, with their best frequencies; None if that is infeasible.

    Raises:
        PlanError: Δ is not linear.
    """
    return _with_anchors(model, budget, model.forced | frozenset(model.free))


def _with_anchors(model: Model, budget: float, anchors: frozenset[int]) -> Configuration | None:
    if model.storage is not None:
        raise PlanError("storage: the best frequencies are only known for a linear Δ: give storage_cost instead")
    shared = share(
        [sums(model, segment, anchors) for segment in model.segments(anchors)],
        budget,
        max_frequency=model.max_frequency,
        head_frequency=model.head_frequency,
    )
    return None if shared is None else Configuration(anchors, shared.frequencies)
