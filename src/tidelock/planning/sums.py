"""A segment in four numbers, and the best frequencies of many segments. Linear Δ. Pure.

With a linear Δ the recovery time of a segment is A + B/η and its overhead I + P·η. So for given anchors the best
frequencies under a budget have a closed form: with C = budget - ΣI and q = Σ√(P·B),

    η = √(B/P) · C/q        RT = ΣA + q²/C

which is Cauchy and Schwarz with equality. A bound on the frequencies is met by giving the segments that would
exceed it exactly the bound, and sharing what is left in the same way.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tidelock.planning.model import Model


@dataclass(frozen=True)
class Sums:
    """A segment: recovery A + B/η, overhead I + P·η.

    Attributes:
        fixed_recovery: A, loading states and restarting, weighted with how often that happens.
        replay: B, replaying the input of a unit of time.
        commit: P, one commit.
        storing: I, storing the inputs of the anchors.
        head: Whether it commits with the head frequency, if there is one.
    """

    fixed_recovery: float
    replay: float
    commit: float
    storing: float
    head: bool = False


def sums(model: Model, segment: Sequence[int], anchors: frozenset[int]) -> Sums:
    """The four numbers of ``segment``."""
    fixed = replay = 0.0
    for place in segment:
        failures = model.operators[place].failure_rate
        if failures:
            again = model.restarted(segment, place, anchors)
            fixed += failures * (model.restart_cost + sum(model.loads[one] for one in again))
            replay += failures * sum(
                model.works[one] + model.fetches[one] * (1.0 if one in anchors else model.kept[one])
                for one in again
            )
    return Sums(
        fixed,
        replay,
        commit=model.segment_cost + sum(model.commits[place] for place in segment),
        storing=sum(model.stores[place] if place in anchors else model.keeps[place] for place in segment),
        head=not model.heads.isdisjoint(segment),
    )


@dataclass(frozen=True)
class Shared:
    """The best frequencies of some segments under a budget, and what follows from them.

    A frequency is infinite where commits cost nothing, and zero where nothing is ever replayed.
    """

    frequencies: tuple[float, ...]
    recovery: float
    overhead: float


def share(
    segments: Sequence[Sums],
    budget: float,
    *,
    max_frequency: float | None = None,
    head_frequency: float | None = None,
) -> Shared | None:
    """The frequencies that minimise the recovery time within ``budget``; None if it is too small."""
    frequencies = [head_frequency if one.head and head_frequency is not None else None for one in segments]
    left = budget - sum(one.storing for one in segments)
    left -= sum(one.commit * given for one, given in zip(segments, frequencies, strict=True) if given)
    open_ = [place for place, given in enumerate(frequencies) if given is None]
    bound = math.inf if max_frequency is None else max_frequency
    shared = _water(segments, open_, left, bound)
    if shared is None or left < -1e-12 * abs(budget):
        return None
    for place, frequency in zip(open_, shared, strict=True):
        frequencies[place] = frequency
    final = tuple(0.0 if given is None else given for given in frequencies)
    recovery = sum(one.fixed_recovery + _divided(one.replay, f) for one, f in zip(segments, final, strict=True))
    if math.isinf(recovery):
        return None
    return Shared(
        final,
        recovery,
        sum(one.storing + _times(one.commit, f) for one, f in zip(segments, final, strict=True)),
    )


def _water(segments: Sequence[Sums], places: Sequence[int], left: float, bound: float) -> list[float] | None:
    """Frequencies for the segments at ``places``, who share ``left``; None if it does not reach for all."""
    found = {place: 0.0 for place in places if segments[place].replay == 0}
    found.update({place: bound for place in places if place not in found and segments[place].commit == 0})
    while True:
        rest = [place for place in places if place not in found]
        weight = sum(math.sqrt(segments[place].commit) * math.sqrt(segments[place].replay) for place in rest)
        if not rest:
            return [found[place] for place in places]
        if left <= 0:
            return None
        wanted = {p: math.sqrt(segments[p].replay / segments[p].commit) * left / weight for p in rest}
        over = [place for place in rest if wanted[place] > bound]
        if not over:
            found.update(wanted)
            return [found[place] for place in places]
        found.update(dict.fromkeys(over, bound))
        left -= sum(segments[place].commit * bound for place in over)


def _divided(replay: float, frequency: float) -> float:
    return 0.0 if replay == 0 else math.inf if frequency == 0 else replay / frequency


def _times(commit: float, frequency: float) -> float:
    return 0.0 if commit == 0 else commit * frequency
