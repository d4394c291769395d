"""Short words for the models of these tests."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from tidelock.planning.costs import Configuration, costs
from tidelock.planning.drawing import draw_chain, draw_dag, draw_tree
from tidelock.planning.model import Model, Operator

A = {"selectivity": 0.5, "processing_cost": 0.001, "state_size": 10.0, "tuple_size": 2.0, "failure_rate": 0.1}
B = {"selectivity": 1.0, "processing_cost": 0.002, "state_size": 20.0, "tuple_size": 1.0, "failure_rate": 0.2}
C = {"selectivity": 1.0, "processing_cost": 0.004, "state_size": 30.0, "tuple_size": 1.0, "failure_rate": 0.5}
D = {"selectivity": 1.0, "processing_cost": 0.001, "state_size": 40.0, "tuple_size": 1.0, "failure_rate": 1.0}
PLAIN = {"selectivity": 1.0, "processing_cost": 1.0, "state_size": 1.0, "tuple_size": 1.0, "failure_rate": 1.0}


def operator(name: str, inputs: str = "", attributes: dict[str, float] = PLAIN, **changes: Any) -> Operator:
    """An operator whose inputs have names of one letter."""
    return Operator(name=name, inputs=tuple(inputs), **(attributes | changes))


def model(*operators: Operator, input_rate: float = 100.0, storage_cost: float = 0.01, **fields: Any) -> Model:
    return Model(operators, input_rate, storage_cost, **fields)


CHAIN = model(operator("a", "", A), operator("b", "a", B), operator("c", "b", C))
TREE = model(operator("a", "", A), operator("b", "a", B), operator("c", "a", C))
DIAMOND = model(operator("a", "", A), operator("b", "a", B), operator("c", "a", C), operator("d", "bc", D))


def drawn(shape: str, seed: int, n: int = 6, **fields: Any) -> Model:
    """A random model in which anchors are dear and operators differ: the planner has to choose."""
    rng = np.random.default_rng(seed)
    draw = {"chain": draw_chain, "tree": draw_tree, "dag": draw_dag}[shape]
    found = draw(rng, n, input_rate=20_000.0, storage_cost=5e-6)
    operators = tuple(
        dataclasses.replace(
            one,
            selectivity=rng.uniform(0.5, 1.2),
            processing_cost=rng.uniform(0, 3e-5),
            state_size=one.state_size * 10 ** rng.uniform(-1.5, 0),
            tuple_size=rng.uniform(0.5, 3.0),
        )
        for one in found.operators
    )
    extra = {"segment_cost": rng.uniform(0, 0.2), "restart_cost": rng.random()}
    return dataclasses.replace(found, **({"operators": operators} | extra | fields))


def with_anchors(given: Model, anchors: dict[int, bool]) -> Model:
    operators = tuple(
        dataclasses.replace(one, anchor=anchors.get(place)) for place, one in enumerate(given.operators)
    )
    return dataclasses.replace(given, operators=operators)


def anchor_sets(given: Model) -> Iterator[frozenset[int]]:
    for size in range(len(given.free) + 1):
        for chosen in itertools.combinations(given.free, size):
            yield given.forced | frozenset(chosen)


def recovery(given: Model, found: Configuration | None, budget: float) -> float:
    """The recovery time of a plan, which has to keep to the budget; infinite if there is none."""
    if found is None:
        return math.inf
    result = costs(given, found)
    assert result.overhead <= budget * (1 + 1e-9)
    return result.recovery
