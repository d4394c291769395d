"""How long storing and loading take, for many operators and frequencies at once, with any Δ. Pure.

Like `costs`, but in arrays. A frequency may be zero, where nothing is ever committed, and infinite, where commits
cost nothing. ``places`` are positions of operators, in a shape that fits the frequencies.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tidelock.planning.model import Model

Floats = NDArray[np.float64]
Places = NDArray[np.intp]


def committing(model: Model, places: Places, frequencies: Floats) -> Floats:
    """The time per unit of time in which operators store their states (eq. 2.1)."""
    if model.storage is None:
        return times(np.array(model.commits)[places], frequencies)
    sizes = attribute(model, "state_size")[places]
    return np.where(sizes > 0, _delta(model, times(sizes, frequencies)), 0.0)


def storing(model: Model) -> Floats:
    """The time per unit of time in which each operator would store its inputs."""
    return np.array(model.stores) if model.storage is None else _delta(model, _inputs(model))


def loading(model: Model) -> Floats:
    """The time in which each operator loads its state."""
    return np.array(model.loads) if model.storage is None else _delta(model, attribute(model, "state_size"))


def fetching(model: Model, places: Places, frequencies: Floats) -> Floats:
    """The time in which anchors read again what they have stored since the last commit."""
    if model.storage is None:
        return divided(np.array(model.fetches)[places], frequencies)
    return _delta(model, divided(_inputs(model)[places], frequencies))


def attribute(model: Model, name: str) -> Floats:
    """One attribute of all operators."""
    return np.array([getattr(operator, name) for operator in model.operators], dtype=np.float64)


def divided(amounts: Floats, frequencies: Floats) -> Floats:
    """What has come since the last commit: nothing of nothing, and without end if there is no commit."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(amounts == 0, 0.0, amounts / frequencies)


def times(weights: Floats, amounts: Floats) -> Floats:
    """The product, in which a weight of zero wins."""
    with np.errstate(invalid="ignore"):
        return np.where(weights == 0, 0.0, weights * amounts)


def _inputs(model: Model) -> Floats:
    return np.array(model.rates) * attribute(model, "tuple_size")


def _delta(model: Model, sizes: Floats) -> Floats:
    """Δ of each size; what is infinite takes for ever."""
    found = [model.delta(size) if np.isfinite(size) else np.inf for size in sizes.ravel().tolist()]
    return np.array(found, dtype=np.float64).reshape(sizes.shape)
