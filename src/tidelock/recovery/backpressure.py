"""Backpressure: how far a producer may run ahead of the slowest consumer of its log.

While a segment restarts, the logs that it reads grow. They are never cut to save room; instead the producer
waits once its pending window is as long as the bound allows, and the waiting passes upstream from log to log
until a source is paused. An empty window always has room, however small the bound: one epoch in flight is what
it takes to make progress at all, so a bound can slow a pipeline down but not stop it.

A log in memory has a second bound: the server's, which all that is kept there share. What comes from outside waits
first, long before the server is full, so that what is already inside still finds room on its way out; and what has
been read makes room.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidelock.errors import PipelineError


@dataclass(frozen=True)
class Bound:
    """The longest pending window: in epochs that the slowest consumer has not finished, and in bytes.

    Raises:
        PipelineError: a limit is not positive.
    """

    epochs: int = 100
    bytes: int = 1 << 30

    def __post_init__(self) -> None:
        if self.epochs < 1 or self.bytes < 1:
            raise PipelineError(f"a log's bound has to be positive: {self.epochs} epochs, {self.bytes} bytes")


_FULL_FOR_HEADS = 0.75
_FULL = 0.9


def has_room(
    pending_epochs: int, pending_bytes: int, bound: Bound, used: float = 0.0, *, head: bool = False
) -> bool:
    """Whether a producer, perhaps one that reads sources (``head``), may start another epoch.

    ``used`` is the share of the memory for its log that is used. The size of an epoch is known only afterwards, so
    a window may pass its bound in bytes by one epoch.

    >>> has_room(99, 1000, Bound()), has_room(100, 1000, Bound()), has_room(3, 1 << 30, Bound())
    (True, False, False)
    >>> has_room(0, 1 << 40, Bound())
    True
    >>> [has_room(1, 1000, Bound(), used, head=True) for used in (0.7, 0.8, 0.95)]
    [True, False, False]
    >>> [has_room(1, 1000, Bound(), used) for used in (0.7, 0.8, 0.95)]
    [True, True, False]
    """
    if pending_epochs == 0:
        return True
    full = _FULL_FOR_HEADS if head else _FULL
    return pending_epochs < bound.epochs and pending_bytes < bound.bytes and used < full
