"""Recoveries that share the machine with everything else."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from tests.unit.planning.models import CHAIN

from tidelock.planning.answers import explain
from tidelock.planning.choosing import METHODS, choose
from tidelock.planning.costs import Configuration, contention, costs
from tidelock.planning.drawing import draw_chain


def test_a_recovery_takes_longer_by_what_the_others_take_of_the_machine() -> None:
    alone = Configuration(frozenset({0}), (2.0,))
    quiet = costs(CHAIN, alone)
    load = quiet.overhead + sum(CHAIN.works)
    shared = costs(dataclasses.replace(CHAIN, capacity=2 * load), alone)
    assert shared.recoveries == pytest.approx([2 * time for time in quiet.recoveries])
    assert shared.recovery == pytest.approx(2 * quiet.recovery)
    assert shared.overhead == quiet.overhead
    assert contention(dataclasses.replace(CHAIN, capacity=load), quiet.overhead) == math.inf


@pytest.mark.parametrize("seed", range(10))
def test_a_plan_spends_less_than_its_budget_where_that_recovers_faster(seed: int) -> None:
    model = draw_chain(np.random.default_rng(seed), 8, storage_cost=4e-5)
    least = choose(model, 1e6).costs.overhead
    budget = 3 * min(least, 1.0)
    shared = dataclasses.replace(model, capacity=sum(model.works) + 1.2 * budget)
    choice = choose(shared, budget)
    everything = costs(shared, choose(model, budget).configuration)
    assert choice.costs.recovery <= everything.recovery
    assert choice.costs.overhead <= budget * (1 + 1e-9)
    rivals = [choose(shared, budget, method).costs.recovery for method in ("one-segment", "each-segment")]
    assert choice.costs.recovery <= min(rivals) * (1 + 1e-9)
    assert len(explain(shared, budget, choice.configuration.anchors)) == 8


def test_every_method_can_share_the_machine() -> None:
    model = dataclasses.replace(draw_chain(np.random.default_rng(1), 6), capacity=10.0)
    for method in METHODS:
        if method != "tree-dp":
            assert math.isfinite(choose(model, 0.4, method).costs.recovery)
