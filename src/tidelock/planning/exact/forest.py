"""A topology under a partial decision, with one input for each operator: what `relaxed` calculates with. Pure.

A row is a pair of an operator and an anchor above it (or itself). The rows of an operator are side by side,
those of its parent first and in the same order, its own last; so the rows of a parent are aligned with those of
its readers. Everything here is at most what it is in a plan that agrees with the decision.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tidelock.planning.exact.shape import IN, OUT, Bools, Floats, ModelLists


class Forest:
    """The rows.

    Attributes:
        parents: The input that each operator keeps; -1 for a source.
        status: What is decided.
        rows: The rows of each operator.
        above: How many of them have another operator as the anchor.
        heads: For each row, the anchor.
        fixed: For each row, what the operator adds to A.
        replay: What it adds to B.
        commit: What it adds to P.
        opening: For each operator, what its segment adds to P if it is the anchor.
    """

    def __init__(self, shape: ModelLists, parents: Sequence[int], status: Sequence[int]) -> None:
        self.shape = shape
        self.parents = parents
        self.status = status
        self._lay_out()
        counts = [rows.stop - rows.start for rows in self.rows]
        fail, load = np.repeat(shape.fail, counts), np.repeat(shape.load, counts)
        whole = shape.model.scope == "segment"
        loads, again, others = self._whole() if whole else self._ways() if shape.single else self._sets()
        self.fixed: Floats = fail * (shape.model.restart_cost + loads)
        self.replay: Floats = fail * again
        if whole:  # those before it fail, too, and it restarts with them
            self.fixed += others * load
            self.replay += others * np.repeat(shape.step, counts)
        self.commit: Floats = np.repeat(shape.commit if shape.single else self._spread(), counts)
        self.opening = self._opening()

    def _lay_out(self) -> None:
        heads: list[list[int]] = []
        self.rows: list[slice] = []
        self.above: list[int] = []
        begin = 0
        for place, parent in enumerate(self.parents):
            mine = heads[parent].copy() if parent >= 0 and self.status[place] != IN else []
            self.above.append(len(mine))
            if self.status[place] != OUT:
                mine.append(place)
            heads.append(mine)
            self.rows.append(slice(begin, begin + len(mine)))
            begin += len(mine)
        self.heads = np.array([head for mine in heads for head in mine])

    def _ways(self) -> tuple[Floats, Floats, Floats]:
        """For each row, what is loaded and replayed on the way from the anchor; nothing else restarts."""
        shape = self.shape
        found = np.zeros((2, len(self.heads)))
        for place, parent in enumerate(self.parents):
            mine, above = found[:, self.rows[place]], self.above[place]
            if above:
                mine[:, :above] = found[:, self.rows[parent]]
            mine[0] += shape.load[place]
            mine[1] += shape.step[place]
        return found[0], found[1] + np.array(shape.fetch)[self.heads], np.zeros(len(self.heads))

    def _sets(self) -> tuple[Floats, Floats, Floats]:
        """The same with several inputs: all of them are replayed, and what is behind them for sure."""
        shape = self.shape
        sure = np.eye(shape.size, dtype=bool)
        replayed = np.zeros((len(self.heads), shape.size), dtype=bool)
        for place, (parent, inputs) in enumerate(zip(self.parents, shape.inputs, strict=True)):
            mine, above = self.rows[place], self.above[place]
            if above:
                upper, here = self.rows[parent], slice(mine.start, mine.start + above)
                behind = sure[list(inputs)].any(axis=0)
                replayed[here] = replayed[upper] | behind
                if self.status[place] == OUT:
                    sure[place] |= behind
            replayed[mine, place] = True
        return *self._summed(replayed), np.zeros(len(self.heads))

    def _whole(self) -> tuple[Floats, Floats, Floats]:
        """Where segments restart as a whole: who is in the segment for sure, and who fails before the operator.

        That is how often those fail with whom it restarts although it is not known to be with them.
        """
        shape, joined = self.shape, self._joined()
        same = joined[:, None] == joined
        replayed = np.zeros((len(self.heads), shape.size), dtype=bool)
        others = np.zeros(len(self.heads))
        for place, (parent, inputs) in enumerate(zip(self.parents, shape.inputs, strict=True)):
            mine, above = self.rows[place], self.above[place]
            replayed[mine] = same[place]
            if above:
                here = slice(mine.start, mine.start + above)
                replayed[here] |= replayed[self.rows[parent]] | same[list(inputs)].any(axis=0)
                one = parent
                while True:
                    rows = self.rows[one]
                    others[mine.start : mine.start + rows.stop - rows.start] += (
                        shape.fail[one] * ~replayed[rows, place]
                    )
                    if not self.above[one]:
                        break
                    one = self.parents[one]
        return *self._summed(replayed), others

    def _summed(self, replayed: Bools) -> tuple[Floats, Floats]:
        """What it takes to load and replay: anchors fetch, that of the row and who is one for sure."""
        shape = self.shape
        anchors, fetch = np.array(self.status) == IN, np.array(shape.fetch)
        again = replayed @ (np.array(shape.step) + fetch * anchors) + (fetch * ~anchors)[self.heads]
        return replayed @ np.array(shape.load), again

    def _joined(self) -> NDArray[np.int64]:
        """For each operator, the first of those that are in one segment with it for sure."""
        first = np.arange(self.shape.size)
        for place, inputs in enumerate(self.shape.inputs):
            if self.status[place] == OUT:
                found = first[[place, *inputs]]
                first[np.isin(first, found)] = found.min()
        return first

    def _spread(self) -> Floats:
        """What each operator counts for in a commit, moved between those that are in one segment for sure.

        They have one frequency, so only their sum matters. But the forest makes pieces of the segment that choose
        their own; that lowers the bound least if commits and replays are in the same proportion everywhere.
        """
        size = self.shape.size
        least = np.array([self.replay[rows].min() for rows in self.rows])
        first = self._joined()
        replay, commit = np.bincount(first, least, size)[first], np.bincount(first, self.shape.commit, size)[first]
        found: Floats = np.where(
            replay > 0, commit * (least / np.where(replay > 0, replay, 1.0)), self.shape.commit
        )
        return found

    def _opening(self) -> Floats:
        """The cost of a commit apart from states: once for a segment, so 0 where that may be in several pieces."""
        shape, status = self.shape, self.status
        cost = [shape.model.segment_cost] * shape.size
        if shape.single or not shape.model.segment_cost:
            return np.array(cost)
        for place, inputs in enumerate(shape.inputs):
            if len(inputs) > 1 and status[place] != IN:
                for one in (place, *inputs):
                    cost[one] = 0.0
        for place in range(shape.size - 1, -1, -1):
            if self.above[place] and not cost[place]:
                cost[self.parents[place]] = 0.0
        return np.array(cost)
