"""Algorithm 1 against the thesis as loops, and against every plan there is."""

import dataclasses
import itertools
import math
from collections.abc import Callable

import pytest
from tests.unit.planning.models import (
    CHAIN,
    DIAMOND,
    TREE,
    anchor_sets,
    drawn,
    model,
    operator,
    recovery,
    with_anchors,
)

from tidelock.errors import PlanError
from tidelock.planning.costs import Configuration, costs
from tidelock.planning.model import Model
from tidelock.planning.sums import share, sums
from tidelock.planning.thesis import chain_dp


def overhead(given: Model, k: int, i: int, eta: float) -> float:
    states = sum(given.delta(eta * one.state_size) for one in given.operators[k : i + 1])
    return states + given.delta(given.rates[k] * given.operators[k].tuple_size) + given.segment_cost * eta


def c_to_eta(given: Model, k: int, i: int, c: float) -> float | None:
    """By bisection, which needs no closed form."""
    if overhead(given, k, i, 0.0) > c:
        return None
    low, high = 0.0, 1e6
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if overhead(given, k, i, middle) <= c else (low, middle)
    return min(low, given.max_frequency or math.inf)


def eta_to_r(given: Model, k: int, i: int, eta: float) -> float:
    total = 0.0
    for failed in range(k, i + 1):
        time = given.restart_cost + given.delta(given.rates[k] * given.operators[k].tuple_size / eta)
        for one in range(k, failed + 1):
            time += given.delta(given.operators[one].state_size)
            time += given.operators[one].processing_cost * given.rates[one] / eta
        total += given.operators[failed].failure_rate * time
    return total


def c_to_r(given: Model, k: int, i: int, c: float) -> float:
    eta = c_to_eta(given, k, i, c)
    return eta_to_r(given, k, i, eta) if eta else math.inf


def algorithm_1(given: Model, budget: float, steps: int) -> float:
    """DP_rt(Z, n), with operators counted from 1 as in the thesis."""
    n = len(given.operators)
    table = {(c, 0): 0.0 for c in range(steps + 1)}
    table.update({(0, i): math.inf for i in range(1, n + 1)})
    for i in range(1, n + 1):
        for c in range(1, steps + 1):
            table[c, i] = math.inf
            for k in range(1, i + 1):
                if given.operators[k - 1].anchor is False and k > 1:
                    continue
                if any(one.anchor is True for one in given.operators[k:i]):
                    continue
                for spent in range(1, c + 1):
                    after = c_to_r(given, k - 1, i - 1, spent * budget / steps)
                    table[c, i] = min(table[c, i], table[c - spent, k - 1] + after)
    return table[steps, n]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("budget", [0.4, 0.7, 3.0])
def test_it_finds_what_the_loops_of_the_thesis_find(seed: int, budget: float) -> None:
    given = drawn("chain", seed, n=5)
    expected = algorithm_1(given, budget, 9)
    assert recovery(given, chain_dp(given, budget, 9), budget) == pytest.approx(expected, rel=1e-9)


DELTAS: dict[str, Callable[[float], float]] = {
    "root": lambda size: 1e-3 * math.sqrt(size),
    "square": lambda size: 1e-6 * size + 1e-11 * size**2,
    "latency": lambda size: 0.01 + 4e-6 * size,
}


@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize("seed", range(2))
def test_it_finds_what_the_loops_find_with_a_delta_that_is_not_linear(seed: int, delta: str) -> None:
    given = drawn("chain", seed, n=4, storage=DELTAS[delta])
    expected = algorithm_1(given, 1.5, 6)
    assert expected < math.inf
    assert recovery(given, chain_dp(given, 1.5, 6), 1.5) == pytest.approx(expected, rel=1e-9)


def test_the_closed_form_and_the_bisection_agree() -> None:
    linear = drawn("chain", 3)
    searched = dataclasses.replace(linear, storage=lambda size: linear.storage_cost * size)
    one, other = chain_dp(linear, 1.0, 20), chain_dp(searched, 1.0, 20)
    assert one is not None
    assert other is not None
    assert one.anchors == other.anchors
    assert one.frequencies == pytest.approx(other.frequencies, rel=1e-12)


def every_plan(given: Model, budget: float, steps: int) -> float:
    """The best of all anchors and all ways to give each segment whole steps."""
    best = math.inf
    for anchors in anchor_sets(given):
        segments = [sums(given, segment, anchors) for segment in given.segments(anchors)]
        for parts in itertools.product(range(1, steps + 1), repeat=len(segments)):
            left = [part * budget / steps - one.storing for part, one in zip(parts, segments, strict=True)]
            if sum(parts) <= steps and min(left) > 0:
                etas = tuple(one / it.commit for one, it in zip(left, segments, strict=True))
                best = min(best, costs(given, Configuration(anchors, etas)).recovery)
    return best


@pytest.mark.parametrize("seed", range(5))
def test_no_plan_of_whole_steps_is_better(seed: int) -> None:
    given = drawn("chain", seed, n=4)
    assert recovery(given, chain_dp(given, 0.9, 8), 0.9) == pytest.approx(every_plan(given, 0.9, 8))


@pytest.mark.parametrize("seed", range(5))
def test_more_steps_come_close_to_the_best_plan_there_is(seed: int) -> None:
    given = drawn("chain", seed)
    best = min(
        found.recovery
        for anchors in anchor_sets(given)
        if (found := share([sums(given, one, anchors) for one in given.segments(anchors)], 1.0)) is not None
    )
    assert best * (1 - 1e-9) <= recovery(given, chain_dp(given, 1.0, 400), 1.0) <= best * 1.01


def test_the_first_subchain_may_spend_everything() -> None:
    given = with_anchors(CHAIN, {1: False, 2: False})
    for steps in (1, 2, 7):
        assert chain_dp(given, 3.2, steps) == Configuration(frozenset({0}), (pytest.approx(2.0),))


@pytest.mark.parametrize("seed", range(4))
def test_who_must_be_an_anchor_is_one_and_who_must_not_is_none(seed: int) -> None:
    given = with_anchors(drawn("chain", seed), {1: False, 2: True, 4: False})
    found = chain_dp(given, 2.0, 12)
    assert found is not None
    assert {0, 2} <= found.anchors <= {0, 2, 3, 5}
    assert recovery(given, found, 2.0) == pytest.approx(algorithm_1(given, 2.0, 12))


def test_fixed_costs_of_commits_make_fewer_segments() -> None:
    cheap, dear = drawn("chain", 1, segment_cost=0.0), drawn("chain", 1, segment_cost=1.0)
    few, many = chain_dp(dear, 2.0, 40), chain_dp(cheap, 2.0, 40)
    assert few is not None
    assert many is not None
    assert len(few.anchors) < len(many.anchors)


def test_slopes_of_their_own_for_states_and_logs_count() -> None:
    plain = model(operator("a", commit_cost=0.25), operator("b", "a", anchor=True, commit_cost=0.25))
    rates = type(plain.rates_of_storage)(log_read=0.5, state_load=2.0)
    given = dataclasses.replace(plain, rates_of_storage=rates)
    found = chain_dp(given, 4.0, 2)
    # Each stores its inputs for 1 of its 2, and commits 4 times for the rest; then it loads, fetches and works.
    assert found == Configuration(frozenset({0, 1}), (pytest.approx(4.0), pytest.approx(4.0)))
    assert recovery(given, found, 4.0) == pytest.approx(2 * (2.0 + 50 / 4 + 100 / 4))


def test_no_subchain_commits_more_often_than_allowed() -> None:
    given = drawn("chain", 2, n=4, max_frequency=0.3)
    found = chain_dp(given, 30.0, 8)
    assert found is not None
    assert set(found.frequencies) == {0.3}
    assert recovery(given, found, 30.0) == pytest.approx(algorithm_1(given, 30.0, 8))


@pytest.mark.parametrize("storage", [None, lambda size: 0.01 * size], ids=["linear", "searched"])
def test_commits_that_cost_nothing_are_made_all_the_time(storage: Callable[[float], float] | None) -> None:
    given = model(operator("a", state_size=0.0), operator("b", "a", anchor=True), storage=storage)
    found = chain_dp(given, 4.0, 2)
    assert found == Configuration(frozenset({0, 1}), (math.inf, pytest.approx(100.0)))
    assert recovery(given, found, 4.0) == pytest.approx(0.01 + 1 / 100 + 100 / 100)


def test_too_small_a_budget_or_too_few_steps_give_no_plan() -> None:
    assert chain_dp(CHAIN, 0.0, 10) is None
    assert chain_dp(CHAIN, 2.0, 10) is None
    assert chain_dp(CHAIN, 2.5, 10) is not None
    everyone = with_anchors(CHAIN, {1: True, 2: True})
    assert chain_dp(everyone, 6.0, 2) is None
    assert chain_dp(everyone, 6.0, 12) is not None


@pytest.mark.parametrize(
    ("given", "steps", "sentence"),
    [
        (TREE, 5, "chain-dp plans chains, but b and c read a: use the method exact"),
        (DIAMOND, 5, "chain-dp plans chains, but d merges b and c: use the method exact"),
        (model(operator("a"), operator("b")), 5, "but a and b are all sources: use the method exact"),
        (dataclasses.replace(CHAIN, scope="segment"), 5, "scope: chain-dp knows 'path' only, not 'segment'"),
        (dataclasses.replace(CHAIN, head_frequency=1.0), 5, "head_frequency: chain-dp chooses every frequency"),
        (model(operator("a"), operator("b", "a", cut=("a",))), 5, "cut: chain-dp cannot cut b without an anchor"),
        (CHAIN, 0, "steps: at least one step is needed, not 0"),
    ],
)
def test_what_it_cannot_plan_is_refused_with_a_reason(given: Model, steps: int, sentence: str) -> None:
    with pytest.raises(PlanError) as refused:
        chain_dp(given, 4.0, steps)
    assert sentence in str(refused.value)
