"""Every recovery subchain of a chain: its frequency and its recovery time for every overhead. Pure.

FastRecover 3.2.1. Arrays have the head of a subchain on the first axis, its last operator on the second, and steps
of overhead on the third.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tidelock.planning.model import Model
from tidelock.planning.thesis.timing import Floats, attribute, divided, fetching, loading, storing, times


def c_to_eta(model: Model, overheads: Floats) -> Floats:
    """Ctoη: how often each subchain can commit for each overhead; negative where that is too little.

    It is infinite where commits cost nothing, and never above the model's ``max_frequency``.
    """
    cap = math.inf if model.max_frequency is None else model.max_frequency
    left = overheads - storing(model)[:, None]
    return np.minimum(cap, _divided_up(model, left) if model.storage is None else _searched(model, left, cap))


def eta_to_r(model: Model, frequencies: Floats) -> Floats:
    """ηtoR: the expected recovery time of each subchain that commits as often as given (eq. 3.2)."""
    failures = attribute(model, "failure_rate")
    fixed = _summed(failures * loads(model))[..., None]
    replayed = _summed(failures * works(model))[..., None]
    failing = _summed(failures)[..., None]
    heads = np.arange(len(failures))[:, None, None]
    # Where the frequency is negative any will do: the subchain is left out below.
    real = np.maximum(frequencies, 0.0)
    found = fixed + divided(replayed, real) + times(failing, fetching(model, heads, real))
    return np.where((frequencies >= 0) & _allowed(model)[..., None], found, np.inf)


def loads(model: Model) -> Floats:
    """How long the last operator of each subchain takes to recover, apart from replaying."""
    return model.restart_cost + _summed(loading(model))


def works(model: Model) -> Floats:
    """How long it takes to process a unit of time again, from each head to each last operator."""
    return _summed(np.array(model.works))


def _summed(values: Floats) -> Floats:
    """Sums from each head to each last operator."""
    return np.cumsum(np.triu(np.broadcast_to(values, (values.shape[-1], values.shape[-1]))), axis=1)


def _allowed(model: Model) -> NDArray[np.bool_]:
    """Whether head and last make a subchain: the head may be an anchor, and nobody after it has to be one."""
    places = np.arange(len(model.operators))
    forced = np.isin(places, list(model.forced))
    heads = forced | np.isin(places, model.free)
    so_far = np.cumsum(forced)
    found: NDArray[np.bool_] = (places[:, None] <= places) & (so_far[:, None] == so_far) & heads[:, None]
    return found


def _divided_up(model: Model, left: Floats) -> Floats:
    """With a linear Δ: what is left, by what a commit costs."""
    commit = model.segment_cost + _summed(np.array(model.commits))[..., None]
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(commit > 0, left[:, None] / commit, np.where(left[:, None] >= 0, np.inf, -np.inf))


def _searched(model: Model, left: Floats, cap: float) -> Floats:
    """With any Δ: by bisection."""
    n, width = left.shape
    found = np.full((n, n, width), -np.inf)
    for head, last in zip(*np.nonzero(_allowed(model)), strict=True):
        spent = _committing(model, int(head), int(last))
        found[head, last] = [largest(spent, amount, cap) for amount in left[head].tolist()]
    return found


def _committing(model: Model, head: int, last: int) -> Callable[[float], float]:
    """What a subchain spends on commits, by its frequency (eq. 2.1)."""
    sizes = [one.state_size for one in model.operators[head : last + 1] if one.state_size]
    return lambda frequency: model.segment_cost * frequency + sum(model.delta(frequency * size) for size in sizes)


def largest(spent: Callable[[float], float], left: float, cap: float) -> float:
    """The largest frequency up to ``cap`` that does not spend more than ``left``; negative if there is none.

    ``spent`` must not decrease. The answer is never too large, and too small by rounding at most.
    """
    if spent(0.0) > left:
        return -math.inf
    high = 1.0
    while spent(high) <= left:
        if high >= min(cap, 1e300):  # beyond the second, commits cost nothing
            return cap
        high *= 2
    low = high / 2
    while spent(low) > left:
        if low < 1e-300:
            return 0.0
        high, low = low, low / 2
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if spent(middle) <= left else (low, middle)
    return low
