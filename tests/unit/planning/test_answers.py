"""A choice as plain values for programs, every method compared, and a true reason for every operator."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from typing import Any

import pytest
from tests.unit.planning.models import CHAIN, DIAMOND, TREE, drawn, model, operator, with_anchors

from tidelock.planning.answers import Compared, answer, compare, explain, refusal
from tidelock.planning.choosing import METHODS, Infeasible, PlanChoice, PlanSettings, choose, least_budget
from tidelock.planning.costs import Configuration, costs
from tidelock.planning.model import Model, Rates
from tidelock.planning.sums import share, sums

SETTINGS = PlanSettings(steps=15, frequencies=12, max_frequency=20.0)


def strict(document: dict[str, Any]) -> Any:
    """A document as another program reads it."""
    return json.loads(json.dumps(document, allow_nan=False))


def enough(given: Model) -> float:
    """A budget that leaves something to choose."""
    return least_budget(given)[0] + 1.0


# -- an answer


def test_the_answer_has_the_fields_of_the_contract() -> None:
    choice = choose(DIAMOND, 6.0)
    told = strict(answer(DIAMOND, 6.0, choice))
    assert set(told) == {
        "feasible",
        "method",
        "budget",
        "overhead",
        "expected_recovery_time",
        "gap",
        "segments",
    }
    assert (told["feasible"], told["method"], told["budget"], told["gap"]) == (True, "exact", 6.0, 0.0)
    assert told["overhead"] == choice.costs.overhead
    assert told["expected_recovery_time"] == choice.costs.recovery
    for segment in told["segments"]:
        assert set(segment) == {"anchors", "operators", "frequency"}


@pytest.mark.parametrize("shape", ["chain", "tree", "dag"])
@pytest.mark.parametrize("seed", range(5))
def test_the_segments_of_an_answer_are_the_plan_and_give_its_costs_again(shape: str, seed: int) -> None:
    given = drawn(shape, seed, n=7)
    told = strict(answer(given, enough(given), choose(given, enough(given))))
    names = [name for segment in told["segments"] for name in segment["operators"]]
    assert sorted(names) == sorted(given.index)
    anchors = frozenset(given.index[name] for segment in told["segments"] for name in segment["anchors"])
    assert anchors >= given.forced
    members = [tuple(given.index[name] for name in segment["operators"]) for segment in told["segments"]]
    assert members == list(given.segments(anchors))
    frequencies = tuple(segment["frequency"] for segment in told["segments"])
    again = costs(given, Configuration(anchors, frequencies))
    assert again.overhead == pytest.approx(told["overhead"])
    assert again.recovery == pytest.approx(told["expected_recovery_time"])
    assert told["overhead"] <= told["budget"] * (1 + 1e-9)


def test_what_is_spent_anyway_is_no_overhead() -> None:
    given = dataclasses.replace(CHAIN, baseline=1.5)
    told = answer(given, 2.5, choose(given, 2.5))
    assert told["budget"] == 2.5
    assert told["overhead"] == pytest.approx(choose(CHAIN, 4.0).costs.overhead - 1.5)


def test_a_commit_that_costs_nothing_has_no_frequency_and_the_answer_is_still_json() -> None:
    given = model(operator("a", state_size=0.0), operator("b", "a", state_size=0.0))
    told = strict(answer(given, 3.0, choose(given, 3.0, "each-segment")))
    assert [segment["frequency"] for segment in told["segments"]] == [None, None]
    assert told["overhead"] == pytest.approx(2.0)
    assert told["expected_recovery_time"] == 0.0


def test_some_commits_that_cost_nothing_leave_the_other_frequencies_as_numbers() -> None:
    given = model(operator("a", state_size=0.0), operator("b", "a"))
    told = strict(answer(given, 3.0, choose(given, 3.0, "each-segment")))
    assert [segment["frequency"] for segment in told["segments"]] == [None, pytest.approx(100.0)]


def test_operators_with_frequencies_of_their_own_are_told_by_name() -> None:
    own = Configuration(frozenset({0, 1}), (4.0, 2.0), own={1: 3.0, 2: math.inf})
    given = model(operator("a"), operator("b", "a"), operator("c", "b", state_size=0.0))
    told = strict(answer(given, 9.0, PlanChoice("chain-dp-refined", own, costs(given, own), None)))
    assert told["gap"] is None
    first, second = told["segments"]
    assert (first["frequency"], first["frequencies"]) == (4.0, {"a": 4.0})
    assert (second["frequency"], second["frequencies"]) == (2.0, {"b": 3.0, "c": None})


@pytest.mark.parametrize("method", METHODS)
def test_the_answer_of_every_method_is_json(method: str) -> None:
    for given in (CHAIN, drawn("chain", 3), dataclasses.replace(CHAIN, baseline=0.1, max_frequency=2.0)):
        budget = enough(given) + 2.0
        told = strict(answer(given, budget, choose(given, budget, method, SETTINGS)))
        assert (told["feasible"], told["method"]) == (True, method)


def test_a_refusal_tells_the_least_budget_who_costs_it_and_why() -> None:
    with pytest.raises(Infeasible) as refused:
        choose(CHAIN, 1.0)
    told = strict(refusal(1.0, "exact", refused.value))
    assert told == {
        "feasible": False,
        "method": "exact",
        "budget": 1.0,
        "least_budget": pytest.approx(2.0),
        "operator": "a",
        "reason": str(refused.value),
    }


def test_a_refusal_of_a_method_alone_has_no_least_budget() -> None:
    with pytest.raises(Infeasible) as refused:
        choose(CHAIN, 2.9, "each-segment")
    told = strict(refusal(2.9, "each-segment", refused.value))
    assert (told["feasible"], told["least_budget"], told["operator"]) == (False, None, None)
    assert "use the method exact" in told["reason"]


# -- comparing

THESIS = ["chain-dp", "chain-dp-refined", "tree-dp"]
BASELINES = ["one-segment", "each-segment"]


@pytest.mark.parametrize(
    ("given", "fitting"),
    [
        (CHAIN, THESIS),
        (TREE, ["tree-dp"]),
        (DIAMOND, []),
        (model(operator("a"), operator("b"), operator("c", "ab")), []),
        (dataclasses.replace(CHAIN, scope="segment"), []),
        (dataclasses.replace(CHAIN, head_frequency=2.0), []),
        (model(operator("a"), operator("b", "a", cut=("a",))), []),
    ],
    ids=["chain", "tree", "diamond", "two sources", "whole segments", "given heads", "a cut"],
)
def test_every_method_that_fits_is_asked_and_no_other(given: Model, fitting: list[str]) -> None:
    found = compare(given, 50.0, SETTINGS)
    assert [one.method for one in found] == ["exact", *fitting, *BASELINES]


EXTRAS: dict[str, dict[str, Any]] = {
    "plain": {},
    "bounded": {"max_frequency": 0.8},
    "baseline": {"baseline": 0.01},
    "slopes": {"rates_of_storage": Rates(log_read=2e-6, state_load=1e-5)},
}


@pytest.mark.parametrize("shape", ["chain", "tree", "dag"])
@pytest.mark.parametrize("extra", EXTRAS)
def test_exact_is_the_best_of_them_and_all_keep_to_the_budget(shape: str, extra: str) -> None:
    for seed in range(3):
        given = drawn(shape, seed, **EXTRAS[extra])
        budget = enough(given)
        found = compare(given, budget, SETTINGS)
        best = found[0].choice
        assert best is not None
        assert best.gap == 0
        for one in found:
            if one.choice is None:
                assert "finds no plan" in one.why
                continue
            assert one.why == ""
            assert one.choice == choose(given, budget, one.method, SETTINGS)
            assert one.choice.costs.recovery >= best.costs.recovery * (1 - 1e-9)
            assert one.choice.costs.overhead <= (budget + given.baseline) * (1 + 1e-9)


def test_a_method_that_finds_nothing_says_why_and_the_others_answer() -> None:
    found = {one.method: one for one in compare(CHAIN, 2.9, SETTINGS)}
    assert found["exact"].choice is not None
    assert found["each-segment"] == Compared("each-segment", None, found["each-segment"].why)
    assert "each-segment finds no plan within a budget of 2.9" in found["each-segment"].why


def test_a_budget_that_fits_nothing_fits_no_method() -> None:
    found = compare(CHAIN, 1.0, SETTINGS)
    assert [one.choice for one in found] == [None] * len(METHODS)
    assert all("it has to be above 2" in one.why for one in found)


# -- explaining


def best(given: Model, anchors: frozenset[int], budget: float) -> float:
    """The least recovery time of an anchor set; infinite if it does not fit."""
    found = share(
        [sums(given, members, anchors) for members in given.segments(anchors)],
        budget + given.baseline,
        max_frequency=given.max_frequency,
        head_frequency=given.head_frequency,
    )
    return math.inf if found is None else costs(given, Configuration(anchors, found.frequencies)).recovery


SENTENCE = re.compile(
    r"storing its input costs (?P<cost>\S+), and (?P<way>with|without) it "
    r"(?:(?P<none>no frequencies fit the budget)|recovery would take (?P<then>[^ ,]+)"
    r"(?:, (?:(?P<same>the same)|(?P<change>[\d.]+)% (?P<more>more|less)))?)"
)


@pytest.mark.parametrize(
    "fields", [{}, {"head_frequency": 0.5}, {"scope": "segment"}, {"max_frequency": 0.7}, {"baseline": 0.02}]
)
@pytest.mark.parametrize("shape", ["chain", "tree", "dag"])
@pytest.mark.parametrize("room", [0.05, 1.0])
def test_the_other_way_round_recovery_takes_what_the_sentence_says(
    shape: str, fields: dict[str, Any], room: float
) -> None:
    given = drawn(shape, 5, **fields)
    budget = least_budget(given)[0] + room
    anchors = choose(given, budget).configuration.anchors
    now = best(given, anchors, budget)
    reasons = explain(given, budget, anchors)
    assert [reason.operator for reason in reasons] == [one.name for one in given.operators]
    for place in given.free:
        reason = reasons[place]
        told = SENTENCE.fullmatch(reason.why)
        assert told is not None, reason.why
        assert reason.anchor == (place in anchors)
        assert told["way"] == ("without" if reason.anchor else "with")
        assert float(told["cost"]) == pytest.approx(given.stores[place], rel=5e-3)
        then = best(given, anchors ^ {place}, budget)
        assert (told["none"] is not None) == math.isinf(then)
        if math.isfinite(then):
            assert float(told["then"]) == pytest.approx(then, rel=6e-3)
            change = (then - now) / now
            assert change >= -1e-9  # exact: nothing is better the other way round
            assert (told["same"] is not None) == (abs(change) < 5e-4)
            if not told["same"]:
                assert float(told["change"]) == pytest.approx(100 * change, abs=0.051)
                assert told["more"] == "more"


def test_a_plan_that_is_not_the_best_is_told_so() -> None:
    given = drawn("chain", 5)
    budget = enough(given) + 1.0
    reasons = explain(given, budget, given.forced)
    assert any(reason.why.endswith(" less") for reason in reasons)


def test_sources_and_operators_without_a_choice_are_told_as_such() -> None:
    given = with_anchors(DIAMOND, {1: True, 2: False})
    reasons = explain(given, 50.0, frozenset({0, 1, 3}))
    assert [(reason.operator, reason.anchor) for reason in reasons] == [
        ("a", True),
        ("b", True),
        ("c", False),
        ("d", True),
    ]
    assert [reason.why for reason in reasons[:3]] == [
        "a source: its input is where everything can be replayed from",
        "it has to be one",
        "it must not be one",
    ]
    assert SENTENCE.fullmatch(reasons[3].why)


def test_an_anchor_that_does_not_fit_the_budget_is_told_as_such() -> None:
    reasons = explain(CHAIN, 2.4, frozenset({0}))
    assert [reason.why for reason in reasons[1:]] == [
        "storing its input costs 0.5, and with it no frequencies fit the budget"
    ] * 2


def test_where_nothing_is_replayed_both_ways_are_the_same() -> None:
    given = dataclasses.replace(CHAIN, input_rate=0.0)
    reasons = explain(given, 1.0, frozenset({0, 1, 2}))
    assert all(SENTENCE.fullmatch(reason.why) for reason in reasons[1:])
