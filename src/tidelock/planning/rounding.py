"""Frequencies as whole numbers of epochs: a segment commits after every k-th epoch. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tidelock.planning.sums import Sums

MAX_BATCH = 4
"""The most epochs that a planned batch takes, if nothing else is said: results wait for their batch."""


def whole_epochs(
    segments: Sequence[Sums], frequencies: Sequence[float], budget: float, epoch_frequency: float, most: int
) -> tuple[int, ...]:
    """How many epochs each segment takes in a batch, so that the overhead stays within ``budget``.

    ``most`` is the most that a batch may take, whatever the budget says. Rounding the frequencies down can only
    save overhead. What is saved is spent again, one epoch at a time, where it shortens recovery most.
    """
    counts = [
        1 if one.head else _count(f, epoch_frequency, most) for one, f in zip(segments, frequencies, strict=True)
    ]
    left = budget - sum(
        one.storing + one.commit * epoch_frequency / count for one, count in zip(segments, counts, strict=True)
    )
    while True:
        gains = [
            (one.replay / epoch_frequency, place)
            for place, (one, count) in enumerate(zip(segments, counts, strict=True))
            if count > 1 and one.replay > 0 and _extra(one, count, epoch_frequency) <= left
        ]
        if not gains:
            return tuple(counts)
        _, place = max(gains, key=lambda gain: (gain[0], -gain[1]))
        left -= _extra(segments[place], counts[place], epoch_frequency)
        counts[place] -= 1


def _count(frequency: float, epoch_frequency: float, most: int) -> int:
    if frequency * most <= epoch_frequency:
        return most
    return max(1, math.ceil(epoch_frequency / frequency - 1e-9))


def _extra(segment: Sums, count: int, epoch_frequency: float) -> float:
    """What it costs to take one epoch less in a batch."""
    return segment.commit * epoch_frequency * (1 / (count - 1) - 1 / count)
