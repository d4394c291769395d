"""The best plan that a search has seen, and how to make it better. Pure."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from tidelock.planning.exact.found import TIE
from tidelock.planning.exact.many import recoveries
from tidelock.planning.exact.shape import OPEN, Bools, ModelLists


class Incumbent:
    """The best plan so far, and the effort that is left.

    Attributes:
        column: Its anchors, None before there is a plan within the budget.
        recovery: Its recovery time.
        left: How many plans may still be looked at.
    """

    def __init__(self, shape: ModelLists, budget: float, effort: int) -> None:
        self.shape = shape
        self.budget = budget
        self.left = effort
        self.column: Bools | None = None
        self.recovery = math.inf
        self._moves = _moves(shape)

    def places(self) -> list[int]:
        """Where the segments of the plan begin."""
        return [] if self.column is None else np.flatnonzero(self.column).tolist()

    def look(self, columns: Bools) -> bool:
        """Evaluate plans; say whether one of them is the new incumbent."""
        values = self._values(columns)
        least = float(values.min())
        if least == math.inf:
            return False
        ties = np.flatnonzero(values <= least * (1 + TIE))
        column = columns[:, ties[columns[:, ties].sum(axis=0).argmin()]]
        if not self._better(least, column):
            return False
        self.column, self.recovery = column.copy(), least
        return True

    def _values(self, columns: Bools) -> NDArray[np.float64]:
        self.left -= columns.shape[1]
        return recoveries(self.shape, columns, self.budget)

    def _better(self, value: float, column: Bools) -> bool:
        """Whether it recovers faster, or as fast with fewer anchors."""
        if self.column is None or value < self.recovery * (1 - TIE):
            return True
        return value <= self.recovery * (1 + TIE) and int(column.sum()) < int(self.column.sum())

    def climb(self, column: Bools, rounds: int) -> None:
        """Start at a plan, flip operators while that helps, and see whether the end is the new incumbent."""
        value = float(self._values(column[:, None])[0])
        for _ in range(rounds):
            count = self._moves.shape[1]
            if self.left < count or not count:
                break
            values = self._values(column[:, None] ^ self._moves)
            order = np.argsort(values, kind="stable")[: int((values < value * (1 - TIE)).sum())]
            if not len(order):
                break
            together = self._together(column, order)
            values = self._values(together)
            column, value = together[:, values.argmin()], float(values.min())
        self.look(column[:, None])

    def _together(self, column: Bools, order: NDArray[np.int64]) -> Bools:
        """The plan after the first 1, 2, 4, ... moves of ``order``."""
        counts = [1 << power for power in range(len(order).bit_length())]
        return np.stack([column ^ self._moves[:, order[:count]].any(axis=1) for count in counts], axis=1)


def _moves(shape: ModelLists) -> Bools:
    """What is flipped together: single operators, and where inputs meet also an operator and its input."""
    free = [place for place, one in enumerate(shape.status) if one == OPEN]
    moves: list[tuple[int, ...]] = [(place,) for place in free]
    if not shape.single:
        moves += [(one, place) for place in free for one in shape.inputs[place] if shape.status[one] == OPEN]
    found = np.zeros((shape.size, len(moves)), dtype=bool)
    for at, places in enumerate(moves):
        found[list(places), at] = True
    return found
