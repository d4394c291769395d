"""A choice as plain values, for programs; and the reasons for it, for people. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from tidelock.planning.choosing import METHODS, Infeasible, PlanChoice, PlanSettings, choose, spending
from tidelock.planning.costs import contention
from tidelock.planning.model import Model
from tidelock.planning.sums import share, sums


def answer(model: Model, budget: float, choice: PlanChoice) -> dict[str, Any]:
    """The answer to `tidelock plan --json`: a frequency without bound, where commits cost nothing, is null."""
    anchors, own = choice.configuration.anchors, choice.configuration.own or {}
    segments = []
    for members, frequency in zip(model.segments(anchors), choice.configuration.frequencies, strict=True):
        segment: dict[str, Any] = {
            "anchors": [model.operators[place].name for place in members if place in anchors],
            "operators": [model.operators[place].name for place in members],
            "frequency": _plain(frequency),
        }
        if own:
            segment["frequencies"] = {
                model.operators[place].name: _plain(own.get(place, frequency)) for place in members
            }
        segments.append(segment)
    return {
        "feasible": True,
        "method": choice.method,
        "budget": budget,
        "overhead": choice.costs.overhead - model.baseline,
        "expected_recovery_time": choice.costs.recovery,
        "gap": choice.gap,
        "segments": segments,
    }


def refusal(budget: float, method: str, error: Infeasible) -> dict[str, Any]:
    """The same when there is no plan."""
    return {
        "feasible": False,
        "method": method,
        "budget": budget,
        "least_budget": error.least,
        "operator": error.operator,
        "reason": str(error),
    }


def _plain(frequency: float) -> float | None:
    return frequency if math.isfinite(frequency) else None


# -- comparing


@dataclass(frozen=True)
class Compared:
    """What one method finds; no choice if it finds nothing, and then why."""

    method: str
    choice: PlanChoice | None
    why: str


def compare(model: Model, budget: float, settings: PlanSettings) -> list[Compared]:
    """The same question to every method that fits the topology."""
    found = []
    for method in METHODS:
        if _fits(model, method):
            try:
                found.append(Compared(method, choose(model, budget, method, settings), ""))
            except Infeasible as error:
                found.append(Compared(method, None, str(error)))
    return found


def _fits(model: Model, method: str) -> bool:
    cut = any(operator.cut for operator in model.operators)
    plain = model.scope == "path" and model.head_frequency is None and not cut
    return {"chain-dp": model.is_chain and plain, "tree-dp": model.is_tree and plain}.get(
        method.removesuffix("-refined"), True
    )


# -- explaining


@dataclass(frozen=True)
class Reason:
    """Why an operator is an anchor, or is none."""

    operator: str
    anchor: bool
    why: str


def explain(model: Model, budget: float, anchors: frozenset[int]) -> list[Reason]:
    """A sentence for every operator: what would be if it were the other way round."""
    now = _best(model, budget, anchors)
    return [
        Reason(one.name, place in anchors, _why(model, budget, anchors, place, now))
        for place, one in enumerate(model.operators)
    ]


def _why(model: Model, budget: float, anchors: frozenset[int], place: int, now: float) -> str:
    operator = model.operators[place]
    if not operator.inputs:
        return "a source: its input is where everything can be replayed from"
    if operator.anchor is True:
        return "it has to be one"
    if operator.anchor is False:
        return "it must not be one"
    then = _best(model, budget, anchors ^ {place})
    cost = f"storing its input costs {model.stores[place]:.3g}"
    if place in anchors:
        return f"{cost}, and without it {_told(then, now)}"
    return f"{cost}, and with it {_told(then, now)}"


def _told(then: float, now: float) -> str:
    if math.isinf(then):
        return "no frequencies fit the budget"
    if math.isinf(now) or now == 0:
        return f"recovery would take {then:.3g}"
    change = (then - now) / now
    if abs(change) < 5e-4:
        return f"recovery would take {then:.3g}, the same"
    return f"recovery would take {then:.3g}, {abs(change):.1%} {'more' if change > 0 else 'less'}"


def _best(model: Model, budget: float, anchors: frozenset[int]) -> float:
    segments = [sums(model, members, anchors) for members in model.segments(anchors)]
    shared = [
        share(segments, spent, max_frequency=model.max_frequency, head_frequency=model.head_frequency)
        for spent in spending(model, budget)
    ]
    return min(
        (contention(model, one.overhead) * one.recovery for one in shared if one is not None), default=math.inf
    )
