"""Whatever the topology: the exact planner is as good as trying every plan, and says what its plans cost."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tidelock.planning.costs import costs
from tidelock.planning.exact import exact, least_overhead
from tidelock.planning.model import Model, Operator, Rates
from tidelock.planning.sums import share, sums

SHAPES = ("chain", "tree", "dag")
MANY = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))


def inputs(draw: st.DrawFn, shape: str, place: int) -> tuple[str, ...]:
    if shape == "chain":
        chosen = [place - 1]
    elif shape == "tree":
        chosen = [draw(st.integers(max(0, place - 4), place - 1))]
    else:
        near = list(range(max(0, place - 4), place))
        chosen = draw(st.lists(st.sampled_from(near), min_size=1, max_size=3, unique=True))
    return tuple(f"o{one}" for one in sorted(chosen))


def operator(draw: st.DrawFn, name: str, ones: tuple[str, ...], fancy: bool) -> Operator:
    some = st.sampled_from((0.0, 1.0, 1.0, 1.0))
    return Operator(
        name=name,
        inputs=ones,
        selectivity=draw(st.floats(0.1, 1.5)),
        processing_cost=draw(st.sampled_from((1e-5, 1e-4, 1e-3))),
        state_size=draw(some) * draw(st.floats(1e3, 2e4)),
        tuple_size=draw(some) * draw(st.floats(0.1, 3.0)),
        failure_rate=draw(some) * draw(st.floats(0.01, 0.5)),
        anchor=draw(st.sampled_from((None,) * 6 + ((True, False) if ones else ()))),
        stored_size=draw(st.sampled_from((None, 0.0, 1.0))) if fancy else None,
        cut=tuple(draw(st.lists(st.sampled_from(ones), unique=True))) if fancy and ones else (),
        every_epoch=draw(st.booleans()) if fancy else False,
        commit_cost=draw(st.sampled_from((None, 0.0, 0.05))) if fancy else None,
        kept_size=draw(st.sampled_from((None, None, 0.5, 4.0))) if fancy else None,
    )


@st.composite
def models(draw: st.DrawFn, largest: int = 7) -> Model:
    shape = draw(st.sampled_from(SHAPES))
    size, fancy = draw(st.integers(1, largest)), draw(st.booleans())
    sources = 1 if shape == "chain" else draw(st.integers(1, min(2, size)))
    read = [() if place < sources else inputs(draw, shape, place) for place in range(size)]
    return Model(
        operators=tuple(operator(draw, f"o{place}", ones, fancy) for place, ones in enumerate(read)),
        input_rate=draw(st.sampled_from((1000.0, 1000.0, 50.0, 0.0))),
        storage_cost=draw(st.sampled_from((1.6e-6, 1e-5))),
        segment_cost=draw(st.sampled_from((0.0, 0.0, 0.001, 0.05))),
        restart_cost=draw(st.sampled_from((0.0, 0.0, 0.1, 5.0))),
        scope=draw(st.sampled_from(("path", "path", "segment"))),
        max_frequency=draw(st.sampled_from((None, None, 0.1, 1.0, 10.0))),
        head_frequency=draw(st.sampled_from((None, None, 0.1, 3.0, 20.0))),
        rates_of_storage=Rates(1e-7, 1e-5) if draw(st.booleans()) else Rates(),
    )


budgets = st.sampled_from((0.9, 1.001, 1.1, 1.5, 2.0, 5.0))


def plans(model: Model) -> Iterator[frozenset[int]]:
    for count in range(len(model.free) + 1):
        for chosen in itertools.combinations(model.free, count):
            yield model.forced | frozenset(chosen)


def recovery(model: Model, anchors: frozenset[int], budget: float) -> float:
    parts = [sums(model, segment, anchors) for segment in model.segments(anchors)]
    found = share(parts, budget, max_frequency=model.max_frequency, head_frequency=model.head_frequency)
    return math.inf if found is None else found.recovery


def overhead(model: Model, anchors: frozenset[int]) -> float:
    """With frequencies next to nothing."""
    parts = [sums(model, segment, anchors) for segment in model.segments(anchors)]
    return sum(one.storing + one.commit * (model.head_frequency or 0.0) * one.head for one in parts)


def compare(model: Model, budget: float) -> None:
    found = exact(model, budget)
    best = min(recovery(model, anchors, budget) for anchors in plans(model))
    if best == math.inf:
        assert found is None
        return
    assert found is not None
    chosen = found.configuration
    assert model.forced <= chosen.anchors <= model.forced | set(model.free)
    assert recovery(model, chosen.anchors, budget) <= best * (1 + 1e-9)
    assert found.gap == 0
    assert found.bound == pytest.approx(best, rel=1e-9)
    told = costs(model, chosen)
    assert told.recovery == pytest.approx(best, rel=1e-9)
    assert told.overhead <= budget * (1 + 1e-9)


@MANY
@given(models(), budgets)
def test_no_plan_is_better(model: Model, part: float) -> None:
    least, _ = least_overhead(model)
    assume(least > 0 or part > 1)
    compare(model, least * part or 0.01)


@MANY
@given(models(), budgets, st.integers(0, 3))
def test_no_plan_is_better_than_what_branching_finds(model: Model, part: float, few: int) -> None:
    """Small topologies are tried in full; here they are not."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tidelock.planning.exact.branching._AT_ONCE", few)
        compare(model, (least_overhead(model)[0] or 0.01) * part)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(models(largest=11), budgets)
def test_no_plan_is_better_with_more_operators(model: Model, part: float) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tidelock.planning.exact.branching._AT_ONCE", 4)
        compare(model, (least_overhead(model)[0] or 0.01) * part)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("first", range(0, 800, 200))
def test_no_plan_is_better_than_in_thousands_of_draws(shape: str, first: int) -> None:
    """Seeded and with no limits between the numbers that Hypothesis likes; a failure names its seed."""
    with pytest.MonkeyPatch.context() as patch:
        for seed in range(first, first + 200):
            rng = random.Random(f"{shape} {seed}")
            patch.setattr("tidelock.planning.exact.branching._AT_ONCE", rng.choice((0, 2, 10)))
            model = drawn(rng, shape, rng.choice((2, 4, 5, 6, 7) if seed % 50 else (10, 12)))
            try:
                compare(model, (least_overhead(model)[0] or 0.01) * rng.uniform(1.01, 4.0))
            except AssertionError as error:
                raise AssertionError(f"seed {shape} {seed}: {model}") from error


def drawn(rng: random.Random, shape: str, size: int) -> Model:
    """As `models`, without what only pipelines have."""
    operators = []
    for place in range(size):
        near = range(max(0, place - 4), place)
        count = 0 if not place else 1 if shape != "dag" else rng.randint(1, min(3, place))
        chosen = [place - 1] if place and shape == "chain" else sorted(rng.sample(near, count))
        operators.append(
            Operator(
                name=f"o{place}",
                inputs=tuple(f"o{one}" for one in chosen),
                selectivity=rng.uniform(0.3, 1.3),
                processing_cost=rng.choice((1e-5, 1e-4)),
                state_size=rng.choice((0.0, 1.0, 1.0, 1.0)) * rng.uniform(1e3, 2e4),
                tuple_size=rng.uniform(0.1, 3.0),
                failure_rate=rng.choice((0.0, 1.0, 1.0, 1.0)) * rng.uniform(0.01, 0.5),
                anchor=rng.choice((None,) * 8 + ((True, False) if chosen else ())),
            )
        )
    return Model(
        tuple(operators),
        input_rate=rng.choice((1000.0, 50.0)),
        storage_cost=1.6e-6,
        segment_cost=rng.choice((0.0, 0.0, 0.01)),
        restart_cost=rng.choice((0.0, 0.5)),
        scope=rng.choice(("path", "path", "segment")),
        max_frequency=rng.choice((None, None, 0.5, 5.0)),
        head_frequency=rng.choice((None, None, 0.5, 5.0)),
    )


@MANY
@given(models())
def test_no_plan_has_less_overhead(model: Model) -> None:
    value, anchors = least_overhead(model)
    assert model.forced <= anchors <= model.forced | set(model.free)
    assert value == pytest.approx(overhead(model, anchors), rel=1e-9)
    assert value == pytest.approx(min(overhead(model, one) for one in plans(model)), rel=1e-9)
