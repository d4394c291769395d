"""Epoch logs of a home whose plan changes: where a new one begins, who reads an old one, and how one goes."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from tidelock.epochs import Epoch, EpochRange
from tidelock.errors import LogNotFound
from tidelock.log import EpochLog
from tidelock.log.documents import ASIDES, CURSORS, HEADER, RECALLS, ROUNDS, round_name
from tidelock.log.entry import Manifest
from tidelock.log.sealed import seal, unseal

_OWNER = "a change of the plan"


def begin_log(log: EpochLog, epoch: Epoch) -> None:
    """Let a new log begin behind ``epoch``: with an entry for it that has no rows and that nobody will read.

    A log tells by its newest entry how far it has come. Without one, a copy of the home that was made now would
    have a segment at ``epoch`` whose log never got there.
    """
    manifest = Manifest(log.header.id, EpochRange.single(epoch), log.header.schema, parts=())
    log.take_over(_OWNER).publish(manifest)


def set_readers(log: EpochLog, gone: Collection[str], readers: Collection[str], new: Mapping[str, Epoch]) -> None:
    """Let a log wait for ``readers``: those that are ``gone`` hold nothing back, and ``new`` ones have a position.

    Whoever else it waits for, such as the snapshots of cached state, it goes on waiting for. Idempotent.
    """
    for reader, epoch in new.items():
        log.move_cursor(reader, epoch)
    fields = unseal(log.store.get(HEADER) or b"", f"{log.shown}: the log's header", dict)
    waits_for = set(fields["retention"]["wait_for"]).difference(gone).union(readers)
    retention = {**fields["retention"], "wait_for": sorted(waits_for)}
    if retention != fields["retention"]:
        log.store.put(HEADER, seal({**fields, "retention": retention}))
    for reader in gone:
        log.forget(reader)
        log.store.delete(round_name(reader))


def remove_log(url: str) -> None:
    """Remove a log and all that it holds; nothing happens if there is none.

    Its lease stays: if a log is made there again, an old writer of this one cannot take its token for a new one.
    """
    try:
        store = EpochLog.open(url).store
    except LogNotFound:
        return
    token = store.take_over(_OWNER)
    if ranges := store.ranges():
        store.unpublish(token, ranges)
    store.collect_parts(token, store.part_names())
    for folder in (CURSORS, ROUNDS, ASIDES):
        for name in store.names(folder):
            store.delete(name)
    store.delete(RECALLS)
    store.delete(HEADER)  # last: until then the log is there, and can be removed again


def tail(log: EpochLog) -> Epoch | None:
    """The newest epoch of a log; None if it is empty."""
    return max((covers.last for covers in log.ranges()), default=None)
