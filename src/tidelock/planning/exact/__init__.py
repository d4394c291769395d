"""The plan with the least expected recovery time within a budget, proved. Pure.

For a linear Δ, and over all anchor sets and all frequencies. Chains have a method of their own (`chains`),
everything else is searched (`branching`); both answer with a bound, so that a search that was cut short says
what it may have missed.
"""

from __future__ import annotations

from dataclasses import replace

from tidelock.planning.exact.branching import search
from tidelock.planning.exact.chains import chain
from tidelock.planning.exact.found import ProvedPlan
from tidelock.planning.exact.least import least_overhead
from tidelock.planning.exact.shape import ModelLists
from tidelock.planning.model import Model

__all__ = ["ProvedPlan", "exact", "least_overhead"]


def exact(model: Model, budget: float, *, effort: int = 200_000) -> ProvedPlan | None:
    """The best plan within ``budget``; None if there is none.

    Args:
        model: The topology; Δ has to be linear.
        budget: How much may be spent on storing per unit of time.
        effort: About how many partial plans may be looked at. When that is used up, the answer is the best plan
            found and has a gap.

    Raises:
        PlanError: Δ is not linear.
    """
    if model.is_chain:
        # If the best without a bound on the frequencies keeps to the bound, it is the best.
        found = chain(ModelLists(replace(model, max_frequency=None)), budget, effort)
        if found is None or _keeps_bound(model, found):
            return found
    return search(ModelLists(model), budget, effort)


def _keeps_bound(model: Model, found: ProvedPlan) -> bool:
    if model.max_frequency is None:
        return True
    given = model.heads if model.head_frequency is not None else frozenset()
    chosen = zip(model.segments(found.configuration.anchors), found.configuration.frequencies, strict=True)
    return found.gap == 0 and all(
        frequency <= model.max_frequency for segment, frequency in chosen if given.isdisjoint(segment)
    )
