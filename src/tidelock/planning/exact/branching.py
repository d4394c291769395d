"""Any topology: branch and bound over the anchors. Pure.

Theory of operation. A node of the search is a partial decision: operators that are anchors, that are none, and
that are open. `relaxed` bounds what can come of it and says what each single choice would cost; a choice that
costs more than the incumbent is decided the other way, for good. When few operators are open, all that is left
is tried at once (`many`). Otherwise the search branches on the operator where the wrong choice costs most, and
goes on with the node of the least bound; that bound is what is proved when the effort is used up.

The effort counts the plans that are evaluated, and for each bound some more. As long as it is enough to try all
plans, so much of it is reserved for that: with the default, up to 17 open operators are always solved.
"""

from __future__ import annotations

import heapq
import math

import numpy as np

from tidelock.planning.exact.climbing import Incumbent
from tidelock.planning.exact.found import TIE, ProvedPlan, found
from tidelock.planning.exact.least import least_places
from tidelock.planning.exact.pricing import PartialPrices
from tidelock.planning.exact.relaxed import Marginals
from tidelock.planning.exact.shape import IN, OPEN, OUT, Bools, ModelLists, choices

_AT_ONCE = 10  # so many open operators are tried at once, without a bound
_BATCH = 16  # so many plans that bounds suggest are evaluated together

_Node = tuple[float, int, list[int]]
"""A bound, a number that orders nodes of the same bound, and what is decided."""


def search(shape: ModelLists, budget: float, effort: int) -> ProvedPlan | None:
    """The best plan that the effort is enough for; None if there is none within the budget."""
    best = Incumbent(shape, budget, effort)
    if 1 << min(shape.status.count(OPEN), 60) <= min(1 << _AT_ONCE, effort):
        _try_all(best, shape.status)
        bound = math.inf
    else:
        bound = _search(best)
    if best.column is None:
        # Rounding decides whether a plan with the least overhead just fits: `sums` has the last word.
        return found(shape, least_places(shape), budget, 0.0)
    return found(shape, best.places(), budget, bound)


def _search(best: Incumbent) -> float:
    shape = best.shape
    status = np.array(shape.status)
    best.look(np.stack([status == IN, status != OUT, shape.column(least_places(shape))], axis=1))
    if best.column is None or best.recovery == math.inf:
        return best.recovery
    return _Branching(best).run()


def _try_all(best: Incumbent, status: list[int]) -> None:
    """Look at every plan that agrees with a partial decision."""
    open_ = [place for place, one in enumerate(status) if one == OPEN]
    every = choices(len(open_))
    columns = np.repeat(np.array(status)[:, None] == IN, every.shape[1], axis=1)
    columns[open_] = every
    best.look(columns)


class _Branching:
    def __init__(self, best: Incumbent) -> None:
        self.best = best
        self.prices = PartialPrices(best)
        self.few = _AT_ONCE if best.shape.single else max(0, _AT_ONCE - 3)
        self.count = 0
        self.suggested: list[Bools] = []

    def run(self) -> float:
        """Search; return the least bound of what is left when the effort is used up, infinite if nothing is."""
        best = self.best
        heap = self._expand((-math.inf, 0, list(best.shape.status)))
        if heap:  # it is not that easy
            self.prices.refine()
            heap = self._expand((-math.inf, 0, list(best.shape.status)))
        heapq.heapify(heap)
        every = 1 << min(best.shape.status.count(OPEN), 60)
        reserve = every if every <= best.left else 0
        while heap and heap[0][0] < best.recovery * (1 - TIE):
            if best.left <= reserve:
                return self._rest(heap[0][0], reserve)
            for node in self._expand(heapq.heappop(heap)):
                heapq.heappush(heap, node)
        return math.inf

    def _rest(self, bound: float, reserve: int) -> float:
        """Try all plans, if effort was reserved for that."""
        if not reserve:
            return bound
        _try_all(self.best, self.best.shape.status)
        return math.inf

    def _expand(self, node: _Node) -> list[_Node]:
        """Decide what can be decided, and try the rest or branch."""
        bound, _, status = node
        while status.count(OPEN) > self.few:
            found = self.prices.marginals(self.prices.forest(status))
            bound = max(bound, found.least)
            self._suggest(found.anchors)
            limit = self.best.recovery
            if bound > limit * (1 + TIE):
                return []
            before, status = status, _decided(status, found, limit * (1 + TIE))
            if status.count(OPEN) > 0.8 * before.count(OPEN):
                return self._children(bound, status, found)
        _try_all(self.best, status)
        return []

    def _suggest(self, column: Bools) -> None:
        """Evaluate the plans that bounds suggest, the first at once and then some together."""
        self.suggested.append(column)
        if self.count == 0 or len(self.suggested) == _BATCH:
            if self.best.look(np.stack(self.suggested, axis=1)) and self.best.column is not None:
                self.best.climb(self.best.column, _BATCH)
            self.suggested.clear()

    def _children(self, bound: float, status: list[int], found: Marginals) -> list[_Node]:
        """Both choices for the operator where the wrong one costs most."""
        open_ = [place for place, one in enumerate(status) if one == OPEN]
        at = max(open_, key=lambda place: float(found.inside[place] + found.outside[place]))
        nodes = []
        for choice, lower in ((OUT, found.outside[at]), (IN, found.inside[at])):
            self.count += 1
            nodes.append((max(bound, float(lower)), self.count, [*status[:at], choice, *status[at + 1 :]]))
        return nodes


def _decided(status: list[int], found: Marginals, limit: float) -> list[int]:
    """Decide every operator of which one choice costs more than ``limit``."""
    return [
        one if one != OPEN else OUT if inside > limit else IN if outside > limit else OPEN
        for one, inside, outside in zip(status, found.inside.tolist(), found.outside.tolist(), strict=True)
    ]
