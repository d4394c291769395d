"""A replay: batches that had been done and are done again, because their segment was rolled back.

A segment that takes several epochs per batch has to end its batches where they had ended before, or it would
publish other entries under the same epochs. And a sink has to know whether what it had delivered stays. Both
stand in a document beside the checkpoint, written before the checkpoint is rolled back; what a query has passed
of it means nothing any more.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidelock.epochs import BEFORE_FIRST, Epoch
from tidelock.log.sealed import seal, unseal
from tidelock.placing import put_file


@dataclass(frozen=True)
class Replay:
    """A segment is rolled back to ``after``; the batches behind it had ended at ``ends``, which ascend.

    ``batch`` is the last one that stays, None if none does; ``rolled_back`` says whether the checkpoint is there
    already. Up to ``delivered`` a sink delivers nothing again: the input of these epochs is the same as before.
    """

    after: Epoch
    batch: int | None
    ends: tuple[Epoch, ...]
    delivered: Epoch = BEFORE_FIRST
    rolled_back: bool = False

    def write(self, path: str) -> None:
        """Put it at ``path``. Atomic and durable."""
        put_file(Path(path), seal(vars(self)), durable=True)


def read_replay(path: str | None) -> Replay | None:
    """The replay at ``path``; None if nothing was rolled back there.

    Raises:
        LogCorrupt: the document is damaged.
    """
    try:
        data = Path(path).read_bytes() if path is not None else None
    except FileNotFoundError:
        return None
    return None if data is None else unseal(data, f"the replay in {path}", _parsed)


def _parsed(fields: dict[str, Any]) -> Replay:
    ends = tuple(map(Epoch, fields["ends"]))
    return Replay(Epoch(fields["after"]), fields["batch"], ends, Epoch(fields["delivered"]), fields["rolled_back"])
