import dataclasses
import math

import pytest
from tests.unit.planning.models import CHAIN, DIAMOND, anchor_sets, drawn, model, operator, recovery, with_anchors

from tidelock.errors import PlanError
from tidelock.planning.baselines import each_segment, one_segment
from tidelock.planning.costs import Configuration, costs


def test_one_segment_spends_the_whole_budget_on_one_frequency() -> None:
    found = one_segment(CHAIN, 3.2)
    assert found == Configuration(frozenset({0}), (pytest.approx(2.0),))


def test_each_segment_divides_the_budget_by_the_square_roots() -> None:
    found = each_segment(CHAIN, 6.0)
    assert found is not None
    assert found.anchors == frozenset({0, 1, 2})
    # Commits cost 0.1, 0.2, 0.3; replaying a minute 0.21, 0.12, 0.35; inputs 2 + 0.5 + 0.5.
    weights = [math.sqrt(0.1 * 0.21), math.sqrt(0.2 * 0.12), math.sqrt(0.3 * 0.35)]
    expected = [3.0 * w / sum(weights) / c for w, c in zip(weights, (0.1, 0.2, 0.3), strict=True)]
    assert found.frequencies == pytest.approx(tuple(expected))
    assert costs(CHAIN, found).overhead == pytest.approx(6.0)


def test_a_budget_that_the_inputs_use_up_is_infeasible() -> None:
    assert one_segment(CHAIN, 2.0) is None
    assert one_segment(CHAIN, 2.1) is not None
    assert each_segment(CHAIN, 3.0) is None
    assert each_segment(CHAIN, 3.1) is not None


def test_forced_operators_are_anchors_in_both_and_forbidden_ones_in_none() -> None:
    given = with_anchors(DIAMOND, {1: True, 2: False})
    for plan, anchors in ((one_segment, {0, 1}), (each_segment, {0, 1, 3})):
        found = plan(given, 50.0)
        assert found is not None
        assert found.anchors == anchors
        assert len(found.frequencies) == len(given.segments(found.anchors))


def test_the_models_bounds_hold() -> None:
    given = dataclasses.replace(CHAIN, max_frequency=1.5, head_frequency=0.25)
    found = each_segment(given, 50.0)
    assert found == Configuration(frozenset({0, 1, 2}), (0.25, 1.5, 1.5))


def test_stateless_operators_commit_all_the_time() -> None:
    given = model(operator("a", state_size=0.0), operator("b", "a"))
    found = each_segment(given, 3.0)
    assert found == Configuration(frozenset({0, 1}), (math.inf, pytest.approx(100.0)))
    assert costs(given, found).overhead == pytest.approx(3.0)


@pytest.mark.parametrize("seed", range(5))
def test_they_are_two_of_the_plans_there_are(seed: int) -> None:
    given = drawn("dag", seed)
    both = [recovery(given, plan(given, 2.0), 2.0) for plan in (one_segment, each_segment)]
    sets = list(anchor_sets(given))
    everyone = with_anchors(given, dict.fromkeys(given.free, True))
    assert recovery(everyone, one_segment(everyone, 2.0), 2.0) == pytest.approx(both[1])
    assert (sets[0], sets[-1]) == (given.forced, everyone.forced)


def test_a_delta_that_is_not_linear_is_refused() -> None:
    with pytest.raises(PlanError, match=r"^storage: .* linear"):
        one_segment(dataclasses.replace(CHAIN, storage=math.sqrt), 3.0)
