"""What is done to a log that is not written or read in the ordinary way: the window's rules performed by hand.

A log is put back, gets other readers, begins behind an epoch, or goes. Nobody may write it or read it for the home
meanwhile. Readers in other jobs may come at any time.

Crash points. Every function can be cut off between any two changes of the store, and is then called again with the
same arguments: it finds what is left to do. Entries go from the newest on, so what is left meanwhile is in the
same pieces, and whoever looks again chooses the same one. No cursor goes before those that come instead are there.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from tidelock.epochs import Epoch, EpochRange
from tidelock.errors import LogNotFound
from tidelock.log.documents import ASIDES, CURSORS, HEADER, RECALLS, ROUNDS, last_aside, round_name
from tidelock.log.entry import Manifest
from tidelock.log.log import EpochLog
from tidelock.log.sealed import seal, unseal
from tidelock.log.store import LogStore
from tidelock.log.window import Retention, Window

_MENDING = "mending"
_REPLANNING = "a change of the plan"


def put_back(store: LogStore, piece: Sequence[EpochRange], to: Epoch, readers: Mapping[str, Epoch]) -> None:
    """Leave of a log what ``piece`` of it has up to ``to``, behind which its producer goes on.

    ``piece``: entries that follow each other. ``readers`` go on where they are said to. A log whose header is lost
    is going to be made anew: until its readers register then, it keeps everything.

    Raises:
        Fenced: somebody has taken the log over meanwhile.
        BackendUnavailable: the store does not work; what is left to do can be done later.
    """
    window = Window.of(piece).put_back(to, {})
    _keep(store, [entry.covers for entry in window.entries])
    found = replace(window, asides={name: last_aside(name) for name in store.names(ASIDES)})
    for name in found.asides.keys() - found.put_back(to, {}).asides.keys():
        store.delete(name)
    for reader in readers:
        store.delete(round_name(reader))
    if store.get(HEADER) is None:
        _delete_all(store, CURSORS)
        return
    log = EpochLog.kept_in(store)
    found = replace(window, cursors=log.cursors())
    _move_cursors(log, found, found.put_back(to, readers))


def begin_log(log: EpochLog, epoch: Epoch) -> None:
    """Let a new log begin behind ``epoch``: with an entry for it that has no rows and that nobody will read.

    A log tells by its newest entry how far it has come. Without one, a copy of the home that was made now would
    have a segment at ``epoch`` whose log never got there.
    """
    manifest = Manifest(log.header.id, EpochRange.single(epoch), log.header.schema, parts=())
    log.take_over(_REPLANNING).publish(manifest)


def set_readers(log: EpochLog, gone: Collection[str], readers: Collection[str], new: Mapping[str, Epoch]) -> None:
    """Let a log wait for ``readers``: those that are ``gone`` hold nothing back, and ``new`` ones have a position.

    Whoever else it waits for, such as the snapshots of cached state, it goes on waiting for.
    """
    now = EpochLog.kept_in(log.store)
    found = Window(cursors=now.cursors(), retention=now.header.retention)
    left = found.change_readers(gone, readers, new)
    _move_cursors(log, found, left)
    if left.retention != found.retention:
        _set_retention(log, left.retention)
    for reader in found.cursors.keys() - left.cursors.keys():
        log.forget(reader)
    for reader in gone:
        log.store.delete(round_name(reader))


def remove_log(store: LogStore) -> None:
    """Remove a log and all that it holds; nothing happens if there is none.

    Its lease stays: if a log is made there again, an old writer of this one cannot take its token for a new one.
    """
    try:
        EpochLog.kept_in(store)
    except LogNotFound:
        return
    token = store.take_over(_REPLANNING)
    if ranges := store.ranges():
        store.unpublish(token, ranges)
    store.collect_parts(token, store.part_names())
    for names in (CURSORS, ROUNDS, ASIDES):
        _delete_all(store, names)
    store.delete(RECALLS)
    store.delete(HEADER)  # last: until then the log is there, and can be removed again


def tail(log: EpochLog) -> Epoch | None:
    """The newest epoch of a log; None if it is empty."""
    return max((covers.last for covers in log.ranges()), default=None)


def _keep(store: LogStore, kept: Collection[EpochRange]) -> None:
    """Remove all other entries, the newest first."""
    if all(covers in kept for covers in store.ranges()):
        return
    token = store.take_over(_MENDING)
    store.unpublish(token, [covers for covers in reversed(store.ranges()) if covers not in kept])


def _move_cursors(log: EpochLog, found: Window, left: Window) -> None:
    """Write the cursors that are others than were found; readers of other jobs may move theirs meanwhile."""
    for consumer, epoch in left.cursors.items():
        if epoch != found.cursors.get(consumer):
            log.move_cursor(consumer, epoch)


def _set_retention(log: EpochLog, retention: Retention) -> None:
    fields = unseal(log.store.get(HEADER) or b"", f"{log.shown}: the log's header", dict)
    keep = {**fields["retention"], "wait_for": sorted(retention.wait_for)}
    log.store.put(HEADER, seal({**fields, "retention": keep}))


def _delete_all(store: LogStore, prefix: str) -> None:
    for name in store.names(prefix):
        store.delete(name)
