"""What a store of cells has to do: the keyed state of one operator, outside of Spark.

Cells are kept by the bytes of their keys, in `BUCKETS` buckets, and beside them who may write and how far they
have come: a header (what the state is of), the fence, and the last epoch that is done. A store promises

* that a task's writes happen as a whole, and only if the fence is as it was when the task read its cells;
* that a batch counts only if nothing was lost while it ran;
* that what it loses is the end of its history: if it says that epoch *n* is done, every cell is there as it was at
  *n*, or one batch later.

Every back end passes `tidelock.testing.contracts.caches`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import pyarrow as pa

from tidelock.backends import Registry
from tidelock.cache.bytes import Numbers
from tidelock.cache.fence import Fence, WriteClaim
from tidelock.cache.wire import Group
from tidelock.epochs import Epoch
from tidelock.errors import PipelineError
from tidelock.urls import masked

Result = TypeVar("Result")

BUCKETS = 256
"""How many there are of them: so many that one can be read as a whole without keeping others waiting."""


@dataclass(frozen=True)
class Keys:
    """Some keys, neighbours of one bucket together: their bytes, and the bucket of each."""

    fields: pa.BinaryArray
    buckets: Numbers

    def groups(self, key: Callable[[int], str], wanted: Numbers | None = None) -> list[Group]:
        """The runs of equal buckets; of ``wanted`` rows only, if given, counted among these."""
        buckets = self.buckets if wanted is None else self.buckets[wanted]
        if not len(buckets):
            return []
        cuts = np.flatnonzero(np.diff(buckets)) + 1
        firsts = [0, *cuts.tolist()]
        ends = [*cuts.tolist(), len(buckets)]
        return [Group(key(int(buckets[f])), f, e) for f, e in zip(firsts, ends, strict=True)]


@dataclass(frozen=True)
class Writes:
    """What a task writes: a cell for each of its keys, and versions that a snapshot would lose otherwise."""

    cells: pa.BinaryArray
    doomed: Numbers
    """The places, among the keys, of the cells that lose such a version."""
    saved: pa.BinaryArray
    """These versions, as cells."""


Compute = Callable[[Fence, pa.BinaryArray], tuple[Writes | None, Result]]
"""From the fence and the cells of some keys to what is written, and a result."""


@dataclass(frozen=True)
class Bucket:
    """Cells by the bytes of their keys."""

    fields: pa.BinaryArray
    cells: pa.BinaryArray


class CellStore(ABC):
    """The state of one operator. Pickles, so that tasks can open it. Thread-safe."""

    url: str
    """What opens it, on any machine that can reach it and knows who it is there: it holds no credentials."""

    @property
    def shown(self) -> str:
        """Where it is, for people."""
        return self.url

    @abstractmethod
    def under(self, name: str) -> CellStore:
        """The place ``name`` below this one."""

    # -- documents

    @abstractmethod
    def header(self) -> bytes | None:
        """What the state is of; None if there is no state."""

    @abstractmethod
    def create(self, header: bytes, done: Epoch) -> None:
        """Say that the cells that are there are the state at the end of ``done``. Durable.

        The header comes last: without it there is no state, whatever else there is.
        """

    @abstractmethod
    def done(self) -> Epoch:
        """The last epoch whose batch has written all its cells."""

    @abstractmethod
    def fence(self) -> Fence | None:
        """Who may write now; None if nobody ever has."""

    @abstractmethod
    def clear(self) -> None:
        """Remove everything, the header first."""

    # -- the driver's side

    @abstractmethod
    def take_over(self, owner: str, before: Fence | None = None) -> Fence:
        """Become the only one who may write; a snapshot that was under way is given up. Durable.

        ``before`` is the fence that was there before the state was cleared, if it was.
        """

    @abstractmethod
    def begin(self, fence: Fence, done: Epoch) -> str:
        """Let the tasks of a batch write: from now on ``fence`` holds, of which the caller has the token.

        ``done`` is how far the caller believes the cells to be. Returns which server it is.

        Raises:
            Fenced: a newer run has taken over.
            BackendUnavailable: the server has lost something since the last batch.
            PipelineError: it does not say which server it is.
        """

    @abstractmethod
    def end(self, fence: Fence, server: str) -> None:
        """Say that all tasks of the batch have written, if all that was on one and the same ``server``.

        When this returns as many replicas as wanted have it all.

        Raises:
            Fenced: a newer run has taken over.
            BackendUnavailable: the server has restarted, or another one has taken over, since the batch began.
        """

    # -- the tasks' side

    @abstractmethod
    def held(self, claim: WriteClaim, batch: int) -> Fence:
        """The fence, as long as it lets the batch write.

        Raises:
            Fenced: a newer run has taken over, or the batch is over.
            BackendUnavailable: the server does not answer, or has lost the state.
        """

    @abstractmethod
    def change(self, claim: WriteClaim, batch: int, keys: Keys, compute: Compute[Result]) -> Result:
        """Read the cells of ``keys``, compute, and write what comes out: all of it or nothing. Two round trips.

        Raises:
            Fenced: a newer run has taken over, or the batch is over.
            BackendUnavailable: the server does not answer, is full, or has lost the state.
        """

    # -- whole buckets

    @abstractmethod
    def check_pinned(self, fence: Fence, server: str) -> None:
        """See that all that was read since ``fence`` was set is one and the same state, of its pinned epoch.

        Raises:
            Fenced: a newer run has taken over.
            BackendUnavailable: the server has restarted, or another one has taken over, since then.
        """

    @abstractmethod
    def bucket(self, bucket: int) -> tuple[Bucket, Bucket]:
        """All cells of a bucket, and the versions that were saved for the snapshot, as of one moment."""

    @abstractmethod
    def load(self, keys: Keys, cells: pa.BinaryArray) -> None:
        """Put cells into the store, whatever is there. For a state that nobody writes to."""

    @abstractmethod
    def drop(self, bucket: int, fields: pa.BinaryArray, cells: pa.BinaryArray) -> int:
        """Remove the cells that are still as given; how many."""

    @abstractmethod
    def find(self, fields: pa.BinaryArray) -> tuple[Epoch, pa.BinaryArray]:
        """The cells of some keys, whatever their buckets, and the epoch that was done at that moment.

        Every bucket is asked, so this is for few keys.
        """


_CACHES: Registry[CellStore] = Registry(
    "tidelock.caches",
    {"redis": "tidelock.cache.redis_cells:RedisCells", "rediss": "tidelock.cache.redis_cells:RedisCells"},
)


def open_cells(url: str) -> CellStore:
    """The cells that ``url`` names; nothing is asked of their server yet.

    Raises:
        PipelineError: the URL is malformed, no back end answers for its scheme, or what it needs is not installed.
    """
    found = _CACHES.find(url)
    if found is None:
        known = ", ".join(f"{name}:" for name in _CACHES.schemes())
        raise PipelineError(f"no cache for {masked(url)!r}: the scheme must be one of {known}")
    return found(url)
