"""Random topologies with the attributes of FastRecover 4.1 and table 4.1. Pure: chance comes in as a generator.

Time is in minutes and data in kilobytes. Where the thesis leaves room, it is read like this:

- Selectivity is uniform in [0.1, 1), as the text says; the table has 0 as the lower end.
- One failure rate is drawn for each topology, and that of an operator is this rate times its parallelism (2 to 6)
  over the mean parallelism. So operators fail in proportion to their parallelism, 0.1 times a minute on average.
- "Variance 0.03" is read as the standard deviation. As a variance it would make more than a quarter of the rates
  negative. The few negative ones that are left are drawn again.
- The thesis does not tell the slope of Δ.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tidelock.planning.model import Model, Operator

STORAGE_COST = 1.6e-6
"""The slope of Δ in minutes per kilobyte."""

_PROCESSING_COST = 1e-5
_STATE_SIZES = (10_000.0, 20_000.0)
_SELECTIVITIES = (0.1, 1.0)
_FAILURE_RATE = (0.1, 0.03)
_PARALLELISM = (2, 6)


def draw_chain(
    rng: np.random.Generator, n: int = 15, input_rate: float = 3000.0, storage_cost: float = STORAGE_COST
) -> Model:
    """A chain of ``n`` operators."""
    return _model(rng, [(place - 1,) if place else () for place in range(n)], input_rate, storage_cost)


def draw_tree(
    rng: np.random.Generator,
    n: int = 15,
    input_rate: float = 1000.0,
    fan_out: int = 3,
    storage_cost: float = STORAGE_COST,
) -> Model:
    """A tree of ``n`` operators, each read by at most ``fan_out``; each reads any earlier one that has room."""
    inputs: list[tuple[int, ...]] = [()]
    room = [fan_out]
    for _ in range(1, n):
        parent = int(rng.choice([place for place, left in enumerate(room) if left]))
        room[parent] -= 1
        room.append(fan_out)
        inputs.append((parent,))
    return _model(rng, inputs, input_rate, storage_cost)


def draw_dag(
    rng: np.random.Generator,
    n: int,
    input_rate: float = 1000.0,
    max_inputs: int = 3,
    sources: int = 1,
    storage_cost: float = STORAGE_COST,
) -> Model:
    """An acyclic topology of ``n`` operators that begins with ``sources``; the others read 1 to ``max_inputs``."""
    inputs: list[tuple[int, ...]] = [()] * min(sources, n)
    for place in range(len(inputs), n):
        count = int(rng.integers(1, min(max_inputs, place) + 1))
        inputs.append(tuple(sorted(int(one) for one in rng.choice(place, size=count, replace=False))))
    return _model(rng, inputs, input_rate, storage_cost)


def _model(
    rng: np.random.Generator, inputs: Sequence[tuple[int, ...]], input_rate: float, storage_cost: float
) -> Model:
    common = _common_rate(rng)
    operators = tuple(
        Operator(
            name=_name(place),
            inputs=tuple(map(_name, read)),
            selectivity=float(rng.uniform(*_SELECTIVITIES)),
            processing_cost=_PROCESSING_COST,
            state_size=float(rng.uniform(*_STATE_SIZES)),
            tuple_size=1.0,
            failure_rate=common * _relative_parallelism(rng),
        )
        for place, read in enumerate(inputs)
    )
    return Model(operators, input_rate, storage_cost)


def _name(place: int) -> str:
    return f"op{place + 1}"


def _common_rate(rng: np.random.Generator) -> float:
    while (rate := float(rng.normal(*_FAILURE_RATE))) <= 0:
        continue
    return rate


def _relative_parallelism(rng: np.random.Generator) -> float:
    least, most = _PARALLELISM
    return int(rng.integers(least, most, endpoint=True)) / ((least + most) / 2)
