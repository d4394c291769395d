"""Lower bounds for every topology: a price on the overhead, and one input for each operator. Pure.

Theory of operation. For every price λ on the overhead, a plan within the budget recovers in at least

    recovery + λ·overhead - λ·budget,

so the least value of this over all plans, within the budget or not, is a bound. Now every segment stands for
itself: with the frequency η it pays A + B/η + λ(Pη + I). Three steps make that easy to minimise:

- Each operator keeps one of its inputs, its parent (`forest`). A segment falls into pieces, each with one anchor,
  that may have different frequencies; that only lowers the value.
- In a forest an operator pays for itself, given the anchor h above it and its frequency: R(v, h, η). With D for
  the operator and all below it, and D* for the same if it is an anchor itself,

      D(v, h, η) = R(v, h, η) + Σ over children c: the less of D(c, h, η) and D*(c)
      D*(v)      = λI + the least over η: D(v, v, η) + λη·segment_cost

- η is from a grid (`frequencies`), which costs next to nothing of the bound.

This takes one pass from the last operator to the first. A second one, from the sources on, finds the least value
with each operator as an anchor, and as none: what a search needs to decide operators for good.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tidelock.planning.exact.forest import Forest
from tidelock.planning.exact.frequencies import Grid
from tidelock.planning.exact.shape import IN, OUT, Bools, Floats

_HUGE = 1e250


@dataclass(frozen=True)
class Marginals:
    """Lower bounds of the recovery time.

    Attributes:
        least: Of all plans.
        inside: With each operator as an anchor.
        outside: With each operator as none.
        columns: With each operator as an anchor, for each frequency of the grid.
        anchors: The plan of the least value.
    """

    least: float
    inside: Floats
    outside: Floats
    columns: Floats
    anchors: Bools


class Relaxation:
    """The values of one forest with one price and one grid."""

    def __init__(self, forest: Forest, price: float, grid: Grid) -> None:
        self.forest = forest
        self.price = price
        self.opening = (price * forest.opening)[:, None] * grid.points * grid.scale
        self.below = self._own(grid)
        size = forest.shape.size
        self.stars = [_HUGE] * size
        self.less: list[Floats | None] = [None] * size
        self.total = 0.0
        self._up()

    def _own(self, grid: Grid) -> Floats:
        """R."""
        forest, points, scale = self.forest, grid.points[self.forest.heads], grid.scale[self.forest.heads]
        found: Floats = forest.replay[:, None] / points
        points *= (self.price * forest.commit)[:, None]
        found += points
        found *= scale
        found += forest.fixed[:, None]
        if grid.given is not None:
            heads = np.repeat(forest.shape.heads, [rows.stop - rows.start for rows in forest.rows])
            kept = found[heads, grid.given]
            found[heads] = _HUGE
            found[heads, grid.given] = kept
        return found

    def _up(self) -> None:
        """D of all rows, D* of all operators, and the less of both where there is a choice."""
        forest, below = self.forest, self.below
        for place in range(forest.shape.size - 1, -1, -1):
            mine, parent = below[forest.rows[place]], forest.parents[place]
            if forest.status[place] != OUT:
                storing = self.price * forest.shape.store[place]
                self.stars[place] = float((mine[-1] + self.opening[place]).min()) + storing
            if parent < 0:
                self.total += self.stars[place]
            elif forest.status[place] == IN:
                below[forest.rows[parent]] += self.stars[place]
            else:
                less = np.minimum(mine[: forest.above[place]], self.stars[place])
                below[forest.rows[parent]] += less
                self.less[place] = less

    def marginals(self) -> Marginals:
        """The least values with every choice."""
        forest, size = self.forest, self.forest.shape.size
        inside, outside = np.full(size, np.inf), np.full(size, np.inf)
        columns = np.full(self.opening.shape, np.inf)
        through = np.empty_like(self.below)
        for place, parent in enumerate(forest.parents):
            mine, here = self.below[forest.rows[place]], through[forest.rows[place]]
            less, above = self.less[place], forest.above[place]
            if less is not None:
                rest = through[forest.rows[parent]] - less
                np.add(rest, mine[:above], out=here[:above])
                outside[place] = here[:above].min()
                others = float(rest.min())
            else:
                others = self.total - self.stars[place]
            if forest.status[place] != OUT:
                inside[place] = others + self.stars[place]
                storing = self.price * forest.shape.store[place]
                np.add(mine[-1] + self.opening[place], others + storing, out=here[-1])
                columns[place] = here[-1]
        return Marginals(self.total, inside, outside, columns, self._anchors())

    def _anchors(self) -> Bools:
        """Follow the least choices from the sources on."""
        forest = self.forest
        chosen = np.zeros(forest.shape.size, dtype=bool)
        at: list[tuple[int, int]] = []
        for place, parent in enumerate(forest.parents):
            mine = self.below[forest.rows[place]]
            row, column = at[parent] if parent >= 0 else (0, 0)
            if not forest.above[place] or mine[row, column] > self.stars[place]:
                chosen[place] = True
                row, column = len(mine) - 1, int((mine[-1] + self.opening[place]).argmin())
            at.append((row, column))
        return chosen
