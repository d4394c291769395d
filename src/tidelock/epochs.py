"""Epochs: the numbers that cut a stream into pieces, and ranges of them.

Epoch *n* is everything between boundary *n - 1* and boundary *n*. Numbers start at 0 and grow by one along
the stream, so "finished up to epoch 7" says all that there is to say about a position. The position before
the first epoch is :data:`BEFORE_FIRST`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NewType

from tidelock.errors import InternalError

Epoch = NewType("Epoch", int)

BEFORE_FIRST = Epoch(-1)
"""The position of somebody who has finished nothing yet."""


@dataclass(frozen=True, order=True)
class EpochRange:
    """The epochs from ``first`` to ``last``, both included; never empty.

    >>> EpochRange(Epoch(3), Epoch(5)).size
    3
    >>> EpochRange.after(Epoch(5), Epoch(6))
    EpochRange(first=6, last=6)
    """

    first: Epoch
    last: Epoch

    def __post_init__(self) -> None:
        if not 0 <= self.first <= self.last:
            raise InternalError(f"not a range of epochs: {self.first} to {self.last}")

    @classmethod
    def single(cls, epoch: Epoch) -> EpochRange:
        """The range that holds one epoch."""
        return cls(epoch, epoch)

    @classmethod
    def after(cls, done: Epoch, last: Epoch) -> EpochRange:
        """The epochs that follow the position ``done``, up to ``last``."""
        return cls(Epoch(done + 1), last)

    @property
    def size(self) -> int:
        """How many epochs the range holds."""
        return self.last - self.first + 1

    def __str__(self) -> str:
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"
