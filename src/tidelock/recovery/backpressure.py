"""Backpressure: how far a producer may run ahead of the slowest consumer of its log.

While a segment restarts, the logs that it reads grow. They are never cut to save room; instead the producer
waits once its pending window is as long as the bound allows, and the waiting passes upstream from log to log
until a source is paused. An empty window always has room, however small the bound: one epoch in flight is what
it takes to make progress at all, so a bound can slow a pipeline down but not stop it.
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


def has_room(pending_epochs: int, pending_bytes: int, bound: Bound) -> bool:
    """Whether a producer may start another epoch.

    The size of an epoch is known only afterwards, so a window may pass its bound in bytes by one epoch.

    >>> has_room(99, 1000, Bound()), has_room(100, 1000, Bound()), has_room(3, 1 << 30, Bound())
    (True, False, False)
    >>> has_room(0, 1 << 40, Bound())
    True
    """
    return pending_epochs == 0 or (pending_epochs < bound.epochs and pending_bytes < bound.bytes)
