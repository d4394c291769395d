"""One question to several methods: who answers, what is refused, and what the least budget promises."""

from __future__ import annotations

import dataclasses
import math

import pytest
from tests.unit.planning.models import CHAIN, DIAMOND, TREE, anchor_sets, drawn, model, operator, with_anchors

from tidelock.cli.arguments import planning as planning_commands
from tidelock.errors import PlanError
from tidelock.planning.baselines import each_segment, one_segment
from tidelock.planning.choosing import (
    METHODS,
    Infeasible,
    PlanChoice,
    PlanSettings,
    choose,
    fitting_interval,
    least_budget,
)
from tidelock.planning.costs import Configuration, costs
from tidelock.planning.exact import exact
from tidelock.planning.model import Model
from tidelock.planning.thesis import chain_dp, chain_dp_refined, tree_dp

BUDGET = 4.0
SETTINGS = PlanSettings(steps=12, frequencies=9, max_frequency=30.0)


def refusal(given: Model, budget: float, method: str = "exact") -> Infeasible:
    with pytest.raises(Infeasible) as refused:
        choose(given, budget, method)
    return refused.value


def exactly(given: Model, budget: float) -> Configuration:
    found = exact(given, budget)
    assert found is not None
    return found.configuration


# -- methods


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("exact", exactly(CHAIN, BUDGET)),
        ("chain-dp", chain_dp(CHAIN, BUDGET, 12)),
        ("chain-dp-refined", chain_dp_refined(CHAIN, BUDGET, 12)),
        ("tree-dp", tree_dp(CHAIN, BUDGET, 12, 9, 30.0)),
        ("one-segment", one_segment(CHAIN, BUDGET)),
        ("each-segment", each_segment(CHAIN, BUDGET)),
    ],
)
def test_every_method_is_asked_with_its_own_settings(method: str, expected: Configuration) -> None:
    choice = choose(CHAIN, BUDGET, method, SETTINGS)
    assert choice == PlanChoice(method, expected, costs(CHAIN, expected), 0.0 if method == "exact" else None)
    assert choice.costs.overhead <= BUDGET * (1 + 1e-9)
    assert math.isfinite(choice.costs.recovery)


def test_the_methods_of_the_command_line_are_those_that_there_are() -> None:
    assert tuple(METHODS) == planning_commands.METHODS
    assert set(METHODS) == {"exact", "chain-dp", "chain-dp-refined", "tree-dp", "one-segment", "each-segment"}


def test_without_a_method_the_answer_is_exact_and_without_settings_it_has_defaults() -> None:
    assert choose(CHAIN, BUDGET) == choose(CHAIN, BUDGET, "exact", PlanSettings())
    assert choose(CHAIN, BUDGET, "chain-dp") == choose(CHAIN, BUDGET, "chain-dp", PlanSettings(steps=60))


@pytest.mark.parametrize("method", METHODS)
def test_no_method_beats_exact_or_the_budget(method: str) -> None:
    for seed in range(4):
        given = drawn("chain", seed)
        budget = least_budget(given)[0] + 1.0
        best = choose(given, budget)
        try:
            choice = choose(given, budget, method, SETTINGS)
        except Infeasible as error:
            assert (method != "exact", error.least) == (True, None)
            continue
        assert choice.costs.recovery >= best.costs.recovery * (1 - 1e-9)
        assert choice.costs.overhead <= budget * (1 + 1e-9)


@pytest.mark.parametrize("method", ["chain-dp", "chain-dp-refined"])
def test_a_method_for_chains_refuses_a_tree_and_says_what_to_do(method: str) -> None:
    with pytest.raises(
        PlanError, match=r"^chain-dp.* plans chains, but b and c read a: use the method exact$"
    ) as no:
        choose(TREE, 50.0, method)
    assert not isinstance(no.value, Infeasible)


@pytest.mark.parametrize("method", ["chain-dp", "chain-dp-refined", "tree-dp"])
def test_the_methods_of_the_thesis_refuse_a_join_and_say_what_to_do(method: str) -> None:
    with pytest.raises(PlanError, match=r"but d merges b and c: use the method exact$") as no:
        choose(DIAMOND, 50.0, method)
    assert not isinstance(no.value, Infeasible)


# -- budgets


@pytest.mark.parametrize("budget", [math.nan, math.inf, -math.inf, -1.0, -1e-12])
@pytest.mark.parametrize("method", METHODS)
def test_what_is_no_budget(budget: float, method: str) -> None:
    with pytest.raises(PlanError, match=r"^the budget is a finite number of at least 0, such as 0\.1, not ") as no:
        choose(CHAIN, budget, method)
    assert not isinstance(no.value, Infeasible)


@pytest.mark.parametrize("method", METHODS)
def test_what_is_spent_anyway_is_added_to_the_budget_of_every_method(method: str) -> None:
    plain = choose(CHAIN, BUDGET, method, SETTINGS)
    given = dataclasses.replace(CHAIN, baseline=1.5)
    choice = choose(given, BUDGET - 1.5, method, SETTINGS)
    assert choice.configuration == plain.configuration
    assert choice.costs == plain.costs


def test_what_is_spent_anyway_is_taken_off_the_least_budget() -> None:
    least, name = least_budget(CHAIN)
    assert (least, name) == (pytest.approx(2.0), "a")
    assert least_budget(dataclasses.replace(CHAIN, baseline=1.5)) == (pytest.approx(0.5), "a")
    assert refusal(dataclasses.replace(CHAIN, baseline=1.5), 0.4).least == pytest.approx(0.5)


def test_a_plan_that_saves_what_is_spent_anyway_needs_no_budget() -> None:
    choice = choose(dataclasses.replace(CHAIN, baseline=2.5), 0.0)
    assert choice.costs.overhead == pytest.approx(2.5)


# -- infeasible budgets


def test_a_budget_that_is_too_small_is_told_with_the_least_and_who_costs_it() -> None:
    error = refusal(CHAIN, 1.0)
    assert (error.least, error.operator) == (pytest.approx(2.0), "a")
    assert str(error) == "no plan fits a budget of 1: it has to be above 2, most of which a costs"


@pytest.mark.parametrize("method", METHODS)
def test_every_method_tells_the_same_least_budget(method: str) -> None:
    error = refusal(CHAIN, 1.0, method)
    assert (error.least, error.operator) == (pytest.approx(2.0), "a")


def test_a_forced_anchor_counts_and_can_be_who_costs_most() -> None:
    given = model(operator("a", "", tuple_size=1.0), operator("b", "a", tuple_size=5.0, anchor=True))
    error = refusal(given, 5.0)
    assert (error.least, error.operator) == (pytest.approx(6.0), "b")


def test_of_equals_the_first_is_told() -> None:
    given = model(operator("a"), operator("b"), operator("c", "ab"))
    assert least_budget(given) == (pytest.approx(2.0), "a")


def test_a_method_that_finds_nothing_in_a_budget_that_is_enough_says_to_use_another() -> None:
    error = refusal(CHAIN, 2.9, "each-segment")
    assert (error.least, error.operator) == (None, None)
    assert "each-segment finds no plan within a budget of 2.9" in str(error)
    assert "use the method exact" in str(error)
    assert choose(CHAIN, 2.9).method == "exact"


def test_a_division_that_is_too_coarse_says_to_make_it_finer() -> None:
    with pytest.raises(Infeasible, match="a finer division") as refused:
        choose(CHAIN, 2.001, "tree-dp", PlanSettings(steps=1, frequencies=1, max_frequency=1000.0))
    assert refused.value.least is None


def variants(shape: str, seed: int) -> list[Model]:
    """A random topology as it is, with anchors that are forced or forbidden, and with frequencies for heads."""
    plain = drawn(shape, seed)
    places = plain.free
    some = {places[0]: True, places[-1]: False}
    return [
        plain,
        with_anchors(plain, some),
        dataclasses.replace(plain, head_frequency=0.5),
        dataclasses.replace(with_anchors(plain, some), head_frequency=3.0),
        dataclasses.replace(plain, head_frequency=1.0, scope="segment", baseline=0.01),
        dataclasses.replace(plain, max_frequency=0.7),
        dataclasses.replace(plain, head_frequency=2.0, segment_cost=0.0),
    ]


@pytest.mark.parametrize("shape", ["chain", "tree", "dag"])
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("variant", range(7))
def test_just_above_the_least_budget_there_is_a_plan_and_just_below_there_is_none(
    shape: str, seed: int, variant: int
) -> None:
    given = variants(shape, seed)[variant]
    least = refusal(given, 0.0).least
    assert least is not None
    choice = choose(given, least * (1 + 1e-6))
    assert choice.costs.overhead - given.baseline <= least * (1 + 2e-6)
    assert choice.gap == 0
    below = refusal(given, least * (1 - 1e-6))
    assert below.least == least
    assert below.operator in given.index


@pytest.mark.parametrize("shape", ["chain", "tree", "dag"])
@pytest.mark.parametrize("variant", range(7))
def test_the_least_budget_is_that_of_the_cheapest_of_all_anchor_sets(shape: str, variant: int) -> None:
    given = variants(shape, 7)[variant]
    rare = 1e-9

    def cheapest(anchors: frozenset[int]) -> float:
        heads = given.head_frequency
        frequencies = tuple(
            heads if heads is not None and not given.heads.isdisjoint(members) else rare
            for members in given.segments(anchors)
        )
        return costs(given, Configuration(anchors, frequencies)).overhead

    expected = min(map(cheapest, anchor_sets(given)))
    assert least_budget(given)[0] + given.baseline == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("frequencies", [{"head_frequency": 0.0}, {"max_frequency": 0.0}])
def test_nobody_is_told_to_use_exact_when_exact_has_found_nothing(frequencies: dict[str, float]) -> None:
    """Who never commits cannot replay, whatever the budget: that is the reason to be told."""
    error = refusal(dataclasses.replace(CHAIN, **frequencies), 50.0)
    assert "use the method exact" not in str(error)


@pytest.mark.parametrize("seed", range(6))
def test_an_interval_that_is_too_short_is_named_with_one_that_would_do(seed: int) -> None:
    slow = drawn("chain", seed, segment_cost=0.223, head_frequency=5.0, baseline=0.0)
    rest, _ = least_budget(dataclasses.replace(slow, head_frequency=1e-9))
    budget = rest + 0.3
    with pytest.raises(
        Infeasible, match=r"one comes every 0\.2 seconds, and a segment needs 0\.223 seconds"
    ) as told:
        choose(slow, budget, unit="seconds")
    interval = fitting_interval(slow, budget)
    assert interval is not None and f"every {interval:g} seconds or less often" in str(told.value)
    choose(dataclasses.replace(slow, head_frequency=1 / interval), budget)
    with pytest.raises(Infeasible):
        choose(dataclasses.replace(slow, head_frequency=1.2 / interval), budget)


def test_where_the_interval_is_not_the_problem_nothing_is_said_of_it() -> None:
    slow = dataclasses.replace(drawn("chain", 1), head_frequency=5.0)
    rest, _ = least_budget(dataclasses.replace(slow, head_frequency=1e-9))
    with pytest.raises(Infeasible) as told:
        choose(slow, rest * 0.9)
    assert fitting_interval(slow, rest * 0.9) is None
    assert "interval" not in str(told.value)
