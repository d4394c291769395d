"""Where a segment goes on whose state is in a cache. Pure.

Theory of operation
-------------------
Three places know how far such a segment has come, and a crash may fall between any two of them: its checkpoint
(committed epochs), the cache (the epoch whose cells are all written, and the one that was begun last) and the
snapshots of the cache. The order of writing is: begin a batch in the cache, write its cells, done in the cache,
commit in the checkpoint. Hence normally the cache is at the committed epoch, or one batch ahead, which is then run
again and finds the versions before it.

Otherwise something was lost, and the segment goes back: to the epoch of the cache, if that is older (a server that
came back with older data), or to the newest snapshot, which is loaded into the cache; to the beginning if there is
none yet and the logs still hold everything. Of these the newest is taken to which the checkpoint can be put back
and from which the logs still hold what follows.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from tidelock.epochs import BEFORE_FIRST, Epoch
from tidelock.recovery.adjust import Unrecoverable


class Way(Enum):
    """How the cache gets to the state from which a segment goes on."""

    BEGIN = "begin with no state"
    KEEP = "keep what is in the cache"
    LOAD = "load a snapshot"


@dataclass(frozen=True)
class CacheFound:
    """What is found when a segment with cached state is started.

    Attributes:
        committed: The newest committed epoch of its checkpoint.
        begun: The last epoch of the newest batch of its checkpoint, which may be committed or not.
        safe: The epochs to which its checkpoint can be put back; `BEFORE_FIRST` among them if it may start over.
        cached: The epoch at which the cache is; None if the cache does not know this state.
        snapshots: The epochs of its snapshots.
        oldest: The position from which its input logs still hold everything.
    """

    committed: Epoch
    begun: Epoch
    safe: frozenset[Epoch]
    cached: Epoch | None
    snapshots: frozenset[Epoch]
    oldest: Epoch


@dataclass(frozen=True)
class Resume:
    """Go on after ``epoch``, with the state that the cache has in this ``way``."""

    epoch: Epoch
    way: Way


def goes_on(cached: Epoch | None, committed: Epoch, begun: Epoch) -> bool:
    """Whether a segment goes on with what is in the cache: that is at its committed epoch, or one batch ahead."""
    return cached is not None and cached in (committed, begun)


def resume(found: CacheFound) -> Resume:
    """The newest epoch from which the segment can go on.

    Raises:
        Unrecoverable: there is none; the message says what is missing.

    >>> at = frozenset({Epoch(5), Epoch(6), Epoch(7)})
    >>> resume(CacheFound(Epoch(7), Epoch(7), at, Epoch(7), frozenset(), Epoch(3)))
    Resume(epoch=7, way=<Way.KEEP: 'keep what is in the cache'>)
    >>> resume(CacheFound(Epoch(7), Epoch(7), at, None, frozenset({Epoch(5)}), Epoch(5)))
    Resume(epoch=5, way=<Way.LOAD: 'load a snapshot'>)
    """
    if goes_on(found.cached, found.committed, found.begun):
        return Resume(found.committed, Way.KEEP)
    if found.committed == BEFORE_FIRST:
        return Resume(BEFORE_FIRST, Way.BEGIN)
    ways = [Resume(epoch, Way.LOAD) for epoch in found.snapshots]
    if found.cached is not None:
        ways.append(Resume(found.cached, Way.KEEP))
    if not found.snapshots:
        ways.append(Resume(BEFORE_FIRST, Way.BEGIN))
    possible = [way for way in ways if _fits(found, way.epoch)]
    if not possible:
        raise Unrecoverable(_story(found))
    return max(possible, key=lambda way: (way.epoch, way.way is Way.KEEP))


def _fits(found: CacheFound, epoch: Epoch) -> bool:
    return epoch <= found.committed and epoch in found.safe and epoch >= found.oldest


def _story(found: CacheFound) -> str:
    cache = (
        "the cache does not have its state" if found.cached is None else f"the cache is at epoch {found.cached}"
    )
    newest = max(found.snapshots, default=None)
    snapshot = "there is no snapshot" if newest is None else f"the newest snapshot is of epoch {newest}"
    return (
        f"it has finished epoch {found.committed}, but {cache} and {snapshot}, and from there on its logs or its "
        f"checkpoint no longer hold all that follows (the logs begin after epoch {found.oldest}): restore a "
        "backup, or start the pipeline in a new home"
    )
