"""The recovery times of many anchor sets at once. Pure.

A set is a column of booleans, and every step below works on all columns. With at most one input for each operator
and the scope of a path, a column needs two passes: down, what is loaded and replayed on the way from the anchor;
up, the sums of the segment below each operator, closed where an anchor is. In general, `_components` follows which
operators are replayed together and which are connected.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tidelock.planning.exact.found import TIE
from tidelock.planning.exact.shape import Bools, Floats, ModelLists

_AT_ONCE = 4_000_000  # numbers in a temporary array


def recoveries(shape: ModelLists, columns: Bools, budget: float) -> Floats:
    """The least recovery time of each anchor set within the budget; infinite if it does not fit."""
    path = shape.single and shape.model.scope == "path"
    width = max(1, _AT_ONCE // (shape.size if path else shape.size * shape.size))
    parts = [columns[:, at : at + width] for at in range(0, columns.shape[1], width)]
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        return np.concatenate([_settle(shape, budget, (_tree if path else _graph)(shape, part)) for part in parts])


def overheads(shape: ModelLists, columns: Bools) -> Floats:
    """The least overhead of each anchor set: segments without a head never commit."""
    sums = _graph(shape, columns)
    found: Floats = sums.storing + (shape.model.head_frequency or 0.0) * (sums.commit * sums.head).sum(axis=0)
    return found


class _Sums(NamedTuple):
    """The sums of columns; P, B and heads by segment, with its first operator, 0 for the others."""

    fixed: Floats
    storing: Floats
    commit: Floats
    replay: Floats
    head: Bools


def _tree(shape: ModelLists, anchors: Bools) -> _Sums:
    count = anchors.shape[1]
    fixed = np.zeros(count)
    loaded: list[Floats] = []
    again: list[Floats] = []
    for place, inputs in enumerate(shape.inputs):
        load, step, fetch = shape.load[place], shape.step[place], shape.fetch[place]
        if inputs:
            at = anchors[place]
            loaded.append(np.where(at, load, loaded[inputs[0]] + load))
            again.append(np.where(at, step + fetch, again[inputs[0]] + step))
        else:
            loaded.append(np.full(count, load))
            again.append(np.full(count, step + fetch))
        if shape.fail[place]:
            fixed += shape.fail[place] * (shape.model.restart_cost + loaded[place])
    commit, replay = np.zeros((2, shape.size, count))
    head = np.repeat(np.array(shape.heads)[:, None], count, axis=1)
    for place in range(shape.size - 1, -1, -1):
        commit[place] += shape.commit[place]
        replay[place] += shape.fail[place] * again[place]
        if shape.inputs[place]:
            above, joined = shape.inputs[place][0], ~anchors[place]
            commit[above] += joined * commit[place]
            replay[above] += joined * replay[place]
            head[above] |= joined & head[place]
    commit += shape.model.segment_cost
    return _Sums(fixed, np.asarray(shape.store) @ anchors, commit * anchors, replay * anchors, head & anchors)


def _graph(shape: ModelLists, anchors: Bools) -> _Sums:
    """For every topology and scope."""
    count, model = anchors.shape[1], shape.model
    cells = np.arange(count)
    first = _components(shape, anchors)
    load, step, fetch = np.asarray(shape.load), np.asarray(shape.step), np.asarray(shape.fetch)
    commit, replay, failures, loads, fixed = np.zeros((5, shape.size, count))
    head = np.zeros((shape.size, count), dtype=bool)
    for place, reached in enumerate(_replayed(shape, anchors)):
        at = (first[place], cells)
        commit[at] += shape.commit[place]
        loads[at] += load[place]
        head[at] |= shape.heads[place]
        failures[at] += shape.fail[place]
        if model.scope == "segment":
            replay[at] += step[place] + fetch[place] * anchors[place]
        elif shape.fail[place]:
            upto = slice(0, place + 1)
            fixed[at] += shape.fail[place] * (model.restart_cost + load[upto] @ reached)
            replay[at] += shape.fail[place] * (step[upto] @ reached + fetch[upto] @ (reached * anchors[upto]))
    if model.scope == "segment":
        replay *= failures
        fixed = failures * (model.restart_cost + loads)
    commit[first == np.arange(shape.size)[:, None]] += model.segment_cost
    return _Sums(fixed.sum(axis=0), np.asarray(shape.store) @ anchors, commit, replay, head)


def _components(shape: ModelLists, anchors: Bools) -> NDArray[np.int64]:
    """For every operator and column, the first operator of its segment."""
    first = np.repeat(np.arange(shape.size)[:, None], anchors.shape[1], axis=1)
    for place, inputs in enumerate(shape.inputs):
        for one in inputs:
            here, there = first[place], np.where(anchors[place], first[place], first[one])
            low, high = np.minimum(here, there), np.maximum(here, there)
            part = first[: place + 1]
            first[: place + 1] = np.where(part == high, low, part)
    return first


def _replayed(shape: ModelLists, anchors: Bools) -> Iterator[Floats]:
    """For every operator, who is replayed with it (rows) in each column."""
    reached: list[Floats] = []
    for place, inputs in enumerate(shape.inputs):
        found = np.zeros((place + 1, anchors.shape[1]))
        for one in inputs:
            np.maximum(found[: one + 1], reached[one], out=found[: one + 1])
        found *= ~anchors[place]
        found[place] = 1.0
        reached.append(found)
        yield found


def _settle(shape: ModelLists, budget: float, sums: _Sums) -> Floats:
    """The best frequencies of all segments, as `sums.share` has it."""
    given, bound = shape.model.head_frequency, shape.model.max_frequency
    fixed, left, commits, replays = sums.fixed, budget - shape.stored - sums.storing, sums.commit, sums.replay
    if given is not None:
        left = left - given * (commits * sums.head).sum(axis=0)
        fixed = fixed + np.where(sums.head & (replays > 0), replays / given, 0.0).sum(axis=0)
        commits, replays = commits * ~sums.head, replays * ~sums.head
    fits = left >= -TIE * abs(budget)
    if bound is not None:
        fixed, left, replays = _capped(bound, fixed, left, commits, replays)
    q = (np.sqrt(commits) * np.sqrt(replays)).sum(axis=0)
    again = np.where(q == 0, 0.0, np.where(left > 0, q * q / left, math.inf))
    found: Floats = np.where(fits, fixed + again, math.inf)
    return found


def _capped(
    bound: float, fixed: Floats, left: Floats, commits: Floats, replays: Floats
) -> tuple[Floats, Floats, Floats]:
    """Give the bound to whoever would exceed it, until nobody does."""
    over = (commits == 0) & (replays > 0)
    while True:
        fixed = fixed + np.where(over, replays / bound, 0.0).sum(axis=0)
        left = left - (commits * over).sum(axis=0) * bound
        replays = np.where(over, 0.0, replays)
        share = left / (np.sqrt(commits) * np.sqrt(replays)).sum(axis=0)
        over = (replays > 0) & (np.sqrt(replays / commits) * share > bound)
        if not over.any():
            return fixed, left, replays
