"""The fence: what may be written to the cells now, and by whom. Pure.

The driver changes it when it takes the state over and when an epoch begins. A task reads it together with the
cells, under Redis' WATCH, so its writes happen only if the fence is still the same then: whatever belongs to an
older run or to an epoch that is over writes nothing, not even a part.

A server that comes back with older data, or is replaced by a replica that was behind, has an older fence. Whoever
finds one knows it: a run remembers whom it has displaced, and the batches of a run only grow. It may go on from
what is left, so it is not told that it is fenced.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from tidelock.epochs import BEFORE_FIRST
from tidelock.errors import BackendUnavailable, Fenced

_REMEMBERED = 8
"""How many take-overs a server may lose at once before the last of these runs believes that it is fenced."""


@dataclass(frozen=True)
class WriteClaim:
    """The right of one run to write: its token, and the tokens that were displaced before, the newest first."""

    token: int
    displaced: tuple[int, ...] = ()


@dataclass(frozen=True)
class Fence:
    """Who writes, and which epoch.

    ``token`` is drawn at random by every run of the operator: so it also differs from those that a server has
    forgotten. ``begun`` is the last epoch of the batch that was begun last, ``batch`` its number, ``watermark``
    its watermark in milliseconds. ``pinned`` is the epoch of the snapshot that is being taken, if one is.
    ``displaced`` has the tokens of the runs before, the newest first.
    """

    token: int
    owner: str
    batch: int = -1
    begun: int = BEFORE_FIRST
    watermark: int = 0
    pinned: int | None = None
    displaced: tuple[int, ...] = ()

    @property
    def claim(self) -> WriteClaim:
        """The right of the run that it belongs to."""
        return WriteClaim(self.token, self.displaced)

    def taken_over(self, token: int, owner: str) -> Fence:
        """The fence of the run that displaces this one.

        >>> Fence(7, "a run", displaced=(3,)).taken_over(9, "the next").claim
        WriteClaim(token=9, displaced=(7, 3))
        """
        return Fence(token, owner, begun=self.begun, displaced=(self.token, *self.displaced)[:_REMEMBERED])

    def encode(self) -> bytes:
        """The bytes that `decode` reads."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def decode(cls, data: bytes) -> Fence:
        """Read a fence."""
        fields: dict[str, Any] = json.loads(data)
        return cls(**{**fields, "displaced": tuple(fields.get("displaced", ()))})

    def check(self, where: str, claim: WriteClaim, batch: int | None = None) -> None:
        """See that whoever has ``claim`` may write now, for ``batch`` if it is a task.

        Raises:
            Fenced: a newer run has taken over, or the batch is over.
            BackendUnavailable: this fence is older than the claim or the batch: the server has lost something.
        """
        if self.token in claim.displaced:
            raise lost_state(where, "it has forgotten that this run has taken it over")
        if self.token != claim.token:
            raise Fenced(
                f"{where}: {self.owner} has taken this state over; this run must stop and has written nothing"
            )
        if batch is not None and self.batch < batch:
            raise lost_state(where, f"it has forgotten that batch {batch} has begun")
        if batch is not None and self.batch > batch:
            raise Fenced(f"{where}: batch {batch} is over, batch {self.batch} has begun; nothing was written")


def lost_state(where: str, what: str) -> BackendUnavailable:
    """The error for a server that no longer has what it had: whoever uses it begins again from what is left."""
    return BackendUnavailable(
        f"{where}: the server has lost some of this state: {what}. The operator starts again from what is there, "
        "or from its newest snapshot"
    )
