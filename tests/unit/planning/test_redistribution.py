"""FastRecover 3.3: what moves, what must hold afterwards, and that nothing is left to gain."""

import dataclasses
import itertools
import math

import pytest
from tests.unit.planning.models import TREE, drawn, model, operator, recovery, with_anchors

from tidelock.errors import PlanError
from tidelock.planning.costs import Configuration, costs
from tidelock.planning.model import Model
from tidelock.planning.thesis import chain_dp, chain_dp_refined
from tidelock.planning.thesis.redistribution import redistribute

BUDGET = 1.5


def long_chain(seed: int, n: int = 7, **fields: object) -> Model:
    """A chain of two subchains; in each, later operators have larger states and fail less often."""
    given = drawn("chain", seed, n, **({"segment_cost": 0.002} | fields))
    operators = tuple(
        dataclasses.replace(
            one,
            state_size=one.state_size * 3.0 ** (place % (n // 2)) / 10,
            failure_rate=one.failure_rate / 3.0 ** (place % (n // 2)),
        )
        for place, one in enumerate(given.operators)
    )
    fixed = {place: place == n // 2 for place in range(1, n)}
    return with_anchors(dataclasses.replace(given, operators=operators), fixed)


def frequencies(given: Model, found: Configuration) -> list[list[float]]:
    """Those of all operators, by segment."""
    return [
        [(found.own or {}).get(place, common) for place in segment]
        for segment, common in zip(given.segments(found.anchors), found.frequencies, strict=True)
    ]


def planned(given: Model, budget: float = BUDGET) -> tuple[Configuration, Configuration]:
    before, after = chain_dp(given, budget, 30), chain_dp_refined(given, budget, 30)
    assert before is not None
    assert after is not None
    return before, after


# -- by hand


def test_who_never_fails_gives_its_overhead_to_who_does() -> None:
    given = model(operator("a"), operator("b", "a", state_size=10.0, failure_rate=0.0, anchor=False))
    # One commit costs 0.01 and 0.1. In eighths, 0.08 + 0.0125 is still less than that; in sixteenths it is not.
    after = redistribute(given, Configuration(frozenset({0}), (1.0,)), 1.11)
    assert after == Configuration(frozenset({0}), (8.0,), {1: 0.125})
    assert costs(given, after).overhead == pytest.approx(1 + 0.08 + 0.0125)


def test_who_comes_before_has_to_be_doubled_too() -> None:
    given = model(
        operator("a", failure_rate=0.0, state_size=2.0, anchor=True),
        operator("b", "a", anchor=False),
        operator("c", "b", state_size=10.0, failure_rate=0.0, anchor=False),
    )
    # c gives 0.05, of which b needs 0.01 and a 0.02. The next time it gives 0.025 for 0.06, and 0.02 are left.
    after = redistribute(given, Configuration(frozenset({0}), (1.0,)), 1.13)
    assert after == Configuration(frozenset({0}), (2.0,), {2: 0.5})
    after = redistribute(given, Configuration(frozenset({0}), (1.0,)), 1.145)
    assert after == Configuration(frozenset({0}), (4.0,), {2: 0.25})


def test_an_earlier_operator_gives_nothing_to_a_later_one_of_its_subchain() -> None:
    given = model(
        operator("a", state_size=2.0),
        operator("b", "a", failure_rate=0.6, anchor=False),
        operator("c", "b", state_size=4.0, failure_rate=0.4, anchor=True),
    )
    # First c gives 0.02 to a, since a and b together need 0.03. Then b, doubled, would gain more than a, halved
    # again, would lose, and a's 0.02 would do: but b would commit more often than a.
    after = redistribute(given, Configuration(frozenset({0, 2}), (1.0, 1.0)), 2.07)
    assert after == Configuration(frozenset({0, 2}), (2.0, 0.5), {1: 1.0})


def test_overhead_moves_from_one_subchain_to_another() -> None:
    given = model(
        operator("a", state_size=10.0, failure_rate=0.0),
        operator("b", "a", state_size=1.0, failure_rate=1.0, anchor=True),
    )
    after = redistribute(given, Configuration(frozenset({0, 1}), (1.0, 1.0)), 2.11)
    assert after == Configuration(frozenset({0, 1}), (0.125, 8.0))


def test_the_cost_of_a_commit_is_paid_as_often_as_the_head_commits() -> None:
    given = model(
        operator("a"), operator("b", "a", state_size=10.0, failure_rate=0.0, anchor=False), segment_cost=0.03
    )
    # Now a doubled costs 0.04, and twice doubled 0.08 more: b gives 0.05, 0.025 and 0.0125.
    after = redistribute(given, Configuration(frozenset({0}), (1.0,)), 1.14)
    assert after == Configuration(frozenset({0}), (2.0,), {1: 0.5})
    assert costs(given, after).overhead == pytest.approx(1 + 0.02 + 0.05 + 0.06)


# -- what must hold


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("fields", [{}, {"segment_cost": 0.0}, {"storage": lambda size: 2e-5 * size**0.9}])
def test_it_keeps_the_anchors_the_budget_and_the_restriction(seed: int, fields: dict[str, object]) -> None:
    given = long_chain(seed, **fields)
    before, after = planned(given)
    assert after.anchors == before.anchors
    assert recovery(given, after, BUDGET) <= recovery(given, before, BUDGET)
    for segment in frequencies(given, after):
        for one, later in itertools.pairwise(segment):
            assert math.log2(one / later) == round(math.log2(one / later)) >= 0


def test_it_often_helps() -> None:
    gains = []
    for seed in range(8):
        given = long_chain(seed)
        before, after = planned(given)
        gains.append(1 - recovery(given, after, BUDGET) / recovery(given, before, BUDGET))
    assert sum(gain > 0.001 for gain in gains) >= 4


def moved(found: list[list[float]], giver: int, taker: int) -> list[list[float]]:
    """Halve and double, and then repair what breaks the restriction, as the thesis tells it."""
    flat = [(at, frequency) for at, segment in enumerate(found) for frequency in segment]
    values = [frequency for _, frequency in flat]
    values[giver] /= 2
    for place in range(giver + 1, len(flat)):
        if flat[place][0] == flat[giver][0] and values[place] > values[place - 1]:
            values[place] /= 2
    values[taker] *= 2
    for place in range(taker - 1, -1, -1):
        if flat[place][0] == flat[taker][0] and values[place] < values[place + 1]:
            values[place] *= 2
    parts = iter(values)
    return [[next(parts) for _ in segment] for segment in found]


def configuration(given: Model, anchors: frozenset[int], found: list[list[float]]) -> Configuration:
    own = {
        place: frequency
        for segment, values in zip(given.segments(anchors), found, strict=True)
        for place, frequency in zip(segment, values, strict=True)
    }
    return Configuration(anchors, tuple(values[0] for values in found), own)


@pytest.mark.parametrize("seed", range(8))
def test_no_move_that_is_left_helps(seed: int) -> None:
    given = long_chain(seed)
    _, after = planned(given)
    at = frequencies(given, after)
    heads = [segment[0] for segment in given.segments(after.anchors) for _ in segment]
    best = recovery(given, after, BUDGET)
    for giver, taker in itertools.permutations(range(len(heads)), 2):
        if heads[giver] == heads[taker] and giver < taker:
            continue
        result = costs(given, configuration(given, after.anchors, moved(at, giver, taker)))
        assert result.overhead > BUDGET * (1 - 1e-9) or result.recovery >= best * (1 - 1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_nobody_is_doubled_beyond_the_models_bound(seed: int) -> None:
    free = long_chain(seed)
    _, unbound = planned(free)
    bound = max(max(segment) for segment in frequencies(free, unbound)) * 0.9
    given = dataclasses.replace(free, max_frequency=bound)
    _, after = planned(given)
    assert max(max(segment) for segment in frequencies(given, after)) <= bound


def test_it_ends_although_doubling_costs_nothing_and_always_helps() -> None:
    given = model(
        operator("a", state_size=0.0), operator("b", "a", state_size=1.0, failure_rate=0.0, anchor=False)
    )
    before, after = planned(given, 2.0)
    assert after.frequencies[0] == before.frequencies[0] * 2.0**40
    assert recovery(given, after, 2.0) < recovery(given, before, 2.0)


def test_infinite_frequencies_stay() -> None:
    given = model(operator("a", state_size=0.0), operator("b", "a", anchor=True), operator("c", "b", anchor=False))
    before, after = planned(given, 4.0)
    assert before.frequencies[0] == math.inf
    assert recovery(given, after, 4.0) <= recovery(given, before, 4.0)


def test_no_plan_and_no_chain_are_what_they_are_for_chain_dp() -> None:
    assert chain_dp_refined(model(operator("a")), 1.0, 5) is None
    with pytest.raises(PlanError, match="b and c read a"):
        chain_dp_refined(TREE, 5.0, 5)
