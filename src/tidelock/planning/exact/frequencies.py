"""The frequencies that bounds look at: a grid for each anchor. Pure.

The points of a grid are exp(2d) apart. A segment's best frequency is at most d (in logarithms) away from a
point, where it pays cosh(d)·2√(λPB) at most instead of 2√(λPB). So if what depends on the frequency is divided
by cosh(d), the least over the grid is not more than the least over all frequencies. The loss is d²/2: a fine
grid costs little.

Three columns are exact: never to commit (best for who has nothing to replay), always (best for whom commits cost
nothing) or at the highest frequency that is allowed, and the given frequency of heads.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tidelock.planning.exact.forest import Forest
from tidelock.planning.exact.shape import Floats
from tidelock.planning.model import Model

NEVER, ALWAYS = 1e-120, 1e120


@dataclass(frozen=True)
class Grid:
    """Frequencies: a row for each operator as an anchor, and a column for each choice.

    Attributes:
        points: The frequencies.
        scale: What costs that depend on the frequency are multiplied with.
        inner: How many columns are from the grid; the others are exact.
        given: The column of the frequency of heads.
    """

    points: Floats
    scale: Floats
    inner: int
    given: int | None


def grid(model: Model, low: Floats, high: Floats, inner: int) -> Grid:
    """Points from ``low`` to ``high``, one range for each operator."""
    bound, given = model.max_frequency, model.head_frequency
    top = ALWAYS if bound is None else max(bound, NEVER)
    low, high = low.clip(NEVER, top), high.clip(NEVER, top)
    wide = np.log(high / low)[:, None]
    exact = [NEVER, top] + ([] if given is None else [max(given, NEVER)])
    points = low[:, None] * np.exp(wide * np.linspace(0.0, 1.0, inner))
    points = np.hstack([points, np.repeat([exact], len(points), axis=0)])
    scale = np.ones_like(points)
    scale[:, :inner] = 1 / np.cosh(wide / (2 * (inner - 1)))
    return Grid(points, scale, inner, None if given is None else inner + 2)


def span(forest: Forest, price: float) -> tuple[Floats, Floats]:
    """For each operator, where the best frequency of every segment is of which it is the anchor.

    The best frequency is √(B/λP), and B/P is between the least and the greatest such ratio of the segment's
    operators. Where some of these are 0 or infinite, the sums of all operators have to do.
    """
    size, heads = forest.shape.size, forest.heads
    commit, replay = forest.commit, forest.replay
    whole = commit + forest.opening[heads]
    low, high = np.full(size, np.inf), np.zeros(size)
    some, stored = replay > 0, commit > 0
    np.minimum.at(low, heads[some & (whole > 0)], (replay / whole.clip(NEVER))[some & (whole > 0)])
    np.maximum.at(high, heads[stored], (replay / commit.clip(NEVER))[stored])
    replays, commits = np.bincount(heads, replay, size), np.bincount(heads, whole, size)
    if not some.all():
        least = np.full(size, np.inf)
        np.minimum.at(least, heads[some], replay[some])
        low = np.minimum(low, least / commits.clip(NEVER))
    if not stored.all():
        least = np.where(forest.opening > 0, forest.opening, np.inf)
        np.minimum.at(least, heads[stored], commit[stored])
        high = np.maximum(high, replays / least)
    low = np.where(np.isfinite(low) & (low > 0), low, 1.0)
    high = np.maximum(high, low)
    root = np.sqrt(price) if price > 0 else 1.0
    return np.sqrt(low) / root, np.sqrt(high) / root
