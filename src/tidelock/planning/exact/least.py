"""The least overhead that a plan can have. Pure.

Frequencies can be as small as one likes, so what is left is the storing of the anchors' inputs and, where the
frequency of heads is given, the commits of the segments with a head. Whoever is in such a segment costs its
commits; an anchor that keeps others out of it costs its storing. That is a cut. On a forest one pass from the last
operator to the first finds it. In general an operator and its inputs are all on one side, or the operator is an
anchor; so the cut is a minimal one in a network with a gate for each operator.

Only that a segment with several heads commits once, and not once for each, is no part of a cut. Where that
matters, small topologies are tried in full and larger ones get the cut.
"""

from __future__ import annotations

import math
from collections import deque

import numpy as np

from tidelock.planning.exact.many import overheads
from tidelock.planning.exact.shape import IN, OPEN, OUT, ModelLists, choices
from tidelock.planning.model import Model
from tidelock.planning.sums import sums

_IN_FULL = 18  # so many open operators are tried in full
_AT_ONCE = 12

Network = list[dict[int, float]]
"""What can still flow, from each node to others."""


def least_overhead(model: Model) -> tuple[float, frozenset[int]]:
    """The infimum of the overheads of all plans, and an anchor set that has it.

    It is exact unless several heads can be in one segment, `segment_cost` and `head_frequency` are given,
    operators have several inputs and there are more than about 20 of them; then it is that of a plan close to
    the least.

    Raises:
        PlanError: Δ is not linear.
    """
    shape = ModelLists(model)
    anchors = shape.anchors(least_places(shape))
    given, total = model.head_frequency or 0.0, 0.0
    for segment in model.segments(anchors):
        one = sums(model, segment, anchors)
        total += one.storing + (one.commit * given if one.head and given else 0.0)
    return total, anchors


def least_places(shape: ModelLists) -> frozenset[int]:
    """Where segments begin for the least overhead."""
    status, given = shape.status, shape.model.head_frequency
    if given and shape.single:
        return _forest_cut(shape, given)
    if given and sum(shape.heads) > 1 and shape.model.segment_cost and status.count(OPEN) <= _IN_FULL:
        return _in_full(shape)
    sure = frozenset(at for at, one in enumerate(status) if one == IN or (one == OPEN and shape.store[at] < 0))
    return sure | _cut(shape, given) if given else sure


def _forest_cut(shape: ModelLists, given: float) -> frozenset[int]:
    """With one input at most: the least cost of all below each operator, in a head's segment and in none."""
    inside = [given * one for one in shape.commit]
    outside = [math.inf if head else 0.0 for head in shape.heads]
    begun = [0.0] * shape.size
    for place in range(shape.size - 1, -1, -1):
        begun[place] = shape.store[place] + min(inside[place] + given * shape.model.segment_cost, outside[place])
        for one in shape.inputs[place]:
            inside[one] += _less(shape.status[place], inside[place], begun[place])
            outside[one] += _less(shape.status[place], outside[place], begun[place])
    found, headed = set(), [False] * shape.size
    for place, inputs in enumerate(shape.inputs):
        joined = bool(inputs) and (inside if headed[inputs[0]] else outside)[place] <= begun[place]
        if shape.status[place] == OUT or (shape.status[place] == OPEN and joined):
            headed[place] = headed[inputs[0]]
        else:
            found.add(place)
            headed[place] = inside[place] + given * shape.model.segment_cost < outside[place]
    return frozenset(found)


def _less(status: int, joined: float, begun: float) -> float:
    return begun if status == IN else joined if status == OUT else min(joined, begun)


def _in_full(shape: ModelLists) -> frozenset[int]:
    """The best of all anchor sets, of equals the one with the fewest anchors."""
    open_ = np.array([place for place, one in enumerate(shape.status) if one == OPEN], dtype=int)
    inner = choices(min(len(open_), _AT_ONCE))
    best: tuple[float, int, list[int]] = (math.inf, 0, [])
    for outer in choices(len(open_) - len(inner)).T:
        columns = np.repeat(np.array(shape.status)[:, None] == IN, inner.shape[1], axis=1)
        columns[open_[: len(inner)]] = inner
        columns[open_[len(inner) :]] = outer[:, None]
        values, sizes = overheads(shape, columns), columns.sum(axis=0)
        at = int(np.lexsort((sizes, values))[0])
        if (float(values[at]), int(sizes[at])) < best[:2]:
            best = (float(values[at]), int(sizes[at]), np.flatnonzero(columns[:, at]).tolist())
    return frozenset(best[2])


# -- a minimal cut


def _cut(shape: ModelLists, given: float) -> frozenset[int]:
    """Who is an anchor between those that commit with the sources and those that do not."""
    network, start, end = _network(shape, given)
    while _push(network, start, end):
        pass
    near = _reached(network, start)
    found = set()
    for place, inputs in enumerate(shape.inputs):
        sides = {one in near for one in (place, *inputs)}
        if len(sides) > 1 and shape.status[place] == OPEN:
            found.add(place)
    return frozenset(found)


def _network(shape: ModelLists, given: float) -> tuple[Network, int, int]:
    """Operators, two sides of the gate of each, and both ends."""
    size = shape.size
    network: Network = [{} for _ in range(3 * size + 2)]
    start, end = 3 * size, 3 * size + 1

    def join(one: int, other: int, most: float) -> None:
        network[one][other] = network[one].get(other, 0.0) + most
        network[other].setdefault(one, 0.0)

    for place, inputs in enumerate(shape.inputs):
        join(place, end, given * shape.commit[place])
        if shape.heads[place]:
            join(start, place, math.inf)
        if shape.status[place] != IN and (shape.status[place] == OUT or shape.store[place] >= 0):
            front, back = size + place, 2 * size + place
            join(front, back, math.inf if shape.status[place] == OUT else shape.store[place])
            for one in (place, *inputs):
                join(one, front, math.inf)
                join(back, one, math.inf)
    return network, start, end


def _push(network: Network, start: int, end: int) -> bool:
    """Push as much as a shortest way with room takes; False if there is none."""
    before = _reached(network, start, end)
    if end not in before:
        return False
    way = [end]
    while way[-1] != start:
        way.append(before[way[-1]])
    steps = list(zip(way[1:], way, strict=False))
    most = min(network[one][other] for one, other in steps)
    for one, other in steps:
        network[one][other] -= most
        network[other][one] += most
    return True


def _reached(network: Network, start: int, end: int | None = None) -> dict[int, int]:
    """Who can be reached, and from where."""
    before, ahead = {start: start}, deque([start])
    while ahead and end not in before:
        one = ahead.popleft()
        for other, room in network[one].items():
            if room > 0 and other not in before:
                before[other] = one
                ahead.append(other)
    return before
