"""Algorithm 2 against the thesis as loops, and against every plan there is."""

import dataclasses
import itertools
import math
from functools import cache

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
from tidelock.planning.costs import Configuration
from tidelock.planning.model import Model
from tidelock.planning.sums import share, sums
from tidelock.planning.thesis import tree_dp


def algorithm_2(given: Model, budget: float, steps: int, grid: list[float]) -> float:
    """DP_rt*(CH_max, root), with every split of the overhead among the children."""
    inc = budget / steps

    def ch(i: int, f: float, inp: int) -> float:
        operator = given.operators[i]
        stored = given.delta(given.rates[i] * operator.tuple_size) + given.segment_cost * f
        return given.delta(f * operator.state_size) + inp * stored

    def rt(i: int, f: float, inp: int) -> float:
        operator, rate = given.operators[i], given.rates[i]
        fetched = inp * given.delta(rate * operator.tuple_size / f)
        return fetched + given.delta(operator.state_size) + operator.processing_cost * rate / f

    @cache
    def star(c: int, i: int) -> float:
        return min(dp(c, i, f, 1)[0] for f in grid)

    @cache
    def dp(c: int, i: int, f: float, inp: int) -> tuple[float, float]:
        """DP_rt and DP_fr."""
        operator = given.operators[i]
        own = (rt(i, f, inp) + given.restart_cost) * operator.failure_rate
        left = math.floor((c * inc - ch(i, f, inp)) / inc + 1e-11)
        barred = operator.anchor is (not inp) and (given.inputs[i] or not inp)
        if left < 0 or barred or (not inp and not given.inputs[i]):
            return math.inf, operator.failure_rate
        children = given.readers[i]
        best = (math.inf, operator.failure_rate)
        for parts in itertools.product(range(left + 1), repeat=len(children)):
            if sum(parts) > left:
                continue
            total, failures = own, operator.failure_rate
            for k, part in zip(children, parts, strict=True):
                recovering, failing = dp(part, k, f, 0)
                together = failing * rt(i, f, inp) + recovering
                if star(part, k) <= together:
                    total += star(part, k)
                else:
                    total, failures = total + together, failures + failing
            if total < best[0]:
                best = (total, failures)
        return best

    return star(steps, 0)


def grid(frequencies: int, largest: float) -> list[float]:
    return [step * largest / frequencies for step in range(1, frequencies + 1)]


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("budget", [0.8, 3.0])
def test_it_finds_what_the_loops_of_the_thesis_find(seed: int, budget: float) -> None:
    given = drawn("tree", seed, n=6)
    expected = algorithm_2(given, budget, 10, grid(5, 4.0))
    found = tree_dp(given, budget, 10, 5, 4.0)
    assert recovery(given, found, budget) == pytest.approx(expected, rel=1e-9)


def test_most_of_these_have_a_plan_with_some_anchors_but_not_all() -> None:
    found = [tree_dp(drawn("tree", seed, n=6), 3.0, 10, 5, 4.0) for seed in range(10)]
    assert sum(one is not None and 1 < len(one.anchors) < 6 for one in found) >= 6


@pytest.mark.parametrize("seed", range(3))
def test_it_finds_what_the_loops_find_with_a_delta_that_is_not_linear(seed: int) -> None:
    given = drawn("tree", seed, n=5, storage=lambda size: 1e-3 * math.sqrt(size))
    expected = algorithm_2(given, 4.0, 10, grid(4, 2.0))
    assert expected < math.inf
    assert recovery(given, tree_dp(given, 4.0, 10, 4, 2.0), 4.0) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_who_must_be_an_anchor_is_one_and_who_must_not_is_none(seed: int) -> None:
    given = with_anchors(drawn("tree", seed), {1: False, 2: True, 4: False})
    found = tree_dp(given, 3.0, 12, 4, 1.0)
    assert found is not None
    assert {0, 2} <= found.anchors <= {0, 2, 3, 5}
    assert recovery(given, found, 3.0) == pytest.approx(algorithm_2(given, 3.0, 12, grid(4, 1.0)))


def best_plan(given: Model, budget: float) -> float:
    return min(
        found.recovery
        for anchors in anchor_sets(given)
        if (found := share([sums(given, one, anchors) for one in given.segments(anchors)], budget)) is not None
    )


@pytest.mark.parametrize("shape", ["tree", "chain"])
@pytest.mark.parametrize("seed", range(4))
def test_fine_steps_come_close_to_the_best_plan_there_is_and_never_pass_it(shape: str, seed: int) -> None:
    given = drawn(shape, seed, n=5)
    best = best_plan(given, 1.5)
    assert best * (1 - 1e-9) <= recovery(given, tree_dp(given, 1.5, 200, 150, 10.0), 1.5) <= best * 1.1


def test_one_operator_takes_the_largest_frequency_that_it_can_pay() -> None:
    given = model(operator("a"))
    # Its inputs cost 1 and a commit 0.01.
    assert tree_dp(given, 1.2, 12, 10, 50.0) == Configuration(frozenset({0}), (20.0,))
    assert tree_dp(given, 1.04, 1, 10, 50.0) is None
    assert tree_dp(given, 9.0, 9, 10, 50.0) == Configuration(frozenset({0}), (50.0,))


def test_frequencies_are_in_the_order_of_the_segments() -> None:
    given = with_anchors(TREE, {1: True, 2: False})
    found = tree_dp(given, 9.0, 60, 20, 10.0)
    assert found is not None
    assert given.segments(found.anchors) == ((0, 2), (1,))
    alternatives = [
        recovery(given, Configuration(found.anchors, pair), 9.0)
        for pair in itertools.product(grid(20, 10.0), repeat=2)
        if 2.5 + 0.4 * pair[0] + 0.2 * pair[1] <= 8.7
    ]
    assert recovery(given, found, 9.0) <= min(alternatives)


def test_the_models_bound_is_the_largest_frequency_if_it_is_less() -> None:
    given = dataclasses.replace(CHAIN, max_frequency=2.5)
    found = tree_dp(given, 90.0, 30, 5, 200.0)
    assert found is not None
    assert set(found.frequencies) == {2.5}
    assert tree_dp(dataclasses.replace(CHAIN, max_frequency=0.0), 90.0, 30, 5, 200.0) is None


def test_steps_and_frequencies_that_are_too_coarse_give_no_plan() -> None:
    given = drawn("tree", 0)
    assert tree_dp(given, 1.5, 5, 10, 1.0) is None
    assert tree_dp(given, 1.5, 40, 1, 100.0) is None
    assert tree_dp(given, 1.5, 40, 10, 1.0) is not None
    assert tree_dp(given, 0.0, 40, 10, 1.0) is None


def test_operators_that_cost_nothing_need_no_step() -> None:
    given = model(operator("a"), *(operator(name, "a", state_size=0.0) for name in "bcdef"))
    found = tree_dp(given, 1.02, 1, 2, 2.0)
    assert found == Configuration(frozenset({0}), (2.0,))


@pytest.mark.parametrize(
    ("given", "settings", "sentence"),
    [
        (DIAMOND, (5, 5, 1.0), "tree-dp plans trees, but d merges b and c: use the method exact"),
        (model(operator("a"), operator("b")), (5, 5, 1.0), "but a and b are all sources: use the method exact"),
        (dataclasses.replace(TREE, scope="segment"), (5, 5, 1.0), "scope: tree-dp knows 'path' only"),
        (dataclasses.replace(TREE, head_frequency=1.0), (5, 5, 1.0), "head_frequency: tree-dp chooses"),
        (model(operator("a"), operator("b", "a", cut=("a",))), (5, 5, 1.0), "cut: tree-dp cannot cut b"),
        (TREE, (0, 5, 1.0), "steps: at least one step is needed, not 0"),
        (TREE, (5, 0, 1.0), "frequencies: at least one step is needed, not 0"),
        (TREE, (5, 5, math.inf), "max_frequency: a finite number above 0 is needed, such as 200, not inf"),
    ],
)
def test_what_it_cannot_plan_is_refused_with_a_reason(
    given: Model, settings: tuple[int, int, float], sentence: str
) -> None:
    with pytest.raises(PlanError) as refused:
        tree_dp(given, 4.0, *settings)
    assert sentence in str(refused.value)
