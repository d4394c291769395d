"""What a configuration costs and how fast it recovers: FastRecover eq. 2.1 and 3.2, for acyclic topologies. Pure.

A configuration says who is an anchor and how often each segment commits. Everything here follows the equations one
operator at a time and with any Δ; `sums` has what a planner needs when Δ is linear.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidelock.planning.model import Model


@dataclass(frozen=True)
class Configuration:
    """Who is an anchor, and how often the segments commit.

    Attributes:
        anchors: The positions of the anchors.
        frequencies: η of each segment, in the order of `Model.segments`.
        own: The frequencies of single operators that differ from their segment's (FastRecover 3.3, RSRFS), by
            position.
    """

    anchors: frozenset[int]
    frequencies: tuple[float, ...]
    own: Mapping[int, float] | None = None


@dataclass(frozen=True)
class Costs:
    """What a configuration costs.

    Attributes:
        overhead: CH_all, time spent on storing per unit of time.
        recovery: RT_all, time spent on recovery per unit of time, to be expected.
        overheads: ch of every operator; the cost of a commit itself is with the segment's first operator.
        recoveries: rt of every operator: how long one recovery takes.
    """

    overhead: float
    recovery: float
    overheads: tuple[float, ...]
    recoveries: tuple[float, ...]


def costs(model: Model, configuration: Configuration) -> Costs:
    """Follow the equations. An operator that never commits (η = 0) recovers only if it has nothing to replay."""
    anchors = configuration.anchors
    overheads = [0.0] * len(model.operators)
    recoveries = [0.0] * len(model.operators)
    for segment, common in zip(model.segments(anchors), configuration.frequencies, strict=True):
        overheads[segment[0]] += model.segment_cost * common if model.segment_cost else 0.0
        for place in segment:
            frequency = (configuration.own or {}).get(place, common)
            overheads[place] += _storing(model, place, frequency, place in anchors)
            recoveries[place] = _recovering(model, segment, place, anchors, frequency)
    slower = contention(model, sum(overheads))
    recoveries = [slower * time if time else 0.0 for time in recoveries]
    failures = [operator.failure_rate for operator in model.operators]
    expected = sum(rate * time for rate, time in zip(failures, recoveries, strict=True) if rate)
    return Costs(sum(overheads), expected, tuple(overheads), tuple(recoveries))


def contention(model: Model, overhead: float) -> float:
    """How many times longer a recovery takes because everything else goes on meanwhile.

    What is left of the machine is what storing and processing leave, so a plan that stores much recovers slowly.
    """
    if model.capacity is None:
        return 1.0
    left = model.capacity - overhead - sum(model.works)
    return model.capacity / left if left > 0 else float("inf")


def _storing(model: Model, place: int, frequency: float, anchor: bool) -> float:
    """Eq. 2.1: the state, as often as it is committed, and an anchor's inputs."""
    if model.storage is None:
        state = model.commits[place] * frequency if model.commits[place] else 0.0
        return state + (model.stores[place] if anchor else model.keeps[place])
    operator = model.operators[place]
    state = model.delta(frequency * operator.state_size) if operator.state_size else 0.0
    return state + (model.delta(model.rates[place] * operator.tuple_size) if anchor else 0.0)


def _recovering(
    model: Model, segment: tuple[int, ...], place: int, anchors: frozenset[int], frequency: float
) -> float:
    """Eq. 3.2: load states, fetch what the anchors have stored since the last commit, process it again."""
    time = model.restart_cost
    for one in sorted(model.restarted(segment, place, anchors)):
        time += _loading(model, one) + _since_commit(model.works[one], frequency)
        part = 1.0 if one in anchors else model.kept[one]
        if part:
            time += part * _fetching(model, one, frequency)
    return time


def _loading(model: Model, place: int) -> float:
    return model.loads[place] if model.storage is None else model.delta(model.operators[place].state_size)


def _fetching(model: Model, place: int, frequency: float) -> float:
    if model.storage is None:
        return _since_commit(model.fetches[place], frequency)
    return model.delta(_since_commit(model.rates[place] * model.operators[place].tuple_size, frequency))


def _since_commit(amount: float, frequency: float) -> float:
    """How much has come since the last commit, at most, of what comes in this ``amount`` per unit of time."""
    if amount == 0:
        return 0.0
    return amount / frequency if frequency > 0 else float("inf")
