"""FastRecover's Algorithm 2: the anchors and frequencies of a tree, over steps of budget and frequency. Pure.

For every operator, from the leaves to the root: the best expected recovery time of its subtree within c steps of
overhead, if it commits at a frequency f and stores its inputs or not (eq. 3.5), and how often failures of the
subtree reach it (eq. 3.6). A child either stores its inputs, with any frequency, or has its parent's frequency and
makes the parent recover too.

What is left after an operator's own overhead goes to its children in whole steps. The thesis tries every split;
here children are merged one after the other, M(c) = min over c' of M(c - c') + child(c'), which finds the same
minimum in O(Z²) for each child. Merging begins with nobody, who needs nothing, so steps may stay unspent. All
frequencies are one array operation: arrays have steps on the first axis, frequencies on the second, and whether
inputs are stored on the third.

Two slips of the thesis are mended: a leaf's recovery time has its weight ρ like any other, and a step of the
frequency is F_max / F. One property is kept: a subtree is chosen for its own recovery time, although one that is a
little slower and reaches its parent less often may be better for the whole. So the plan need not be the best.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tidelock.planning.costs import Configuration
from tidelock.planning.model import Model
from tidelock.planning.thesis.fitting import check_count, check_frequency, check_tree
from tidelock.planning.thesis.timing import Floats, committing, fetching, loading, storing

Ints = NDArray[np.intp]
Bools = NDArray[np.bool_]

# An operator whose overhead is whole steps but for rounding is not made to pay for another one.
_ROUNDING = 1e-11


def tree_dp(
    model: Model, budget: float, steps: int, frequencies: int, max_frequency: float
) -> Configuration | None:
    """A good plan of a tree whose subtrees spend whole steps of the budget; None if none is found.

    ``frequencies`` is F, the number of frequencies. The largest is ``max_frequency`` or the model's.

    Raises:
        PlanError: the model is no tree, or it has a field that the thesis does not know.
    """
    check_tree(model, "tree-dp")
    check_count(steps, "steps")
    check_count(frequencies, "frequencies")
    check_frequency(max_frequency)
    largest = max_frequency if model.max_frequency is None else min(max_frequency, model.max_frequency)
    if largest <= 0:
        return None
    grid = _Grid(np.arange(1, frequencies + 1, dtype=np.float64) * (largest / frequencies), budget / steps, steps)
    tables: dict[int, _Table] = {}
    for place in reversed(range(len(model.operators))):
        tables[place] = _table(model, place, grid, tables)
    return _trace(model, grid, tables)


@dataclass(frozen=True)
class _Grid:
    """The frequencies, the width of a step of overhead, and the number of steps."""

    frequencies: Floats
    width: float
    steps: int


@dataclass(frozen=True)
class _Child:
    """How a child was merged.

    Attributes:
        spent: The steps it gets, by the steps of all children so far.
        stores: Whether it stores its inputs, by the steps it gets.
    """

    spent: Ints
    stores: Bools


@dataclass(frozen=True)
class _Table:
    """DP_rt, DP_fr and DP_oc of an operator.

    Attributes:
        recoveries: The best expected recovery time of its subtree.
        failures: How often failures reach it.
        needs: The steps of its own overhead, by frequency and whether it stores its inputs.
        children: How its readers were merged, in their order.
    """

    recoveries: Floats
    failures: Floats
    needs: Ints
    children: tuple[_Child, ...]


def _table(model: Model, place: int, grid: _Grid, tables: dict[int, _Table]) -> _Table:
    operator = model.operators[place]
    time = _recovering(model, place, grid)
    merged = np.zeros((grid.steps + 1, *time.shape))
    reaching = np.zeros_like(merged)
    children = []
    for reader in model.readers[place]:
        best, failures, stores = _options(tables[reader], time)
        merged, spent = _merge(merged, best)
        reaching = np.take_along_axis(failures, spent, axis=0) + np.take_along_axis(
            reaching, _steps(spent) - spent, axis=0
        )
        children.append(_Child(spent, stores))
    needs = _needs(model, place, grid)
    left = _steps(merged) - needs
    at = np.maximum(left, 0)
    found = (time + model.restart_cost) * operator.failure_rate + np.take_along_axis(merged, at, axis=0)
    return _Table(
        np.where((left >= 0) & _may_store(model, place), found, np.inf),
        operator.failure_rate + np.take_along_axis(reaching, at, axis=0),
        needs,
        tuple(children),
    )


def _recovering(model: Model, place: int, grid: _Grid) -> Floats:
    """rt(i, f, inp): load the state, fetch the inputs if they are stored, process them again."""
    time = loading(model)[place] + model.works[place] / grid.frequencies
    return np.stack([time, time + fetching(model, np.array(place), grid.frequencies)], axis=1)


def _needs(model: Model, place: int, grid: _Grid) -> Ints:
    """ch(i, f, inp) in whole steps, or more than there are."""
    state = committing(model, np.array(place), grid.frequencies)
    head = state + storing(model)[place] + model.segment_cost * grid.frequencies
    overhead = np.stack([state, head], axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        wanted = np.where(overhead == 0, 0.0, np.ceil(overhead / grid.width - _ROUNDING))
    return np.minimum(wanted, grid.steps + 1).astype(np.intp)


def _may_store(model: Model, place: int) -> Bools:
    """Whether an operator may leave its inputs to others, and whether it may store them."""
    return np.array([place not in model.forced, place in model.forced or place in model.free])


def _options(child: _Table, time: Floats) -> tuple[Floats, Floats, Bools]:
    """The better of a child that stores its inputs and one that does not, for each state of its parent.

    With how often failures of the child reach the parent, and whether it stores.
    """
    alone = child.recoveries[:, :, 1].min(axis=1)[:, None, None]
    reaching = child.failures[:, :, :1]
    together = reaching * time + child.recoveries[:, :, :1]
    stores = alone <= together
    return np.where(stores, alone, together), np.where(stores, 0.0, reaching), stores


def _merge(merged: Floats, child: Floats) -> tuple[Floats, Ints]:
    """The best split of every number of steps between those merged so far and a child, and the child's part."""
    found = np.full_like(merged, np.inf)
    spent = np.zeros(merged.shape, dtype=np.intp)
    for part in range(len(merged)):
        options = merged[: len(merged) - part] + child[part]
        better = options < found[part:]
        np.copyto(found[part:], options, where=better)
        np.copyto(spent[part:], part, where=better)
    return found, spent


def _steps(like: NDArray[np.generic]) -> Ints:
    """The number of steps at each place of an array."""
    return np.broadcast_to(np.arange(len(like))[:, None, None], like.shape)


def _trace(model: Model, grid: _Grid, tables: dict[int, _Table]) -> Configuration | None:
    """The plan behind the best entry of the root; None if there is none."""
    if not np.isfinite(tables[0].recoveries[-1, :, 1]).any():
        return None
    anchors: dict[int, float] = {}
    ahead: list[tuple[int, int, int | None]] = [(0, grid.steps, None)]
    while ahead:
        place, c, given = ahead.pop()
        table, stores = tables[place], int(given is None)
        f = int(table.recoveries[c, :, 1].argmin()) if given is None else given
        if stores:
            anchors[place] = float(grid.frequencies[f])
        c -= int(table.needs[f, stores])
        for reader, child in zip(reversed(model.readers[place]), reversed(table.children), strict=True):
            part = int(child.spent[c, f, stores])
            ahead.append((reader, part, None if child.stores[part, f, stores] else f))
            c -= part
    found = frozenset(anchors)
    return Configuration(found, tuple(anchors[segment[0]] for segment in model.segments(found)))
