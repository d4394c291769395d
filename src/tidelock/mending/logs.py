"""What is left of a log whose store was emptied, or came back with older data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tidelock.epochs import BEFORE_FIRST, Epoch, EpochRange
from tidelock.errors import LogCorrupt
from tidelock.log.documents import HEADER
from tidelock.log.entry import Manifest
from tidelock.log.repair import put_back
from tidelock.log.store import open_store
from tidelock.log.window import Window, runs
from tidelock.recovery import Held, Pieces

_FIRST_BATCHES = 1
"""The first entry of a log is of batch 0, or of batch 1 if Spark's first one took nothing."""


class FoundLog:
    """A log as it is found before a run. Nothing is changed before `place`."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._store = open_store(url)
        self.is_there = self._store.get(HEADER) is not None
        self._ranges = self._store.ranges()
        self._manifests = dict(self._whole()) if self.is_there else {}
        self._runs = runs(self._manifests)

    def _whole(self) -> Iterator[tuple[EpochRange, Manifest]]:
        """The entries that are all there; their rows are verified when they are read."""
        parts = set(self._store.part_names())
        for covers in self._ranges:
            try:
                manifest = Manifest.decode(self._store.manifest(covers) or b"", f"{self.url}: epoch {covers}")
            except LogCorrupt:
                continue
            if parts.issuperset(part.file for part in manifest.parts):
                yield covers, manifest

    @property
    def newest(self) -> Epoch:
        """The newest epoch that the log holds, whole or not."""
        return self._ranges[-1].last if self._ranges else BEFORE_FIRST

    # -- what it can be

    def is_whole(self, written: Epoch) -> bool:
        """Whether the log holds one run of entries that reaches at least up to what its writer has committed."""
        if not self._ranges:
            return self.is_there or written == BEFORE_FIRST
        return len(self._runs) == 1 and self._runs[0] == self._ranges and self._ranges[-1].last >= written

    def window(self, written: Epoch) -> Held:
        """What the log holds, if it is whole and its writer has committed ``written``."""
        return self._window(self._runs[-1]) if self._runs else Held(written)

    def pieces(self, written: Epoch) -> Pieces:
        """What the log can be given, when its writer has committed ``written``.

        A log of which something is missing can also be given up: an empty one fits where its writer and all of its
        readers go on from the same epoch.
        """
        found = tuple(self._window(run) for run in self._runs)
        return Pieces(found, None if found and self.is_whole(written) else written)

    def _window(self, run: list[EpochRange]) -> Held:
        held = Window.of(run).held
        head, ends = held.head, held.ends
        first = self._manifests[run[0]]
        if not first.query:  # nobody has computed it: it only says where the log begins
            return Held(ends[0], ends[1:])
        begins = first.batch <= _FIRST_BATCHES and run == self._runs[0]
        # Whoever has read nothing yet begins at the first entry of a log, whatever its epoch is.
        return Held(BEFORE_FIRST, (head, *ends)) if begins and head > BEFORE_FIRST else held

    def loss(self, written: Epoch) -> str | None:
        """What the log has lost, as far as it can be told from the log alone; None if nothing."""
        if self.is_whole(written) and (self._ranges or written == BEFORE_FIRST):
            return None
        if not self._runs:
            return "everything"
        tail = self._runs[-1][-1].last
        return f"the epochs from {tail + 1} to {written}" if tail < written else "some of its epochs"

    # -- making it that

    def place(self, window: Held, version: Epoch, readers: Mapping[str, Epoch]) -> None:
        """Leave of the log what ``window`` has up to ``version``, with the cursors of its readers. Idempotent."""
        ends = (window.head, *window.ends)  # at the head may end an entry that only says where the log begins
        piece = [covers for covers in self._manifests if covers.last in ends]
        put_back(self._store, piece, version, readers)
