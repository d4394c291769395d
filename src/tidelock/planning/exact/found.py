"""What an exact search answers: a plan, and how far from the best it can be at most. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tidelock.planning.costs import Configuration
from tidelock.planning.exact.shape import ModelLists
from tidelock.planning.model import Model
from tidelock.planning.sums import Shared, Sums, share, sums

TIE = 1e-12
"""Values that differ by less than this, relatively, are the same value."""


@dataclass(frozen=True)
class ProvedPlan:
    """A plan with a proof.

    Attributes:
        configuration: Anchors and frequencies.
        bound: No plan within the budget has a smaller expected recovery time.
        gap: How much smaller it could be at most, relative to that of the plan; 0 if the plan is optimal.
    """

    configuration: Configuration
    bound: float
    gap: float


def settle(model: Model, anchors: Iterable[int], budget: float) -> tuple[list[Sums], Shared] | None:
    """The segments of an anchor set and their best frequencies; None if it does not fit the budget."""
    chosen = frozenset(anchors)
    parts = [sums(model, segment, chosen) for segment in model.segments(chosen)]
    shared = share(parts, budget, max_frequency=model.max_frequency, head_frequency=model.head_frequency)
    return None if shared is None else (parts, shared)


def found(shape: ModelLists, places: Iterable[int], budget: float, bound: float) -> ProvedPlan | None:
    """The plan whose segments begin at ``places``.

    A search has proved ``bound``; it is infinite if the plan is optimal.
    """
    chosen = shape.anchors(places)
    settled = settle(shape.model, chosen, budget)
    if settled is None:
        return None
    _, shared = settled
    recovery = shared.recovery
    bound = recovery if recovery - bound <= TIE * recovery else float(bound)
    gap = (recovery - bound) / recovery if bound < recovery else 0.0
    return ProvedPlan(Configuration(chosen, shared.frequencies), bound, gap)
