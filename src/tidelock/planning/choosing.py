"""One question, several methods: the plan with the least expected recovery time within a budget. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from tidelock.errors import PlanError
from tidelock.planning.baselines import each_segment, one_segment
from tidelock.planning.costs import Configuration, Costs, costs
from tidelock.planning.exact import ProvedPlan, exact, least_overhead
from tidelock.planning.model import Model
from tidelock.planning.thesis import chain_dp, chain_dp_refined, tree_dp

EXACT = "exact"
_PARTS = (0.85, 0.7, 0.55, 0.42, 0.3, 0.2, 0.12, 0.07, 0.04, 0.02, 0.01)
_NEVER = 1e-9
"""Epochs that come so rarely that their commits cost nothing."""
_HALVINGS = 60
_Method = Callable[[Model, float, "PlanSettings"], Configuration | ProvedPlan | None]


@dataclass(frozen=True)
class PlanSettings:
    """The parameters of the thesis's methods (table 4.1), and how long an exact search may take.

    Attributes:
        steps: Z, into how many steps the budget is cut.
        frequencies: F, into how many steps the frequency is cut.
        max_frequency: F_max, the largest frequency of the tree's method.
        effort: How many partial plans the exact search may look at before it answers with a gap.
    """

    steps: int = 60
    frequencies: int = 100
    max_frequency: float = 200.0
    effort: int = 200_000


@dataclass(frozen=True)
class PlanChoice:
    """A plan and what it costs.

    Attributes:
        method: How it was found.
        configuration: Anchors and frequencies.
        costs: What the equations say of it.
        gap: How much better, relative to it, another plan could be at most; None if the method does not know.
    """

    method: str
    configuration: Configuration
    costs: Costs
    gap: float | None


METHODS: Mapping[str, _Method] = {
    EXACT: lambda model, budget, settings: exact(model, budget, effort=settings.effort),
    "chain-dp": lambda model, budget, settings: chain_dp(model, budget, settings.steps),
    "chain-dp-refined": lambda model, budget, settings: chain_dp_refined(model, budget, settings.steps),
    "tree-dp": lambda model, budget, settings: tree_dp(
        model, budget, settings.steps, settings.frequencies, settings.max_frequency
    ),
    "one-segment": lambda model, budget, settings: one_segment(model, budget),
    "each-segment": lambda model, budget, settings: each_segment(model, budget),
}
"""Every method by its name: exact, those of FastRecover, and its two baselines."""


class Infeasible(PlanError):
    """No plan fits the budget.

    Attributes:
        least: Every budget above this one has a plan; None if it is the method that finds none.
        operator: Who costs most of it.
    """

    def __init__(self, message: str, least: float | None, operator: str | None) -> None:
        super().__init__(message)
        self.least = least
        self.operator = operator


def choose(
    model: Model, budget: float, method: str = EXACT, settings: PlanSettings | None = None, *, unit: str = ""
) -> PlanChoice:
    """The plan that ``method`` finds; ``unit`` is that of the model's times, for messages, if it is known.

    Raises:
        Infeasible: there is no plan within the budget, or the method finds none.
        PlanError: the method does not fit the topology.
    """
    check_budget(budget)
    given = settings or PlanSettings()
    choices = [
        choice
        for spent in spending(model, budget)
        if (choice := _found(model, METHODS[method](model, spent, given), method)) is not None
    ]
    if not choices:
        raise _infeasible(model, budget, method, unit)
    if model.capacity is None:
        return choices[0]
    best = min(choices, key=lambda choice: choice.costs.recovery)
    return replace(best, gap=None)


def spending(model: Model, budget: float) -> list[float]:
    """What a plan may spend, baseline included, the most first.

    More than the budget it must not. Where a recovery shares the machine, less may be better: a few steps down to
    the least are tried.
    """
    most = budget + model.baseline
    if model.capacity is None:
        return [most]
    least, _ = least_overhead(model)
    return [most] + [least + part * (most - least) for part in _PARTS if most > least]


def _found(model: Model, found: Configuration | ProvedPlan | None, method: str) -> PlanChoice | None:
    if found is None:
        return None
    if isinstance(found, ProvedPlan):
        return PlanChoice(method, found.configuration, costs(model, found.configuration), found.gap)
    return PlanChoice(method, found, costs(model, found), None)


def check_budget(budget: float) -> None:
    """See that a budget is one.

    Raises:
        PlanError: it is not a finite number of at least 0.
    """
    if not math.isfinite(budget) or budget < 0:
        raise PlanError(f"the budget is a finite number of at least 0, such as 0.1, not {budget}")


def least_budget(model: Model) -> tuple[float, str]:
    """What is spent under every plan, however rarely it commits, and who costs most of it.

    Sources and forced anchors store their inputs; where the frequency of heads is given, their commits come on
    top.
    """
    least, anchors = least_overhead(model)
    spent = {
        place: model.stores[place] if place in anchors else model.keeps[place] for place in model.index.values()
    }
    if model.head_frequency is not None:
        for segment in model.segments(anchors):
            if not model.heads.isdisjoint(segment):
                for place in segment:
                    spent[place] += model.commits[place] * model.head_frequency
                spent[segment[0]] += model.segment_cost * model.head_frequency
    most = max(spent, key=lambda place: (spent[place], -place))
    return least - model.baseline, model.operators[most].name


def fitting_interval(model: Model, budget: float) -> float | None:
    """The shortest interval between epochs, rounded up, at which a plan fits the budget.

    None if heads have no frequency that is given, or if no interval would do.

    What is spent falls with the frequency of heads, and so does what a plain query would spend.
    """
    frequency = model.head_frequency
    if not frequency or least_budget(_slower(model, _NEVER))[0] >= budget:
        return None
    fits, fails = _NEVER, 1.0
    for _ in range(_HALVINGS):
        middle = math.sqrt(fits * fails)
        if least_budget(_slower(model, middle))[0] < budget:
            fits = middle
        else:
            fails = middle
    interval = 1 / (frequency * fits)
    step = 10.0 ** (math.floor(math.log10(interval)) - 1)
    return math.ceil(interval / step) * step


def _slower(model: Model, share: float) -> Model:
    """The model with epochs that come less often, by this share."""
    assert model.head_frequency is not None
    return replace(model, head_frequency=model.head_frequency * share, baseline=model.baseline * share)


def _infeasible(model: Model, budget: float, method: str, unit: str) -> Infeasible:
    least, operator = least_budget(model)
    if budget > least and method == EXACT:
        return Infeasible(
            f"no plan fits a budget of {budget:g}: max_frequency or head_frequency is 0, and who never commits "
            "cannot replay",
            None,
            None,
        )
    if budget > least:
        return Infeasible(
            f"{method} finds no plan within a budget of {budget:g}, although one above {least:g} can have one: "
            "use the method exact, or a finer division (--steps, a smaller --max-frequency)",
            None,
            None,
        )
    return Infeasible(
        f"no plan fits a budget of {budget:g}: it has to be above {least:g}, most of which {operator} costs"
        f"{_about_interval(model, budget, unit)}",
        least,
        operator,
    )


def _about_interval(model: Model, budget: float, unit: str) -> str:
    """What to say if no plan fits because epochs come too often."""
    interval = fitting_interval(model, budget)
    if interval is None or not model.head_frequency:
        return ""
    said = f" {unit}" if unit else ""
    return (
        f". The interval between epochs is the problem: one comes every {1 / model.head_frequency:.3g}{said}, and "
        f"a segment needs {model.segment_cost:.3g}{said} for each of its commits. With an epoch every {interval:g}"
        f"{said} or less often there is a plan"
    )
