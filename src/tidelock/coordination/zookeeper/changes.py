"""Changes that are made once, although the acknowledgement of a change can be lost.

Theory of operation. A connection can break after the ensemble has made a change and before we hear of
it. Who then just repeats a `create` is told that the node exists, and who repeats "set if the version
is 7" that somebody was faster, although it was he himself. Comparing data does not help: two clients
that count write the same bytes.

So each session has a node of its own, its *receipt*, and every change is a transaction of two parts:
the change, and a `set` of the receipt to the number of this change, allowed only at the version that
the receipt has had since the change before. Either both are made or none. After a loss the receipt
tells: it has our number, the change was made; it has not, and we try again. Should the lost request
arrive after all, it or its repetition is refused by the receipt's version, whichever is second.

The receipt is ephemeral. A session that is over has none, so nothing can be changed in its name.

Changes of one client are made one after another. Crash points: there are none of our own, as nothing
is kept outside the two nodes and this object.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from kazoo.exceptions import BadVersionError, KazooException, NodeExistsError, NoNodeError

from tidelock.coordination.errors import SessionExpired
from tidelock.coordination.zookeeper.session import ConnectionLost, NoAnswer, Session
from tidelock.errors import InternalError

__all__ = ["Changes", "Made"]

_NOTHING = ", and nothing was changed"
_UNKNOWN = ", and whether the change was made is not known"


@dataclass(frozen=True, slots=True)
class Made:
    """A change that was made: ZooKeeper's answer, or None if that was lost, and the transaction's number."""

    answer: Any
    transaction: int


class _ReceiptMoved(Exception):
    """The receipt is not at the version that we know: an earlier request was carried out after all."""


class Changes:
    """Makes the changes of one session. Thread-safe."""

    def __init__(self, session: Session, folder: str) -> None:
        """Make the session's receipt in the node `folder`, which exists."""
        self._session = session
        self._receipt = f"{folder}/{session.id}"
        self._turn = threading.Lock()
        self._number = 0
        self._version = 0
        # If it exists, an acknowledgement was lost: no other session has our name.
        with suppress(NodeExistsError):
            session.read(lambda kazoo: [kazoo.create_async(self._receipt, b"0", ephemeral=True)])

    def make(self, change: Callable[[Any], None]) -> Made:
        """Make one change exactly once; `change` adds it to a transaction.

        Raises:
            KazooException: the change is refused, and nothing was changed.
            BackendUnavailable: no answer came in time. The change may have been made, or may still be
                made as long as the session lives and changes nothing else.
            SessionExpired: the session is over, and nothing was changed, unless the connection had been
                lost during this very call.
        """
        until = self._session.deadline()
        if not self._turn.acquire(timeout=max(0.0, until - time.monotonic())):
            raise self._session.unavailable(_NOTHING)
        try:
            self._number += 1
            return self._insist(change, until)
        finally:
            self._turn.release()

    def _insist(self, change: Callable[[Any], None], until: float) -> Made:
        in_doubt = False
        try:
            while True:
                try:
                    return self._try(change, until)
                except (ConnectionLost, _ReceiptMoved):
                    in_doubt = True
                    if made := self._look_for_receipt(until):
                        return made
                    in_doubt = False
        except NoAnswer as error:
            what = _UNKNOWN if in_doubt or error.asked else _NOTHING
            raise self._session.unavailable(what) from error

    def _try(self, change: Callable[[Any], None], until: float) -> Made:
        (results,) = self._session.ask(lambda kazoo: [self._transaction(kazoo, change)], until)
        receipt, answer = results
        if isinstance(receipt, BadVersionError):
            raise _ReceiptMoved
        if isinstance(receipt, NoNodeError):
            raise self._lost()
        if isinstance(answer, KazooException):
            raise answer
        if isinstance(receipt, KazooException):
            raise InternalError(f"the receipt {self._receipt} was refused ({receipt!r}); report it")
        self._version = receipt.version
        return Made(answer, receipt.mzxid)

    def _transaction(self, kazoo: Any, change: Callable[[Any], None]) -> Any:
        transaction = kazoo.transaction()
        transaction.set_data(self._receipt, b"%d" % self._number, self._version)
        change(transaction)
        return transaction.commit_async()

    def _look_for_receipt(self, until: float) -> Made | None:
        """Learn whether the change was made, and the receipt's version."""
        try:
            _, (data, stat) = self._session.insist(
                lambda kazoo: [kazoo.sync_async(self._receipt), kazoo.get_async(self._receipt)], until
            )
        except NoNodeError as error:
            raise self._lost() from error
        self._version = stat.version
        return Made(None, stat.mzxid) if data == b"%d" % self._number else None

    def _lost(self) -> SessionExpired:
        self._session.end()
        return SessionExpired(self._session.location.shown)
