"""Pending windows: what a log holds, in one piece or in several. Pure.

A log that has lost entries is found in pieces, runs of entries without a gap, of which one can be kept. Or it is
given up: an empty log fits where its writer and all of its readers go on from the same epoch. That is not one
more thing to choose: the version *v* that the writer restarts from decides it.

* If a piece has the boundary *v*, it serves every reader that any other piece would serve, and more: with another
  piece, or with none, a reader would have to stand at *v* itself.
* If no piece has it, whatever is kept is dropped, and readers must stand at *v*.

A version strictly inside an entry does not count: a writer's batch ends where its entry ends, so the log and the
checkpoint are of different histories there.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from itertools import pairwise

from tidelock.epochs import BEFORE_FIRST, Epoch
from tidelock.errors import InternalError


@dataclass(frozen=True)
class Held:
    """A pending window: everything up to ``head`` was truncated, ``ends`` are its entries' last epochs.

    >>> window = Held(Epoch(3), (Epoch(5), Epoch(8)))
    >>> window.rewound(Epoch(5))
    Held(head=3, ends=(5,))
    >>> window.rewound(Epoch(2))
    Held(head=2, ends=())
    """

    head: Epoch
    ends: tuple[Epoch, ...] = ()

    def __post_init__(self) -> None:
        check_ascending((self.head, *self.ends), "the boundaries of a log")

    @property
    def tail(self) -> Epoch:
        """The newest epoch that the log holds, or its head when it is empty."""
        return self.ends[-1] if self.ends else self.head

    def at(self, version: Epoch) -> Held:
        """The window that is kept when the producer restarts from ``version``: this one."""
        return self

    def is_boundary(self, epoch: Epoch) -> bool:
        """Whether a consumer may stand at ``epoch``: at the head, or at the end of an entry."""
        place = bisect_left(self.ends, epoch)
        return epoch == self.head or (place < len(self.ends) and self.ends[place] == epoch)

    def rewound(self, to: Epoch) -> Held:
        """The log for a producer that restarts from ``to``: without its tail, or empty if ``to`` is gone."""
        if to < self.head:
            return Held(to)
        return Held(self.head, self.ends[: bisect_right(self.ends, to)])

    def can_end_at(self, version: Epoch) -> bool:
        """Whether a producer at ``version`` finds all of its output here, or makes it anew."""
        return version < self.head or self.is_boundary(version)

    def serves(self, position: Epoch, version: Epoch, needs: tuple[Epoch, ...] = ()) -> bool:
        """Whether a consumer goes on from ``position`` when the producer restarts from ``version``.

        ``needs``: from where on it reads again what it had read up to ``position``.
        """
        if version < self.head:
            return position == version and all(need == position for need in needs)
        return (
            position <= version
            and self.is_boundary(position)
            and all(need == position or self.is_boundary(need) for need in needs)
        )


@dataclass(frozen=True)
class Pieces:
    """A log in pieces, oldest first. ``written``: up to which epoch it can be given up, None if it cannot.

    >>> log = Pieces((Held(Epoch(-1), (Epoch(0), Epoch(1))), Held(Epoch(3), (Epoch(4), Epoch(5)))), Epoch(7))
    >>> [log.at(Epoch(version)).head for version in (1, 2, 4, 6)]
    [-1, 3, 3, 7]
    >>> [log.serves(Epoch(position), Epoch(5)) for position in (1, 3, 4, 5)]
    [False, True, True, True]
    >>> [log.serves(Epoch(position), Epoch(2)) for position in (1, 2)]
    [False, True]
    """

    held: tuple[Held, ...]
    written: Epoch | None = None

    def __post_init__(self) -> None:
        if not self.held and self.written is None:
            raise InternalError("a log without pieces has to be given up")
        check_ascending(
            tuple(epoch for one in self.held for epoch in (one.head, *one.ends)), "the pieces of a log"
        )

    @property
    def head(self) -> Epoch:
        """Behind which epoch anything is left."""
        return self.held[0].head if self.held else self.at(BEFORE_FIRST).head

    @property
    def tail(self) -> Epoch:
        """The newest epoch that is left, or that it can be given up at."""
        return max([one.tail for one in self.held] + ([] if self.written is None else [self.written]))

    def at(self, version: Epoch) -> Held:
        """What is kept when the producer restarts from ``version``: the piece that has it, or what is dropped."""
        piece = self._piece(version)
        if piece is not None and (piece.is_boundary(version) or self.written is None):
            return piece
        newest = self.held[-1] if self.held else None
        if newest is not None and (version < newest.head or self.written is None):
            return newest
        return Held(self.written if self.written is not None else BEFORE_FIRST)

    def can_end_at(self, version: Epoch) -> bool:
        """Whether a producer at ``version`` finds all of its output here, or makes it anew."""
        piece = self._piece(version)
        if piece is not None:
            return piece.is_boundary(version)
        return (bool(self.held) and version < self.held[-1].head) or self._can_be_given_up(version)

    def _can_be_given_up(self, version: Epoch) -> bool:
        return self.written is not None and version <= self.written

    def serves(self, position: Epoch, version: Epoch, needs: tuple[Epoch, ...] = ()) -> bool:
        """Whether a consumer goes on from ``position`` when the producer restarts from ``version``."""
        piece = self._piece(version)
        if piece is None or not piece.is_boundary(version):
            return position == version and all(need == position for need in needs)
        return piece.serves(position, version, needs)

    def _piece(self, version: Epoch) -> Held | None:
        """The piece whose span has ``version``."""
        place = bisect_right(self.held, version, key=lambda one: one.head) - 1
        return self.held[place] if place >= 0 and version <= self.held[place].tail else None


def check_ascending(epochs: tuple[Epoch, ...], what: str) -> None:
    """See that epochs ascend."""
    if any(later <= earlier for earlier, later in pairwise(epochs)):
        raise InternalError(f"{what} have to ascend: {', '.join(map(str, epochs))}")
