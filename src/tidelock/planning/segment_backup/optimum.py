"""The cheapest connectors and block length that recover in time: exact. Pure.

Theory of operation. Costs never grow with the block length l, and the recovery delay never falls with it (see
`equations`). So for given connectors the best l is the longest that meets the bound. The delay is a maximum over
segments, so that longest l is the least of the limits of the segments, where the limit of a segment (i, j) is the
longest l with which it meets the bound by itself. Hence the best l over all connectors is the limit of a segment:
at most n(n-1)/2 lengths have to be tried, however long blocks may get.

For one of them the allowed segments are those with a limit of at least l, and the costs are a sum over segments
(the pending window of i, and what the connector j costs) plus what all configurations pay. A path from the spout
to the sink over allowed segments is a configuration, so the shortest path is the best one: O(n²).

The lengths are tried from the longest on. The shortest path over all segments, allowed or not, is a lower bound
that never falls as l shrinks; once it reaches the best costs found, nothing shorter can be better.

Queues are stable from some l on. Shorter blocks are never considered.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from tidelock.errors import PlanError
from tidelock.planning.segment_backup import equations
from tidelock.planning.segment_backup.application import (
    SHORTEST_BLOCK,
    Application,
    BackupConfiguration,
    configure,
)

LONGEST_BLOCK = 2**53
"""No longer block is considered: whole numbers are exact up to here."""

_Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class CheapestConfiguration:
    """The cheapest configuration, and what follows from it.

    Attributes:
        configuration: Connectors and block length.
        recovery_delay: t^r.
        costs: c and its parts.
        pending_windows: l_i^p of every connector except the sink, in order.
    """

    configuration: BackupConfiguration
    recovery_delay: float
    costs: equations.BackupCosts
    pending_windows: tuple[float, ...]


class Unreachable(PlanError):
    """No configuration recovers within the bound.

    Attributes:
        least: The least recovery delay that a configuration has.
    """

    def __init__(self, message: str, least: float) -> None:
        super().__init__(message)
        self.least = least


def cheapest(application: Application, max_recovery_delay: float) -> CheapestConfiguration:
    """The configuration with the least costs (eq. 4.11) whose recovery delay is at most the bound.

    Raises:
        Unreachable: there is none.
        PlanError: more arrives at a node than it can process, whatever the block length; or the bound is not a
            finite number of at least 0.
    """
    if not 0 <= max_recovery_delay < math.inf:
        raise PlanError(f"the recovery delay is bounded by a finite number of seconds, not {max_recovery_delay}")
    shortest = shortest_stable_block(application)
    limits = _limits(application, max_recovery_delay)
    best: CheapestConfiguration | None = None
    for length in sorted({int(limit) for limit in limits.flat if limit >= shortest}, reverse=True):
        weights = _weights(application, length)
        if best is not None and _choice(application, _path(weights), length).costs.total >= best.costs.total:
            break
        path = _path(np.where(limits >= length, weights, math.inf))
        if path:
            found = _choice(application, path, length)
            best = found if best is None or found.costs.total < best.costs.total else best
    if best is None:
        raise _unreachable(application, max_recovery_delay, shortest)
    return best


def shortest_stable_block(application: Application) -> int:
    """The least block length with which no queue grows without end.

    Raises:
        PlanError: there is none, as a node gets too much even without barriers.
    """
    lengths = range(SHORTEST_BLOCK, LONGEST_BLOCK)
    least = SHORTEST_BLOCK
    for place in range(1, len(application.nodes)):
        arrival = application.tuple_frequency * application.output_ratios[place - 1]
        found = bisect_left(lengths, True, key=_stable(application, place))
        if found == len(lengths):
            raise PlanError(
                f"{equations.rates_told(application, place, arrival)}, barriers left aside: its queue never "
                "stops growing, whatever the block length. Make the node faster, or let fewer tuples reach it"
            )
        least = max(least, lengths[found])
    return least


def _stable(application: Application, place: int) -> Callable[[int], bool]:
    service = equations.service_rate(application, place)
    return lambda length: equations.arrival_rate(application, place, length) < service


def _limits(application: Application, bound: float) -> _Matrix:
    """The longest block with which each segment meets the bound; 0 where none does or there is no segment."""
    lengths = range(SHORTEST_BLOCK, LONGEST_BLOCK + 1)
    limits = np.zeros((len(application.nodes), len(application.nodes)))
    for start, end in combinations(range(len(application.nodes)), 2):
        met = bisect_right(lengths, bound, key=_segment_delay(application, start, end))
        limits[start, end] = lengths[met - 1] if met else 0
    return limits


def _segment_delay(application: Application, start: int, end: int) -> Callable[[int], float]:
    return lambda length: equations.segment_recovery_delay(application, start, end, length)


def _weights(application: Application, length: int) -> _Matrix:
    """What each segment adds to the costs; infinite where there is no segment.

    Raises:
        PlanError: numbers get too large to be compared.
    """
    delays, sizes, prices = application.delays, application.sizes, application.prices
    count = len(application.nodes)
    response = [equations.response_time(application, place, length) for place in range(1, count)]
    with np.errstate(over="ignore", invalid="ignore"):
        reached = np.cumsum([0.0, *(delays.edge + time for time in response)])
        output = equations.tuple_rate(application, length) * np.array(application.output_ratios)
        window = output[:, None] * (reached[None, :] - reached[:, None] + delays.ack)
        ack = equations.barrier_rate(application, length) * (
            prices.computation * delays.ack + prices.network * sizes.ack
        )
        stored = output * (prices.computation * delays.write + prices.network * sizes.tuple)
        weights: _Matrix = prices.storage * sizes.tuple * window + (ack + stored)[None, :]
    if not np.isfinite(weights).all():
        raise PlanError("the costs are too large to be compared: see whether all numbers have the right units")
    weights[np.tril_indices(count)] = math.inf
    return weights


def _path(weights: _Matrix) -> tuple[int, ...]:
    """The shortest path from the first node to the last one; empty if there is none."""
    count = len(weights)
    least = np.full(count, math.inf)
    least[0] = 0.0
    before = [0] * count
    for place in range(1, count):
        through = least[:place] + weights[:place, place]
        before[place] = int(np.argmin(through))
        least[place] = through[before[place]]
    if least[-1] == math.inf:
        return ()
    return _back(before)


def _back(before: list[int]) -> tuple[int, ...]:
    """The path to the last node, given the node before each."""
    path = [len(before) - 1]
    while path[-1]:
        path.append(before[path[-1]])
    return tuple(reversed(path))


def _choice(application: Application, connectors: Iterable[int], length: int) -> CheapestConfiguration:
    configuration = configure(application, connectors, length)
    return CheapestConfiguration(
        configuration,
        equations.recovery_delay(application, configuration),
        equations.costs(application, configuration),
        equations.pending_windows(application, configuration),
    )


# -- when the bound cannot be met


def _unreachable(application: Application, bound: float, length: int) -> Unreachable:
    """Why: the least delay comes from the shortest blocks, over the path whose slowest segment is fastest."""
    start, end = _slowest_segment(application, length)
    least = equations.segment_recovery_delay(application, start, end, length)
    stable = ", the shortest that keep every queue stable" if length > SHORTEST_BLOCK else ""
    return Unreachable(
        f"no configuration recovers within {bound:g} s: the least recovery delay is {least:g} s, with blocks of "
        f"{length} tuples{stable}. Most of it is {_dominant(application, start, end, length)}",
        least,
    )


def _slowest_segment(application: Application, length: int) -> tuple[int, int]:
    """The slowest segment of the configuration that recovers fastest; of equal ones the first."""

    def delay(segment: tuple[int, int]) -> float:
        return equations.segment_recovery_delay(application, *segment, length)

    slowest = [(0, 1)]  # of the best way to each node from the second on
    for end in range(2, len(application.nodes)):
        ways = [(0, end), *(max(before, (start, end), key=delay) for start, before in enumerate(slowest, 1))]
        slowest.append(min(ways, key=delay))
    return slowest[-1]


def _dominant(application: Application, start: int, end: int, length: int) -> str:
    first, last = application.nodes[start].name, application.nodes[end].name
    replay = application.delays.bottleneck * equations.output_block(application, start, length) / 2
    parts = {
        "restarting: lower recovery_response or recovery_misc": application.delays.restart,
        f"the way of a tuple from {first} to {last}: lower edge or normal_tuple": (
            equations.propagation_delay(application, start, end)
        ),
        f"replaying half a block of {first}: lower read, transmit and normal_tuple": replay,
    }
    return max(parts, key=parts.__getitem__)
