"""The fence: what may be written to the cells now, and by whom. Pure.

The driver changes it when it takes the state over and when an epoch begins. A task reads it together with the
cells, under Redis' WATCH, so its writes happen only if the fence is still the same then: whatever belongs to an
older run or to an epoch that is over writes nothing, not even a part.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from tidelock.epochs import BEFORE_FIRST
from tidelock.errors import Fenced


@dataclass(frozen=True)
class Fence:
    """Who writes, and which epoch.

    ``token`` is drawn at random by every run of the operator: so it also differs from those that a server has
    forgotten. ``begun`` is the last epoch of the batch that was begun last, ``batch`` its number, ``watermark``
    its watermark in milliseconds. ``pinned`` is the epoch of the snapshot that is being taken, if one is.
    """

    token: int
    owner: str
    batch: int = -1
    begun: int = BEFORE_FIRST
    watermark: int = 0
    pinned: int | None = None

    def encode(self) -> bytes:
        """The bytes that `decode` reads."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def decode(cls, data: bytes) -> Fence:
        """Read a fence."""
        fields: dict[str, Any] = json.loads(data)
        return cls(**fields)

    def check(self, where: str, token: int, batch: int | None = None) -> None:
        """See that whoever holds ``token`` may write now, for ``batch`` if it is a task.

        Raises:
            Fenced: a newer run has taken over, or the batch is over.
        """
        if self.token != token:
            raise Fenced(
                f"{where}: {self.owner} has taken this state over; this run must stop and has written nothing"
            )
        if batch is not None and self.batch != batch:
            raise Fenced(f"{where}: batch {batch} is over, batch {self.batch} has begun; nothing was written")
