"""FastRecover's Algorithm 1: the anchors and frequencies of a chain, over steps of the budget. Pure.

The best plan of the first i operators within c steps ends with some subchain that spends c' of them (eq. 3.3)::

    DP(c, i) = min over k ≤ i and c' ≤ c of DP(c - c', k - 1) + CtoR(k, i, c')

That is O(n² Z²). All heads k and overheads c' of an i are one array operation. The thesis has c' < c in the
equation and c' ≤ c in the text. Here it is the text: otherwise the first subchain could not spend the last step.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from tidelock.planning.costs import Configuration
from tidelock.planning.model import Model
from tidelock.planning.thesis.fitting import check_chain, check_count
from tidelock.planning.thesis.subchains import c_to_eta, eta_to_r
from tidelock.planning.thesis.timing import Floats


def chain_dp(model: Model, budget: float, steps: int) -> Configuration | None:
    """The best plan of a chain whose subchains spend whole steps of the budget; None if there is none.

    Raises:
        PlanError: the model is no chain, or it has a field that the thesis does not know.
    """
    check_chain(model, "chain-dp")
    check_count(steps, "steps")
    frequencies = c_to_eta(model, np.arange(steps + 1, dtype=np.float64) * (budget / steps))
    table = _fill(eta_to_r(model, frequencies))
    if not np.isfinite(table.recoveries[-1, -1]):
        return None
    return _trace(table, frequencies)


@dataclass(frozen=True)
class _Table:
    """DP_rt, DP_head and DP_ch*: rows are the numbers of operators, columns the steps."""

    recoveries: Floats
    heads: NDArray[np.intp]
    spent: NDArray[np.intp]


def _fill(recoveries: Floats) -> _Table:
    n, _, width = recoveries.shape
    padded = np.full((n + 1, 2 * width - 1), np.inf)
    best = padded[:, width - 1 :]
    best[0] = 0.0
    # before[k, c, -1 - c'] is DP(c - c', k), and infinite where c' > c.
    before = sliding_window_view(padded, width, axis=1)
    heads = np.zeros((n + 1, width), dtype=np.intp)
    spent = np.zeros((n + 1, width), dtype=np.intp)
    columns = np.arange(width)
    for i in range(1, n + 1):
        options = before[:i] + recoveries[:i, i - 1, None, ::-1]
        last = options.argmin(axis=2)
        by_head = np.take_along_axis(options, last[..., None], axis=2)[..., 0]
        heads[i] = by_head.argmin(axis=0)
        best[i] = by_head[heads[i], columns]
        spent[i] = width - 1 - last[heads[i], columns]
    return _Table(best, heads, spent)


def _trace(table: _Table, frequencies: Floats) -> Configuration:
    """The plan behind the last entry, from its last subchain to its first."""
    anchors: list[int] = []
    found: list[float] = []
    i, c = (size - 1 for size in table.recoveries.shape)
    while i:
        head, spent = int(table.heads[i, c]), int(table.spent[i, c])
        anchors.append(head)
        found.append(float(frequencies[head, i - 1, spent]))
        i, c = head, c - spent
    return Configuration(frozenset(anchors), tuple(reversed(found)))
