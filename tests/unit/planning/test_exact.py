"""The exact planner: what it promises, at the edges and where brute force cannot follow."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable
from dataclasses import replace

import pytest

from tidelock.errors import PlanError
from tidelock.planning.costs import costs
from tidelock.planning.exact import ProvedPlan, exact, least_overhead
from tidelock.planning.model import Model, Operator
from tidelock.planning.sums import Shared, share, sums


def operator(name: str, *inputs: str, **changes: object) -> Operator:
    one = Operator(name, inputs, 0.9, 1e-5, 15_000, 1.0, 0.1)
    return replace(one, **changes)  # type: ignore[arg-type]


def topology(rng: random.Random, inputs: Iterable[Iterable[int]], **settings: object) -> Model:
    """Operators as in FastRecover, table 4.1, where rates do not fade."""
    operators = [
        Operator(
            name=f"o{place}",
            inputs=tuple(f"o{one}" for one in ones),
            selectivity=rng.uniform(0.7, 1.2) / 1.4,
            processing_cost=1e-5,
            state_size=rng.uniform(10_000, 20_000),
            tuple_size=1.0,
            failure_rate=abs(rng.gauss(0.1, 0.17)) * rng.randint(2, 6) / 4,
        )
        for place, ones in enumerate(inputs)
    ]
    return Model(tuple(operators), 1000.0, 1.6e-6, **settings)  # type: ignore[arg-type]


def chain(rng: random.Random, size: int, **settings: object) -> Model:
    return topology(rng, [[], *([place] for place in range(size - 1))], **settings)


def tree(rng: random.Random, size: int, **settings: object) -> Model:
    return topology(rng, [[], *([rng.randrange(max(0, at - 12), at)] for at in range(1, size))], **settings)


def dag(rng: random.Random, size: int, **settings: object) -> Model:
    inputs: list[list[int]] = [[], []]
    for at in range(2, size):
        inputs.append(sorted(rng.sample(range(max(0, at - 8), at), rng.randint(1, 2))))
    return topology(rng, inputs, **settings)


def plan(model: Model, anchors: Iterable[int], budget: float) -> Shared | None:
    chosen = frozenset(anchors)
    parts = [sums(model, segment, chosen) for segment in model.segments(chosen)]
    return share(parts, budget, max_frequency=model.max_frequency, head_frequency=model.head_frequency)


def recovery(model: Model, anchors: Iterable[int], budget: float) -> float:
    found = plan(model, anchors, budget)
    return math.inf if found is None else found.recovery


def storing(model: Model) -> float:
    """What it costs if everybody is an anchor."""
    return sum(model.storage_cost * model.rates[at] * one.tuple_size for at, one in enumerate(model.operators))


def check(model: Model, budget: float, found: ProvedPlan | None) -> float:
    """See that the plan is what it says; return its recovery time."""
    assert found is not None
    told = costs(model, found.configuration)
    assert told.overhead <= budget * (1 + 1e-9)
    assert told.recovery == pytest.approx(recovery(model, found.configuration.anchors, budget), rel=1e-9)
    assert found.bound <= told.recovery * (1 + 1e-9)
    assert found.gap == pytest.approx(1 - found.bound / told.recovery, abs=1e-9)
    return told.recovery


def wander(model: Model, budget: float, rng: random.Random, steps: int) -> float:
    """A random local search."""
    anchors = frozenset(
        place for place in (*model.forced, *model.free) if place in model.forced or rng.random() < 0.5
    )
    best = recovery(model, anchors, budget)
    for _ in range(steps):
        other = anchors ^ {rng.choice(model.free)}
        value = recovery(model, other, budget)
        if value <= best:
            anchors, best = other, value
    return best


# -- where brute force cannot follow


@pytest.mark.parametrize("share_of_storing", [0.15, 0.6, 3.0])
@pytest.mark.parametrize(("draw", "size"), [(chain, 300), (tree, 200), (dag, 60)])
def test_larger_topologies(draw: object, size: int, share_of_storing: float) -> None:
    rng = random.Random(size)
    model = draw(rng, size)  # type: ignore[operator]
    budget = least_overhead(model)[0] + share_of_storing * storing(model)
    value = check(model, budget, exact(model, budget, effort=20_000))
    assert value <= recovery(model, model.forced, budget) * (1 + 1e-9)
    assert value <= recovery(model, model.forced | set(model.free), budget) * (1 + 1e-9)
    assert value <= wander(model, budget, rng, 100) * (1 + 1e-9)


@pytest.mark.parametrize("share_of_storing", [0.15, 0.6, 3.0])
@pytest.mark.parametrize(("draw", "size"), [(chain, 300), (tree, 200)])
def test_large_chains_and_trees_are_solved(draw: object, size: int, share_of_storing: float) -> None:
    model = draw(random.Random(7), size)  # type: ignore[operator]
    found = exact(model, least_overhead(model)[0] + share_of_storing * storing(model))
    assert found is not None
    assert found.gap == 0


def test_a_chain_and_a_tree_of_the_same_operators_agree() -> None:
    """A second source with nothing to do sends the chain to the general search."""
    model = chain(random.Random(3), 60)
    idle = operator("idle", tuple_size=0, state_size=0, failure_rate=0)
    both = replace(model, operators=(*model.operators, idle))
    budget = 0.5 * storing(model)
    assert check(both, budget, exact(both, budget)) == pytest.approx(check(model, budget, exact(model, budget)))


@pytest.mark.parametrize("effort", [1, 100, 2000])
@pytest.mark.parametrize("draw", [chain, tree, dag])
def test_little_effort_leaves_an_honest_gap(draw: object, effort: int) -> None:
    model = draw(random.Random(5), 18)  # type: ignore[operator]
    budget = 0.5 * storing(model)
    best = check(model, budget, exact(model, budget))
    found = exact(model, budget, effort=effort)
    assert check(model, budget, found) >= best * (1 - 1e-9)
    assert found is not None
    assert found.bound <= best * (1 + 1e-9)


@pytest.mark.parametrize("settings", [{"head_frequency": 2.0}, {"max_frequency": 0.5}, {"scope": "segment"}])
@pytest.mark.parametrize("draw", [chain, tree, dag])
def test_settings_at_thirty_operators(draw: object, settings: dict[str, object]) -> None:
    rng = random.Random(11)
    model = draw(rng, 30, **settings)  # type: ignore[operator]
    budget = least_overhead(model)[0] + 0.5 * storing(model)
    value = check(model, budget, exact(model, budget, effort=20_000))
    assert value <= wander(model, budget, rng, 200) * (1 + 1e-9)


# -- edges


def test_one_operator() -> None:
    model = Model((operator("a"),), 1000.0, 1.6e-6)
    found = exact(model, 0.1)
    assert found is not None
    assert (found.configuration.anchors, found.gap) == (frozenset({0}), 0.0)
    left, commit = 0.1 - 1.6e-3, 0.024
    assert found.configuration.frequencies == (pytest.approx(left / commit),)
    assert found.bound == pytest.approx(0.1 * 0.024 + 0.1 * (0.01 + 1.6e-3) * commit / left)


def test_storing_beyond_the_budget_has_no_plan() -> None:
    model = chain(random.Random(1), 6)
    least, anchors = least_overhead(model)
    assert anchors == {0}
    assert exact(model, least * 0.999) is None
    assert exact(model, least * 1.001) is not None


@pytest.mark.parametrize("size", [5, 16])
def test_a_budget_of_just_the_storing_is_enough_if_nothing_fails(size: int) -> None:
    model = tree(random.Random(1), size)
    calm = replace(model, operators=tuple(replace(one, failure_rate=0.0) for one in model.operators))
    found = exact(calm, least_overhead(calm)[0])
    assert found is not None
    assert (found.configuration.anchors, found.configuration.frequencies) == ({0}, (0.0,))
    assert (found.bound, found.gap) == (0.0, 0.0)


def test_all_forced_and_all_forbidden() -> None:
    model = dag(random.Random(2), 8)
    forced = replace(model, operators=tuple(replace(one, anchor=True) for one in model.operators))
    none = replace(
        model, operators=tuple(replace(one, anchor=False if one.inputs else None) for one in model.operators)
    )
    budget = 2 * storing(model)
    for changed, anchors in ((forced, set(range(8))), (none, {0, 1})):
        found = exact(changed, budget)
        assert found is not None
        assert found.configuration.anchors == anchors
        assert found.gap == 0


def test_no_input_is_replayed_for_nothing() -> None:
    model = replace(chain(random.Random(2), 8), input_rate=0.0)
    found = exact(model, 0.0)
    assert found is not None
    assert found.configuration.anchors == set(range(8))  # nothing to store, and less to load
    assert set(found.configuration.frequencies) == {0.0}


def test_commits_that_cost_nothing_are_made_all_the_time() -> None:
    operators = (operator("a", state_size=0), operator("b", "a", state_size=0))
    model = Model(operators, 1000.0, 1.6e-6)
    found = exact(model, 0.1)
    assert found is not None
    assert (found.configuration.anchors, found.configuration.frequencies) == ({0}, (math.inf,))
    assert (found.bound, found.gap) == (0.0, 0.0)
    capped = exact(replace(model, max_frequency=2.0), 0.1)
    assert capped is not None
    assert capped.configuration.frequencies == (2.0, 2.0)


def test_among_equals_the_fewest_anchors() -> None:
    """Nothing fails and nothing is stored: all plans are the same."""
    for draw in (chain, tree, dag):
        model = draw(random.Random(1), 14)
        parts = tuple(replace(one, failure_rate=0.0, tuple_size=0.0) for one in model.operators)
        found = exact(replace(model, operators=parts), 0.1)
        assert found is not None
        assert found.configuration.anchors == model.forced


@pytest.mark.parametrize("scale", [1e-9, 1e9])
@pytest.mark.parametrize("draw", [chain, tree, dag])
def test_units_do_not_matter(draw: object, scale: float) -> None:
    """Time in other units: rates and costs change together, and so does the recovery time."""
    model = draw(random.Random(4), 16)  # type: ignore[operator]
    parts = tuple(
        replace(one, processing_cost=one.processing_cost * scale, failure_rate=one.failure_rate / scale)
        for one in model.operators
    )
    other = replace(
        model, operators=parts, input_rate=model.input_rate / scale, storage_cost=model.storage_cost * scale
    )
    budget = 0.5 * storing(model)
    first, second = exact(model, budget), exact(other, budget)
    assert first is not None
    assert second is not None
    assert second.configuration.anchors == first.configuration.anchors
    assert second.bound == pytest.approx(first.bound)
    assert (first.gap, second.gap) == (0.0, 0.0)


def test_a_head_that_never_commits_cannot_replay() -> None:
    for draw, size in ((chain, 3), (chain, 60), (tree, 16)):
        assert exact(draw(random.Random(1), size, head_frequency=0.0), 1.0) is None


def test_delta_has_to_be_linear() -> None:
    model = replace(chain(random.Random(1), 3), storage=math.sqrt)
    with pytest.raises(PlanError, match="linear"):
        exact(model, 1.0)
    with pytest.raises(PlanError, match="linear"):
        least_overhead(model)


# -- the least overhead


def test_the_least_overhead_without_heads_is_what_has_to_be_stored() -> None:
    parts = (operator("a"), operator("b", "a"), operator("c", "b", anchor=True))
    value, anchors = least_overhead(Model(parts, 1000.0, 1.6e-6))
    assert anchors == {0, 2}
    assert value == pytest.approx(1.6e-3 * (1 + 0.81))


def test_an_anchor_can_be_cheaper_than_committing_with_the_head() -> None:
    parts = (operator("a", state_size=0), operator("b", "a"), operator("c", "b"))
    model = Model(parts, 1000.0, 1.6e-6, head_frequency=10.0)
    value, anchors = least_overhead(model)
    assert anchors == {0, 1}
    assert value == pytest.approx(1.6e-3 * 1.9)
    assert exact(model, value * 0.999) is None
    assert exact(model, value * 1.001) is not None
