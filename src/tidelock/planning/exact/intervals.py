"""The segments that a chain can have, as the edges of a graph, and shortest paths through it. Pure.

An edge leads from the first operator of an interval to the first one behind it and costs (A, √(P·B), I). Where the
frequency of heads is given, the first interval costs (A + B/η, 0, I + P·η): nothing of it is left to choose.

Short chains are kept as lists, long ones as matrices; both answer the same questions.
"""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np

from tidelock.planning.exact.shape import IN, OUT, Bools, Floats, ModelLists

Edge = tuple[int, float, float, float]
"""Where an edge comes from, A, √(PB) and I."""


class Graph(Protocol):
    """Intervals, and distances under the weights x·A + y·√(PB) + z·I."""

    def forward(self, x: float, y: float, z: float) -> tuple[list[float], list[int]]:
        """The distance from the first operator to each end, and where the last edge of that path begins."""

    def backward(self, x: float, y: float, z: float) -> tuple[list[float], list[int]]:
        """The distance from each operator to the end of the chain, and where the first edge of that path ends."""

    def edge(self, start: int, end: int) -> Edge:
        """One edge; A is infinite if it is not there."""

    def below(self, limit: float, x: float, y: float, z: float) -> list[list[Edge]]:
        """For every end, the edges on paths that are not longer than ``limit``."""


def _ends(shape: ModelLists, start: int) -> int:
    """Behind the last operator that can be in a segment with ``start`` as its anchor."""
    status = shape.status
    end = start + 1
    while end < shape.size and status[end] != IN:
        end += 1
    return end


class Listed:
    """The intervals of a short chain."""

    def __init__(self, shape: ModelLists) -> None:
        self.size = shape.size
        self.into: list[list[Edge]] = [[] for _ in range(shape.size + 1)]
        for start in range(shape.size):
            if shape.status[start] != OUT:
                self._add(shape, start)

    def _add(self, shape: ModelLists, start: int) -> None:
        load, step, fail, into = shape.load, shape.step, shape.fail, self.into
        commit, restart = shape.model.segment_cost, shape.model.restart_cost
        whole, given, root = shape.model.scope == "segment", shape.model.head_frequency, math.sqrt
        storing, again = shape.store[start], shape.fetch[start]
        fixed = replay = failures = 0.0
        head = False
        for place in range(start, _ends(shape, start)):
            commit += shape.commit[place]
            restart += load[place]
            again += step[place]
            if whole:
                failures += fail[place]
                fixed, replay = failures * restart, failures * again
            else:
                fixed += fail[place] * restart
                replay += fail[place] * again
            head = head or shape.heads[place]
            if given is None or not head:
                into[place + 1].append((start, fixed, root(commit) * root(replay), storing))
            elif given or not replay:
                more = replay / given if replay else 0.0
                into[place + 1].append((start, fixed + more, 0.0, storing + commit * given))

    def forward(self, x: float, y: float, z: float) -> tuple[list[float], list[int]]:
        """See `Graph`."""
        far, last = [0.0], [0]
        for edges in self.into[1:]:
            least, at = math.inf, 0
            for start, a, q, i in edges:
                length = far[start] + x * a + y * q + z * i
                if length < least:
                    least, at = length, start
            far.append(least)
            last.append(at)
        return far, last

    def backward(self, x: float, y: float, z: float) -> tuple[list[float], list[int]]:
        """See `Graph`."""
        far, first = [math.inf] * self.size + [0.0], [self.size] * (self.size + 1)
        for end in range(self.size, 0, -1):
            rest = far[end]
            for start, a, q, i in self.into[end]:
                length = rest + x * a + y * q + z * i
                if length < far[start]:
                    far[start], first[start] = length, end
        return far, first

    def edge(self, start: int, end: int) -> Edge:
        """See `Graph`."""
        for edge in self.into[end]:
            if edge[0] == start:
                return edge
        return start, math.inf, 0.0, 0.0

    def below(self, limit: float, x: float, y: float, z: float) -> list[list[Edge]]:
        """See `Graph`."""
        before, _ = self.forward(x, y, z)
        behind, _ = self.backward(x, y, z)
        return [
            [one for one in edges if before[one[0]] + x * one[1] + y * one[2] + z * one[3] + behind[end] <= limit]
            for end, edges in enumerate(self.into)
        ]


class Arrayed:
    """The intervals of a long chain: row for the start, column for the end; infinite where there is no edge."""

    def __init__(self, shape: ModelLists) -> None:
        self.size = size = shape.size
        self.a = np.full((size, size + 1), np.inf)
        self.q = np.zeros((size, size + 1))
        self.i = np.zeros((size, size + 1))
        for start in range(size):
            if shape.status[start] != OUT:
                self._add(shape, start)

    def _add(self, shape: ModelLists, start: int) -> None:
        model, part = shape.model, slice(start, _ends(shape, start))
        restart = model.restart_cost + np.cumsum(shape.load[part])
        commit = model.segment_cost + np.cumsum(shape.commit[part])
        again = shape.fetch[start] + np.cumsum(shape.step[part])
        if model.scope == "segment":
            failures = np.cumsum(shape.fail[part])
            fixed, replay = failures * restart, failures * again
        else:
            fixed, replay = np.cumsum(shape.fail[part] * restart), np.cumsum(shape.fail[part] * again)
        row = slice(part.start + 1, part.stop + 1)
        self.a[start, row] = fixed
        self.q[start, row] = np.sqrt(commit) * np.sqrt(replay)
        self.i[start, row] = shape.store[start]
        if model.head_frequency is not None:
            self._give(
                model.head_frequency, start, row, np.logical_or.accumulate(shape.heads[part]), commit, replay
            )

    def _give(self, given: float, start: int, row: slice, heads: Bools, commit: Floats, replay: Floats) -> None:
        """The frequency of heads."""
        with np.errstate(divide="ignore", invalid="ignore"):
            self.a[start, row] += np.where(heads & (replay > 0), replay / given, 0.0)
        self.q[start, row] *= ~heads
        self.i[start, row] += commit * given * heads

    def _weights(self, x: float, y: float, z: float) -> Floats:
        # A is infinite where there is no edge, whatever it counts.
        scaled = self.a * x if x else np.where(np.isinf(self.a), np.inf, 0.0)
        found: Floats = scaled + y * self.q + z * self.i
        return found

    def forward(self, x: float, y: float, z: float) -> tuple[list[float], list[int]]:
        """See `Graph`."""
        weights = np.asfortranarray(self._weights(x, y, z))
        far, last = np.zeros(self.size + 1), [0]
        for end in range(1, self.size + 1):
            lengths = far[:end] + weights[:end, end]
            last.append(int(lengths.argmin()))
            far[end] = lengths[last[end]]
        return far.tolist(), last

    def backward(self, x: float, y: float, z: float) -> tuple[list[float], list[int]]:
        """See `Graph`."""
        weights = self._weights(x, y, z)
        far, first = np.zeros(self.size + 1), [self.size] * (self.size + 1)
        for start in range(self.size - 1, -1, -1):
            lengths = weights[start, start + 1 :] + far[start + 1 :]
            at = int(lengths.argmin())
            far[start], first[start] = lengths[at], start + 1 + at
        return far.tolist(), first

    def edge(self, start: int, end: int) -> Edge:
        """See `Graph`."""
        return start, float(self.a[start, end]), float(self.q[start, end]), float(self.i[start, end])

    def below(self, limit: float, x: float, y: float, z: float) -> list[list[Edge]]:
        """See `Graph`."""
        before, _ = self.forward(x, y, z)
        behind, _ = self.backward(x, y, z)
        lengths = np.array(before)[:-1, None] + self._weights(x, y, z) + behind
        found: list[list[Edge]] = [[] for _ in range(self.size + 1)]
        for start, end in np.argwhere(lengths <= limit).tolist():
            found[end].append(self.edge(start, end))
        return found
