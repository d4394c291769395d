"""The price, the forest and the frequencies with which a search bounds plans. Pure.

Every price gives valid bounds. The best one is what a little more budget would save under the best plan, and the
incumbent's is close to it; `PartialPrices.refine` looks for a better one. It also leaves out frequencies that no
plan below the incumbent has, so that the grid becomes finer. Not so where operators have several inputs or
segments restart as a whole: there every decision moves the best frequencies (`Forest`).
"""

from __future__ import annotations

import math

import numpy as np

from tidelock.planning.exact.climbing import Incumbent
from tidelock.planning.exact.forest import Forest
from tidelock.planning.exact.found import settle
from tidelock.planning.exact.frequencies import Grid, grid, span
from tidelock.planning.exact.relaxed import Marginals, Relaxation
from tidelock.planning.exact.shape import IN, OUT

_ROUNDING = 1e-11  # what rounding may take from a bound, relatively
_CELLS = 2_000_000  # at most so many rows times frequencies
_POINTS = 40
_ROUNDS = 12


class PartialPrices:
    """How to bound what can come of a partial decision."""

    def __init__(self, best: Incumbent) -> None:
        self.best = best
        self._budget = best.budget - best.shape.stored
        self._parents = _parents(best)
        self._root = self.forest(best.shape.status)
        self._points = max(8, min(_POINTS, _CELLS // len(self._root.heads)))
        self._price = _price(best)
        self._narrow: Grid | None = None

    def forest(self, status: list[int]) -> Forest:
        """What is left under a partial decision."""
        return Forest(self.best.shape, self._parents, status)

    def marginals(self, forest: Forest) -> Marginals:
        """Bounds of the recovery time."""
        found = self._relaxation(forest, self._price).marginals()
        credit = self._price * self._budget
        safe = abs(found.least) * _ROUNDING + credit
        return Marginals(
            found.least - safe, found.inside - safe, found.outside - safe, found.columns - safe, found.anchors
        )

    def _relaxation(self, forest: Forest, price: float) -> Relaxation:
        self.best.left -= 2 * self.best.shape.size + len(forest.heads) // 4  # as much work as so many plans
        return Relaxation(forest, price, self._narrow or self._grid(forest, price))

    def _grid(self, forest: Forest, price: float) -> Grid:
        return grid(self.best.shape.model, *span(forest, price), self._points)

    def refine(self) -> None:
        """Improve the incumbent, the price and the grid."""
        best = self.best
        self._climb()
        self._price = _price(best)
        self._ascend()
        for _ in range(3):
            found = self.marginals(self._root)
            if best.look(found.anchors[:, None]):
                best.climb(found.anchors, _ROUNDS)
            if best.shape.single and best.shape.model.scope == "path":
                self._narrow = self._narrower(found)

    def _climb(self) -> None:
        """From the incumbent; where inputs meet also from both extremes and from what a bound suggests."""
        best, status = self.best, np.array(self.best.shape.status)
        starts = [] if best.column is None else [best.column]
        if not best.shape.single:
            starts += [status == IN, status != OUT, self.marginals(self._root).anchors]
        for column in starts:
            best.climb(column, _ROUNDS * _ROUNDS)

    def _ascend(self) -> None:
        """Look for a price with a better bound: steps up and down, smaller where neither helps."""
        step, value = 1.3, self._bound(self._price)
        for _ in range(_ROUNDS):
            for price in (self._price * step, self._price / step):
                other = self._bound(price)
                if other > value:
                    self._price, value = price, other
                    break
            else:
                step = math.sqrt(step)
            if step < 1.03:
                return

    def _bound(self, price: float) -> float:
        return self._relaxation(self._root, price).total - price * self._budget

    def _narrower(self, found: Marginals) -> Grid:
        """The grid without the frequencies at both ends that no plan below the incumbent has."""
        now = self._narrow or self._grid(self._root, self._price)
        possible = found.columns[:, : now.inner] <= self.best.recovery
        some = possible.any(axis=1)
        first = np.where(some, possible.argmax(axis=1) - 1, 0).clip(0)
        last = np.where(some, now.inner - possible[:, ::-1].argmax(axis=1), now.inner - 1).clip(
            None, now.inner - 1
        )
        places = np.arange(len(first))
        return grid(self.best.shape.model, now.points[places, first], now.points[places, last], self._points)


def _price(best: Incumbent) -> float:
    """What a little more budget would save with the anchors of the incumbent."""
    model = best.shape.model
    settled = settle(model, best.shape.anchors(best.places()), best.budget)
    bound = math.inf if model.max_frequency is None else model.max_frequency * (1 - 1e-9)
    for part, frequency in zip(settled[0], settled[1].frequencies, strict=True) if settled else ():
        given = part.head and model.head_frequency is not None
        if part.commit > 0 and part.replay > 0 and 0 < frequency < bound and not given:
            return part.replay / part.commit / frequency / frequency
    return 1e-3 * best.recovery / best.budget if best.budget and best.recovery else 1.0


def _parents(best: Incumbent) -> list[int]:
    """For each operator the input with which most is replayed under the incumbent; -1 for a source."""
    shape, anchors = best.shape, frozenset(best.places())

    def again(place: int) -> float:
        return sum(shape.load[one] + shape.step[one] for one in shape.model.replayed(place, anchors))

    return [max(inputs, key=again) if len(inputs) > 1 else inputs[0] if inputs else -1 for inputs in shape.inputs]
