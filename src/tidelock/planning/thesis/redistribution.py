"""FastRecover 3.3: operators of a subchain commit at different frequencies, and exchange overhead. Pure.

The restriction RSRFS: an operator's frequency is a multiple of that of the next one in its subchain. Here it is
always 1, 2, 4, ... times that, since frequencies are halved and doubled only. A move halves op_i, which gives
overhead up, and doubles op_j, which gets it. With op_i go those after it, and with op_j those before it, that have
the same frequency and would break the restriction otherwise. Every change has its sign: CH_dec and RT_dec are
negative. (The thesis subtracts CH_inc where it has to be added, and asks for η_i ≥ 2η_{i-1} where it means
η_{i-1} ≥ 2η_i.)

Of all moves within the budget the one that helps most is made, until none helps. A move must help by more than
rounding could feign, and nobody goes further than 2^±40 from where it began. So no frequencies come twice, there
are finitely many, and the search ends.

A subchain commits whenever its head does, and pays the cost of a commit as often.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tidelock.planning.costs import Configuration
from tidelock.planning.model import Model
from tidelock.planning.thesis.chain import chain_dp
from tidelock.planning.thesis.subchains import loads, works
from tidelock.planning.thesis.timing import (
    Floats,
    Places,
    attribute,
    committing,
    divided,
    fetching,
    storing,
    times,
)

_FURTHEST = 2.0**40
_ROUNDING = 1e-12


def chain_dp_refined(model: Model, budget: float, steps: int) -> Configuration | None:
    """The plan of `chain_dp` after redistribution; its recovery time is not larger.

    The frequency of a segment is that of its head. Operators that commit less often are in ``own``.

    Raises:
        PlanError: the model is no chain, or it has a field that the thesis does not know.
    """
    found = chain_dp(model, budget, steps)
    return None if found is None else redistribute(model, found, budget)


def redistribute(model: Model, configuration: Configuration, budget: float) -> Configuration:
    """Move overhead between the operators of a chain until no move helps.

    All commit as often as their segments at first.
    """
    chain = _chain(model, configuration.anchors)
    start = np.array(configuration.frequencies)[np.cumsum(chain.leads) - 1]
    frequencies = start
    while (move := _best_move(chain, frequencies, start, budget)) is not None:
        frequencies = _made(move, frequencies, _joined(chain, frequencies))
    less = np.flatnonzero(frequencies != frequencies[chain.heads]).tolist()
    return Configuration(
        configuration.anchors,
        tuple(frequencies[chain.leads].tolist()),
        {place: float(frequencies[place]) for place in less} or None,
    )


# -- overheads and recovery times


@dataclass(frozen=True)
class _Chain:
    """What the overhead and the recovery time of every operator follow from, for given anchors.

    Attributes:
        model: The model.
        heads: The head of each operator's subchain.
        leads: Whether it is the head itself.
        failures: How often it fails.
        load: What its recovery takes apart from replaying.
        work: What it takes to process a unit of time again, from its head to it.
    """

    model: Model
    heads: Places
    leads: NDArray[np.bool_]
    failures: Floats
    load: Floats
    work: Floats

    def recoveries(self, frequencies: Floats) -> Floats:
        """The expected recovery time of each operator."""
        again = divided(self.work, frequencies) + fetching(self.model, self.heads, frequencies)
        return times(self.failures, self.load + again)

    def overheads(self, frequencies: Floats) -> Floats:
        """What each operator spends on commits; a head also on the commit itself."""
        states = committing(self.model, np.arange(len(frequencies)), frequencies)
        return states + times(np.where(self.leads, self.model.segment_cost, 0.0), frequencies)

    def storing(self) -> float:
        """What the heads spend on their inputs."""
        return float(storing(self.model)[self.leads].sum())


def _chain(model: Model, anchors: frozenset[int]) -> _Chain:
    places = np.arange(len(model.operators))
    leads = np.isin(places, list(anchors))
    heads = np.maximum.accumulate(np.where(leads, places, 0))
    return _Chain(
        model,
        heads,
        leads,
        attribute(model, "failure_rate"),
        loads(model)[heads, places],
        works(model)[heads, places],
    )


# -- moves


def _best_move(chain: _Chain, frequencies: Floats, start: Floats, budget: float) -> tuple[int, int] | None:
    """Who is halved and who is doubled, for the largest gain; None if no move helps."""
    recoveries, overheads = chain.recoveries(frequencies), chain.overheads(frequencies)
    joined = _joined(chain, frequencies)
    rt_inc = _with_later(chain.recoveries(frequencies / 2) - recoveries, joined)
    ch_dec = _with_later(chain.overheads(frequencies / 2) - overheads, joined)
    rt_dec = _with_earlier(chain.recoveries(frequencies * 2) - recoveries, joined)
    ch_inc = _with_earlier(chain.overheads(frequencies * 2) - overheads, joined)
    spent = chain.storing() + overheads.sum() + ch_dec[:, None] + ch_inc
    within = spent <= budget * (1 + _ROUNDING)
    gains = np.where(within & _possible(chain, frequencies, start), rt_inc[:, None] + rt_dec, np.inf)
    giver, taker = divmod(int(gains.argmin()), len(frequencies))
    return (giver, taker) if gains[giver, taker] < -_ROUNDING * recoveries.sum() else None


def _joined(chain: _Chain, frequencies: Floats) -> list[bool]:
    """Whether an operator and the one before it are in one subchain and commit together."""
    same = frequencies[1:] == frequencies[:-1]
    return [False, *(same & ~chain.leads[1:]).tolist()]


def _with_later(changes: Floats, joined: list[bool]) -> Floats:
    """Add to each operator's change those of the later ones that have to go with it."""
    total = changes.copy()
    for place in range(len(total) - 1, 0, -1):
        if joined[place]:
            total[place - 1] += total[place]
    return total


def _with_earlier(changes: Floats, joined: list[bool]) -> Floats:
    """Add to each operator's change those of the earlier ones that have to go with it."""
    total = changes.copy()
    for place in range(1, len(total)):
        if joined[place]:
            total[place] += total[place - 1]
    return total


def _possible(chain: _Chain, frequencies: Floats, start: Floats) -> NDArray[np.bool_]:
    """Which pairs of giver and taker keep the restriction and the bounds."""
    places = np.arange(len(frequencies))
    before = (chain.heads[:, None] == chain.heads) & (places[:, None] <= places)
    cap = math.inf if chain.model.max_frequency is None else chain.model.max_frequency
    gives = frequencies / 2 >= start / _FURTHEST
    takes = (frequencies * 2 <= start * _FURTHEST) & (frequencies * 2 <= cap)
    found: NDArray[np.bool_] = ~before & gives[:, None] & takes
    return found


def _made(move: tuple[int, int], frequencies: Floats, joined: list[bool]) -> Floats:
    giver, taker = move
    last = giver
    while last + 1 < len(joined) and joined[last + 1]:
        last += 1
    first = taker
    while joined[first]:
        first -= 1
    made = frequencies.copy()
    made[giver : last + 1] /= 2
    made[first : taker + 1] *= 2
    return made
