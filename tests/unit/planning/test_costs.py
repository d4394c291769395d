"""Equations 2.1 and 3.2 by hand, and the closed form of the best frequencies against trying."""

import dataclasses
import itertools
import math

import numpy as np
import pytest
from tests.unit.planning.models import CHAIN, DIAMOND, TREE, anchor_sets, drawn, model, operator

from tidelock.planning.costs import Configuration, costs
from tidelock.planning.model import Model
from tidelock.planning.sums import Shared, Sums, share, sums

SHAPES = [(shape, seed) for shape in ("chain", "tree", "dag") for seed in range(3)]


def plan(*anchors: int, at: tuple[float, ...], own: dict[int, float] | None = None) -> Configuration:
    return Configuration(frozenset(anchors), at, own)


# -- by hand


def test_a_chain_of_one_segment() -> None:
    found = costs(CHAIN, plan(0, at=(2.0,)))
    assert CHAIN.rates == (100.0, 50.0, 50.0)
    assert found.overheads == pytest.approx((0.2 + 2.0, 0.4, 0.6))
    assert found.recoveries == pytest.approx((1 + 0.1 + 0.05, 1 + 0.3 + 0.05 + 0.05, 1 + 0.6 + 0.05 + 0.05 + 0.1))
    assert found.overhead == pytest.approx(3.2)
    assert found.recovery == pytest.approx(0.1 * 1.15 + 0.2 * 1.4 + 0.5 * 1.8)


def test_a_chain_of_two_segments_recovers_each_with_its_own_frequency() -> None:
    found = costs(CHAIN, plan(0, 2, at=(2.0, 5.0)))
    assert found.overheads == pytest.approx((2.2, 0.4, 1.5 + 0.5))
    assert found.recoveries == pytest.approx((1.15, 1.4, 0.1 + 0.3 + 0.04))
    assert found.recovery == pytest.approx(0.615)


def test_an_operator_with_a_frequency_of_its_own_has_less_to_replay() -> None:
    found = costs(CHAIN, plan(0, at=(2.0,), own={0: 4.0}))
    assert found.overheads == pytest.approx((0.4 + 2.0, 0.4, 0.6))
    assert found.recoveries == pytest.approx((0.5 + 0.1 + 0.025, 1.4, 1.8))


def test_a_tree_replays_the_path_and_not_the_segment() -> None:
    found = costs(TREE, plan(0, 1, at=(2.0, 5.0)))
    assert TREE.segments(frozenset({0, 1})) == ((0, 2), (1,))
    assert found.overheads == pytest.approx((2.2, 1.0 + 0.5, 0.6))
    assert found.recoveries == pytest.approx((1.15, 0.1 + 0.2 + 0.02, 1 + 0.4 + 0.05 + 0.1))
    assert found.recovery == pytest.approx(0.115 + 0.064 + 0.775)


def test_a_segment_that_restarts_as_a_whole_takes_equally_long_for_everyone() -> None:
    found = costs(dataclasses.replace(TREE, scope="segment"), plan(0, 1, at=(2.0, 5.0)))
    assert found.recoveries == pytest.approx((1.55, 0.32, 1.55))


def test_a_diamond_replays_every_ancestor_once() -> None:
    found = costs(DIAMOND, plan(0, at=(2.0,)))
    assert DIAMOND.rates == (100.0, 50.0, 50.0, 100.0)
    assert found.overheads == pytest.approx((2.2, 0.4, 0.6, 0.8))
    assert found.recoveries[3] == pytest.approx(1 + (0.1 + 0.2 + 0.3 + 0.4) + 0.05 + 0.05 + 0.1 + 0.05)


def test_a_diamond_replays_up_to_the_nearest_anchors_on_all_paths() -> None:
    found = costs(DIAMOND, plan(0, 1, at=(2.0,)))
    assert DIAMOND.segments(frozenset({0, 1})) == ((0, 1, 2, 3),)
    assert found.overhead == pytest.approx(2.2 + 0.4 + 0.5 + 0.6 + 0.8)
    assert found.recoveries[1] == pytest.approx(0.25 + 0.2 + 0.05)
    assert found.recoveries[3] == pytest.approx(1 + 0.25 + 1.0 + 0.25)


def test_commits_and_restarts_have_fixed_costs_too() -> None:
    dear = dataclasses.replace(CHAIN, segment_cost=0.5, restart_cost=3.0)
    cheap, found = costs(CHAIN, plan(0, 2, at=(2.0, 5.0))), costs(dear, plan(0, 2, at=(2.0, 5.0)))
    assert found.overhead - cheap.overhead == pytest.approx(0.5 * (2 + 5))
    assert found.recovery - cheap.recovery == pytest.approx(3.0 * (0.1 + 0.2 + 0.5))


def test_any_delta_is_followed() -> None:
    found = costs(dataclasses.replace(CHAIN, storage=math.sqrt), plan(0, at=(2.5,)))
    assert found.overheads == pytest.approx((5 + math.sqrt(200), math.sqrt(50), math.sqrt(75)))
    assert found.recoveries[0] == pytest.approx(math.sqrt(80) + math.sqrt(10) + 0.001 * 40)


def test_without_commits_there_is_no_end_to_replay() -> None:
    assert costs(model(operator("a")), plan(0, at=(0.0,))).recovery == math.inf


# -- four numbers for a segment


def test_the_sums_of_a_chain_by_hand() -> None:
    found = sums(CHAIN, (0, 1, 2), frozenset({0}))
    assert found.fixed_recovery == pytest.approx(0.1 * 0.1 + 0.2 * 0.3 + 0.5 * 0.6)
    assert found.replay == pytest.approx(0.1 * 2.1 + 0.2 * 2.2 + 0.5 * 2.4)
    assert (found.commit, found.storing, found.head) == (pytest.approx(0.6), pytest.approx(2.0), True)


def shared(given: Model, anchors: frozenset[int], budget: float) -> tuple[list[Sums], Shared | None]:
    segments = [sums(given, segment, anchors) for segment in given.segments(anchors)]
    bounds = {"max_frequency": given.max_frequency, "head_frequency": given.head_frequency}
    return segments, share(segments, budget, **bounds)


@pytest.mark.parametrize(("shape", "seed"), SHAPES)
@pytest.mark.parametrize(
    "fields",
    [{}, {"scope": "segment"}, {"max_frequency": 1.0}, {"head_frequency": 0.3}],
    ids=lambda fields: next(iter(fields), "free"),
)
def test_what_is_shared_costs_what_the_equations_say(shape: str, seed: int, fields: dict[str, object]) -> None:
    given = drawn(shape, seed, **fields)
    for anchors in anchor_sets(given):
        _, found = shared(given, anchors, 20.0)
        assert found is not None
        result = costs(given, Configuration(anchors, found.frequencies))
        assert result.overhead == pytest.approx(found.overhead)
        assert result.recovery == pytest.approx(found.recovery)
        assert result.overhead <= 20.0 * (1 + 1e-9)


def value(segments: list[Sums], frequencies: tuple[float, ...]) -> float:
    return sum(one.fixed_recovery + one.replay / f for one, f in zip(segments, frequencies, strict=True))


@pytest.mark.parametrize("bound", [None, 2.0, 0.4])
@pytest.mark.parametrize("head", [None, 0.2])
@pytest.mark.parametrize("seed", range(4))
def test_no_random_frequencies_are_better(seed: int, head: float | None, bound: float | None) -> None:
    given = drawn("tree", seed, max_frequency=bound, head_frequency=head)
    anchors = given.forced | frozenset(given.free[::2])
    segments, found = shared(given, anchors, 1.0)
    assert found is not None
    rng = np.random.default_rng(seed)
    for _ in range(2000):
        parts = rng.dirichlet(np.ones(len(segments))) * rng.uniform(0.8, 1.0)
        left = 1.0 - sum(one.storing + (one.commit * head if head and one.head else 0.0) for one in segments)
        frequencies = tuple(
            head if head and one.head else min(part * left / one.commit, bound or math.inf)
            for one, part in zip(segments, parts, strict=True)
        )
        assert value(segments, frequencies) >= found.recovery * (1 - 1e-9)
    assert value(segments, found.frequencies) == pytest.approx(found.recovery)


@pytest.mark.parametrize("bound", [None, 0.7])
def test_no_frequencies_of_a_grid_are_better_and_some_come_close(bound: float | None) -> None:
    given = drawn("chain", 5, n=3, max_frequency=bound)
    segments, found = shared(given, frozenset({0, 1, 2}), 0.8)
    assert found is not None
    grid = np.linspace(0.02, bound or 4.0, 40).tolist()
    tried = [
        value(segments, frequencies)
        for frequencies in itertools.product(grid, repeat=3)
        if sum(one.storing + one.commit * f for one, f in zip(segments, frequencies, strict=True)) <= 0.8
    ]
    assert found.recovery * (1 - 1e-9) <= min(tried) <= found.recovery * 1.05


def test_who_would_exceed_the_bound_leaves_the_rest_to_others() -> None:
    segments = [Sums(0.0, 9.0, 1.0, 0.0), Sums(0.0, 1.0, 1.0, 0.0)]
    assert share(segments, 4.0) == Shared((3.0, 1.0), 4.0, 4.0)
    assert share(segments, 4.0, max_frequency=2.0) == Shared((2.0, 2.0), 5.0, 4.0)
    assert share(segments, 4.0, max_frequency=1.5) == Shared((1.5, 1.5), pytest.approx(20 / 3), 3.0)


def test_a_given_head_frequency_is_paid_first() -> None:
    segments = [Sums(0.0, 9.0, 1.0, 0.5, head=True), Sums(0.0, 1.0, 1.0, 0.0)]
    assert share(segments, 4.0, head_frequency=0.5) == Shared((0.5, 3.0), pytest.approx(18 + 1 / 3), 4.0)
    assert share(segments, 1.0, head_frequency=0.5) is None


def test_commits_that_cost_nothing_are_made_all_the_time_and_useless_ones_never() -> None:
    segments = [Sums(1.0, 2.0, 0.0, 0.0), Sums(1.0, 0.0, 3.0, 0.0), Sums(1.0, 4.0, 1.0, 0.0)]
    assert share(segments, 2.0) == Shared((math.inf, 0.0, 2.0), 5.0, 2.0)


def test_a_budget_for_the_inputs_alone_is_too_small() -> None:
    stateless = model(operator("a", state_size=0.0))
    segments, found = shared(stateless, frozenset({0}), 1.0)
    assert segments[0].storing == 1.0
    assert found == Shared((math.inf,), 0.0, 1.0)
    assert share(segments, 0.9) is None
    assert share([sums(CHAIN, (0, 1, 2), frozenset({0}))], 2.0) is None
