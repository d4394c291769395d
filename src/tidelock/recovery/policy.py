"""How patiently a failed segment is started again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tidelock.errors import PipelineError


@dataclass(frozen=True)
class Policy:
    """When to try again, how long to wait before it, and what to do with an epoch that always fails.

    After ``attempts`` failures in a row, without a commit in between, an epoch counts as poison: ``on_poison``
    says whether the pipeline stops or the epoch's input goes to a dead-letter log. While a store or a server is
    away nothing is counted: a segment is started again until that has lasted longer than ``patience``, without a
    commit in between. Times are in seconds.

    The first failure of a row is answered at once: most have passed with the attempt that met them. Only the ones
    behind it wait, ``first_delay`` at first and then ``factor`` times longer each.

    Raises:
        PipelineError: the numbers make no sense.
    """

    attempts: int = 3
    first_delay: float = 1.0
    factor: float = 2.0
    longest_delay: float = 30.0
    on_poison: Literal["stop", "dead-letter"] = "stop"
    patience: float = 300.0

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise PipelineError(f"a segment needs at least one attempt, not {self.attempts}")
        if not (0 <= self.first_delay <= self.longest_delay and self.factor >= 1):
            raise PipelineError(
                f"delays between attempts must not shrink: first {self.first_delay}, factor {self.factor}, "
                f"longest {self.longest_delay}"
            )
        if not self.patience >= 0:
            raise PipelineError(f"the patience with an outage is {self.patience} s: it must not be negative")
        if self.on_poison not in ("stop", "dead-letter"):
            raise PipelineError(f"on_poison is 'stop' or 'dead-letter', not {self.on_poison!r}")

    def delay(self, failures: int) -> float:
        """How long to wait after so many failures in a row.

        >>> [Policy().delay(failures) for failures in (1, 2, 3, 100)]
        [0.0, 1.0, 2.0, 30.0]
        """
        if failures <= 1:
            return 0.0
        delay = self.first_delay
        for _ in range(failures - 2):
            if delay >= self.longest_delay:
                break
            delay *= self.factor
        return min(delay, self.longest_delay)
