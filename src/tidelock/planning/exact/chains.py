"""Chains: the best of all divisions into intervals. Pure.

Theory of operation. A division of a chain is a path through the graph of `intervals` and costs (a, q, i): the sums
of A, √(P·B) and I. Its recovery time is a + q²/(budget - i). Because q²/c is the greatest of 2μq - μ²c over all μ,

    recovery ≥ a + 2μq + μ²i - μ²·budget     for every μ,

which is the length of the path under the weights A + 2μ√(PB) + μ²I. So a shortest path bounds every division, and
with the best μ = q/(budget - i) it does so closely. Three steps:

1. `_climb` looks for the best μ. Every shortest path on the way is a division; the best of them is the incumbent.
2. Edges that are on no path below the incumbent are dropped, by the distances to both ends.
3. `_Extension` extends the partial paths that are left, from the first operator to the last. One is dropped if its
   bound is above the incumbent, or if another that ends there has no greater a, q and i. The best μ of a partial
   path is about that of its shortest completion, which is a division that may be better than the incumbent.

What comes out is optimal. If the effort does not reach for step 3, only the partial paths with the least bounds
are extended, and the least bound of the others is the proof that is left.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from operator import itemgetter
from typing import NamedTuple

from tidelock.planning.exact.found import TIE, ProvedPlan, found
from tidelock.planning.exact.intervals import Arrayed, Graph, Listed
from tidelock.planning.exact.least import least_places
from tidelock.planning.exact.shape import IN, ModelLists

_FEW = 48  # up to here lists are faster than arrays
_ROUNDS = 16
_FAR = 250  # steps to the largest and smallest μ
_STEP = math.log(1.004)  # between the μ that partial paths are bounded with

_Label = tuple[float, float, float, int, int, "_Label | None"]
"""A partial path: a, q, i, its edges, where the last one begins, the path before it."""


class _Path(NamedTuple):
    a: float
    q: float
    i: float
    heads: tuple[int, ...]

    def recovery(self, budget: float) -> float:
        return _recovery(self.a, self.q, budget - self.i, budget)


def _recovery(a: float, q: float, left: float, budget: float) -> float:
    """The recovery time of a division; infinite if it does not fit."""
    if q == 0:
        return a if left >= -TIE * abs(budget) else math.inf
    return a + q * q / left if left > 0 else math.inf


def chain(shape: ModelLists, budget: float, effort: int) -> ProvedPlan | None:
    """The best division; None if none fits the budget. Frequencies have no bound here."""
    graph: Graph = Listed(shape) if shape.size <= _FEW else Arrayed(shape)
    left = budget - shape.stored
    best, bounds = _climb(graph, left)
    if best is None:
        # Rounding decides whether a plan with the least overhead just fits: `sums` has the last word.
        return found(shape, least_places(shape), budget, 0.0)
    recovery = best.recovery(left)
    if recovery - max(bounds.values()) <= TIE * recovery:
        return found(shape, _merged(shape, graph, best, left), budget, math.inf)
    mu = max(bounds, key=bounds.__getitem__) or _within(math.inf, 0.0, math.inf, best, left)
    heads, proved = _Extension(graph, left, best, mu, effort).run()
    return found(shape, heads, budget, proved)


# -- the best price


def _climb(graph: Graph, budget: float) -> tuple[_Path | None, dict[float, float]]:
    """An incumbent, and the bounds of some μ. Ascends: the shortest path at μ has its own best μ."""
    far, last = graph.forward(0.0, 0.0, 1.0)
    best = _walk(graph, last) if far[-1] < math.inf else None  # the least overhead: it fits if anything does
    if best is None or best.recovery(budget) == math.inf:
        return None, {}
    bounds: dict[float, float] = {}
    low, high = 0.0, math.inf
    mu = best.q / (budget - best.i) if best.q else 0.0
    for _ in range(_ROUNDS):
        far, last = graph.forward(1.0, 2 * mu, mu * mu)
        bounds[mu] = float(far[-1]) - mu * mu * budget
        path = _walk(graph, last)
        if _before(path, best, budget):
            best = path
        left = budget - path.i
        own = 0.0 if path.q == 0 and left >= 0 else path.q / left if left > 0 else math.inf
        if abs(own - mu) <= 1e-9 * mu:
            break
        low, high = (mu, high) if own > mu else (low, mu)
        mu = _within(own, low, high, best, budget)
        if mu in bounds or high - low <= 1e-6 * low:
            break
    return best, bounds


def _before(path: _Path, best: _Path, budget: float) -> bool:
    """Whether a division recovers faster, or as fast with fewer anchors."""
    new, old = path.recovery(budget), best.recovery(budget)
    return new < old * (1 - TIE) or (new <= old * (1 + TIE) and len(path.heads) < len(best.heads))


def _within(own: float, low: float, high: float, best: _Path, budget: float) -> float:
    """The next μ: the one that the path asks for, if it is between the bounds that are known."""
    if low < own < high and own < math.inf:
        return own
    if high < math.inf:
        return math.sqrt(low * high) if low else high / 16
    return 4 * low if low else math.sqrt(best.recovery(budget) / abs(budget)) if budget else 1.0


def _walk(graph: Graph, last: Sequence[int]) -> _Path:
    """Follow the last edges back."""
    a = q = i = 0.0
    heads = []
    end = len(last) - 1
    while end:
        start, more_a, more_q, more_i = graph.edge(last[end], end)
        a, q, i, end = a + more_a, q + more_q, i + more_i, start
        heads.append(start)
    return _Path(a, q, i, tuple(heads))


def _merged(shape: ModelLists, graph: Graph, best: _Path, budget: float) -> list[int]:
    """The division with fewer anchors, where it is as good without them."""
    path, limit = best, best.recovery(budget) * (1 + TIE)
    heads: list[int] = []
    end = shape.size
    for head in best.heads:
        if heads and shape.status[heads[-1]] != IN:
            first, second, both = graph.edge(head, heads[-1]), graph.edge(heads[-1], end), graph.edge(head, end)
            a, q, i = (
                now - x - y + z for now, x, y, z in zip(path[:3], first[1:], second[1:], both[1:], strict=True)
            )
            if _recovery(a, q, budget - i, budget) <= limit:
                path = _Path(a, q, i, ())
                heads.pop()
        if heads:
            end = heads[-1]
        heads.append(head)
    return heads


# -- partial paths


class _Price(NamedTuple):
    """A μ: distances to the end of the chain, the shortest paths to there, and their a, q and i."""

    y: float
    z: float
    far: Sequence[float]
    first: list[int]
    a: list[float]
    q: list[float]
    i: list[float]


def _priced(graph: Graph, mu: float) -> _Price:
    far, first = graph.backward(1.0, 2 * mu, mu * mu)
    size = len(first) - 1
    found = _Price(2 * mu, mu * mu, far, first, *([0.0] * (size + 1) for _ in range(3)))
    for start in range(size - 1, -1, -1):
        end = first[start]
        if far[start] < math.inf:
            _, a, q, i = graph.edge(start, end)
            found.a[start], found.q[start], found.i[start] = a + found.a[end], q + found.q[end], i + found.i[end]
    return found


class _Extension:
    """Step 3."""

    def __init__(self, graph: Graph, budget: float, best: _Path, mu: float, effort: int) -> None:
        self.graph = graph
        self.budget = budget
        self.mu = mu
        self.heads = best.heads
        self.limit = best.recovery(budget)
        self.left = effort
        self.dropped = math.inf
        slack = self.limit * (1 + TIE) + mu * mu * budget
        self.edges = graph.below(slack, 1.0, 2 * mu, mu * mu)
        self.prices: dict[int, _Price] = {}
        self.ends: list[list[_Label]] = [[(0.0, 0.0, 0.0, 0, 0, None)]]

    def run(self) -> tuple[tuple[int, ...], float]:
        """The best division's anchors, and the least bound of what was dropped for want of effort."""
        size = len(self.edges) - 1
        for end in range(1, size + 1):
            self.ends.append(self._fewer(self._candidates(end), size + 1 - end))
        return self._choose(self.ends[-1])

    def _price(self, step: int) -> _Price:
        if step not in self.prices:
            self.prices[step] = _priced(self.graph, self.mu * math.exp(step * _STEP))
        return self.prices[step]

    def _candidates(self, end: int) -> list[tuple[float, _Label]]:
        """The partial paths to ``end`` that can lead below the incumbent, with their bounds."""
        found = []
        middle = self._price(0)
        for start, more_a, more_q, more_i in self.edges[end]:
            for label in self.ends[start]:
                a, q, i = label[0] + more_a, label[1] + more_q, label[2] + more_i
                bound = a + middle.y * q + middle.z * (i - self.budget) + middle.far[end]
                if bound <= self.limit * (1 + TIE):
                    new: _Label = (a, q, i, label[3] + 1, start, label)
                    bound = max(bound, self._own_bound(new, end))
                    if bound <= self.limit * (1 + TIE):
                        found.append((bound, new))
        return found

    def _own_bound(self, label: _Label, end: int) -> float:
        """The bound with about the best μ of this partial path. On the way there are plans: look at them, too."""
        a, q, i = label[:3]
        step = 0
        for _ in range(2):
            price = self._price(step)
            all_q, left = q + price.q[end], self.budget - i - price.i[end]
            value = _recovery(a + price.a[end], all_q, left, self.budget)
            if value < self.limit * (1 - TIE):
                self.limit, self.heads = value, self._completed(label, price, end)
            if all_q <= 0 or left <= 0:
                break
            step = max(-_FAR, min(_FAR, round(math.log(all_q / left / self.mu) / _STEP)))
        price = self._price(step)
        return a + price.y * q + price.z * (i - self.budget) + float(price.far[end])

    def _completed(self, label: _Label, price: _Price, end: int) -> tuple[int, ...]:
        heads = list(_heads(label))
        while end < len(self.edges) - 1:
            heads.append(end)
            end = price.first[end]
        return tuple(heads)

    def _fewer(self, candidates: list[tuple[float, _Label]], ends: int) -> list[_Label]:
        """Keep what no other dominates, and of that what the effort is enough for."""
        most = max(1, self.left // ends)
        if len(candidates) > most:
            candidates.sort(key=itemgetter(0))
            self.dropped = min(self.dropped, candidates[most][0])
            del candidates[most:]
        self.left -= len(candidates)
        return _undominated([label for _, label in candidates])

    def _choose(self, labels: list[_Label]) -> tuple[tuple[int, ...], float]:
        """The incumbent, or a complete path that is as good and has fewer edges."""
        heads = self.heads
        for label in labels:
            a, q, i, edges = label[:4]
            value = _recovery(a, q, self.budget - i, self.budget)
            if value <= self.limit * (1 + TIE) and edges < len(heads):
                heads = _heads(label)
        return heads, self.dropped


_ORDER = itemgetter(0, 1, 2, 3)


def _undominated(labels: list[_Label]) -> list[_Label]:
    """Who has a smaller a, q or i than every other: in the order of a, a staircase of q and i."""
    if len(labels) < 2:
        return labels
    labels.sort(key=_ORDER)
    kept: list[_Label] = []
    qs: list[float] = []
    is_: list[float] = []
    for label in labels:
        _, q, i, _, _, _ = label
        at = bisect_right(qs, q)
        if at and is_[at - 1] <= i:
            continue
        stop = at
        while stop < len(is_) and is_[stop] >= i:
            stop += 1
        if at and qs[at - 1] == q:
            at -= 1
        qs[at:stop], is_[at:stop] = [q], [i]
        kept.append(label)
    return kept


def _heads(label: _Label) -> tuple[int, ...]:
    heads = []
    path: _Label | None = label
    while path is not None and path[3]:
        heads.append(path[4])
        path = path[5]
    return tuple(heads)
