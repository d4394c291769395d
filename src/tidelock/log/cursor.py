"""A cursor: how far a consumer of a log has durably come, as a document of the log. Pure.

Stores look at cursors too, because whether an entry may go has to be judged in the same moment in which it goes.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidelock.epochs import BEFORE_FIRST, Epoch
from tidelock.errors import LogCorrupt
from tidelock.log.sealed import seal, unseal


def encode_cursor(epoch: Epoch) -> bytes:
    """The document of a consumer that has finished ``epoch``.

    >>> decode_cursor(encode_cursor(Epoch(7)))
    7
    """
    return seal({"epoch": epoch})


def decode_cursor(data: bytes) -> Epoch:
    """How far the consumer has come; a cursor that cannot be read counts as nothing finished.

    >>> decode_cursor(b"{torn")
    -1
    """
    try:
        return unseal(data, "a cursor", lambda fields: Epoch(fields["epoch"]))
    except LogCorrupt:
        return BEFORE_FIRST


def all_past(cursors: Iterable[bytes], epoch: int) -> bool:
    """Whether all these consumers have finished ``epoch``.

    >>> all_past([encode_cursor(Epoch(4)), encode_cursor(Epoch(7))], 4)
    True
    """
    return all(decode_cursor(data) >= epoch for data in cursors)
