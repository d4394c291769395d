"""A log that is made from a copy, at a place where others could come too: a second restore, a job that goes on.

So the header is made first, which only one of them can; then the log is taken over, and whatever follows is done
only while nobody else has taken it over. Who finds a log there has made nothing, and removes nothing; who fails
removes the log that it has made, as long as it is its own. Parts go before the manifests that name them.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import BinaryIO

from tidelock.epochs import Epoch, EpochRange
from tidelock.errors import Fenced, PipelineError
from tidelock.log.documents import HEADER
from tidelock.log.log import EpochLog
from tidelock.log.repair import remove_log
from tidelock.log.store import LogStore, Token
from tidelock.log.window import Window


@dataclass(frozen=True)
class CopiedEntry:
    """An entry that is whole: its manifest, and its parts, which are in their place already."""

    covers: EpochRange
    data: bytes
    parts: tuple[str, ...]


@dataclass(frozen=True)
class CopiedAside:
    """A note that a consumer is to see an entry without its rows, and the last epoch that it is about."""

    last: Epoch
    data: bytes


class LogRebuild:
    """A log from its header to its cursors, made in the order of these methods.

    All but the first and the last raise `Fenced` once somebody else has taken the log over.
    """

    def __init__(self, store: LogStore) -> None:
        self._store = store
        self._owner = f"a restore ({uuid.uuid4().hex})"
        self._is_made = False
        self._token: Token | None = None

    def begin(self, header: bytes | None) -> None:
        """Begin the log; without a header there is none to be made, and there must not be one either.

        Raises:
            PipelineError: there is a log already; nothing of it was touched.
        """
        if self._store.get(HEADER) is None:
            if header is None:
                return
            self._is_made = self._store.create(HEADER, header)
        if not self._is_made:
            raise PipelineError(
                f"there is a log at {self._store.shown} already, perhaps of another restore that is under way or "
                "was killed: restore to another place, or remove it. Nothing of it was touched"
            )
        self._token = self._store.take_over(self._owner)

    def write_part(self, name: str, data: bytes) -> None:
        """Bring a part to its place."""
        self._held()
        self._store.write_part(name, _writing(data))

    def drop(self, entries: Iterable[CopiedEntry]) -> None:
        """Remove the parts of entries that the log does not get."""
        if gone := [name for entry in entries for name in entry.parts]:
            self._store.collect_parts(self._held(), gone)

    def finish(
        self,
        entries: Collection[CopiedEntry],
        asides: Mapping[str, CopiedAside],
        to: Epoch,
        readers: Mapping[str, Epoch],
    ) -> int:
        """Make of ``entries``, which follow each other, the log of a producer that goes on behind ``to``.

        Returns how many of them it does not get, because they are behind that or the log begins anew there.
        """
        found = Window.of([entry.covers for entry in entries])
        noted = {name: aside.last for name, aside in asides.items()}
        left = replace(found, asides=noted).put_back(to, readers)
        kept = {entry.covers for entry in left.entries}
        self.drop(entry for entry in entries if entry.covers not in kept)
        for name in left.asides:
            self._held()
            self._store.put(name, asides[name].data)
        for entry in entries:
            if entry.covers in kept:
                self._store.publish(self._held(), entry.covers, entry.data, entry.parts)
        log = EpochLog.kept_in(self._store)
        for consumer, position in left.cursors.items():
            self._held()
            log.move_cursor(consumer, position)
        return len(entries) - len(kept)

    def tell_recalls(self, epochs: Iterable[Epoch]) -> None:
        """Tell the readers of the log, once it is made, all the epochs that it was put back to."""
        self._held()
        EpochLog.kept_in(self._store).tell_recalls(epochs)

    def discard(self) -> None:
        """Remove the log if it was made here; nothing happens if it is somebody else's by now."""
        if self._token is None and self._is_made:
            self._store.delete(HEADER)  # nobody got further
        elif self._token is not None and self._is_mine:
            remove_log(self._store)

    @property
    def _is_mine(self) -> bool:
        """Whether it was made here, and nobody has taken it over since."""
        return self._store.holder() == (self._token, self._owner)

    def _held(self) -> Token:
        """The token under which the log is made.

        Raises:
            Fenced: it is somebody else's.
        """
        if self._token is None or not self._is_mine:
            raise Fenced(
                f"{self._store.shown} was taken over while it was restored: by another restore, or by a job that "
                "goes on with it. Nothing of theirs was touched; if you need this one, restore to another place"
            )
        return self._token


def _writing(data: bytes) -> Callable[[BinaryIO], int]:
    return lambda file: file.write(data)
