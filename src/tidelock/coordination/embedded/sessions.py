"""Sessions of the embedded tree: who is alive, and what vanishes with those who are not.

Theory of operation. A session is a row with an expiry, which a `Heartbeat` thread moves on three
times per time-out. The row decides: the session is alive as long as the row exists. Whoever finds
the row of *another* session past its expiry deletes it together with its ephemeral nodes, in one
transaction and before looking at any node. So a session that nobody missed is never lost, and once
one client has seen a session's nodes vanish, that session can do nothing any more.

Time is the machine's monotonic clock, which all its processes share and which no clock adjustment
moves. It starts again at a reboot; an expiry that lies too far ahead is from before one.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Callable

from tidelock.coordination.embedded.database import Database
from tidelock.coordination.embedded.nodes import delete_owned_by
from tidelock.coordination.errors import SessionExpired
from tidelock.errors import TidelockError

__all__ = ["Heartbeat", "Session"]

_LOGGER = logging.getLogger(__name__)

_OVERDUE = "id <> :own AND (expiry <= :now OR expiry > :now + 2 * timeout)"


class Session:
    """The session of one client. The methods that take `rows` run inside a transaction."""

    def __init__(self, rows: sqlite3.Connection, name: str, timeout: float, clock: Callable[[], float]) -> None:
        """Begin a session; `name` is the tree's, for messages."""
        self.name = name
        self.timeout = timeout
        self.over = threading.Event()
        self._clock = clock
        row = rows.execute(
            "INSERT INTO sessions (expiry, timeout) VALUES (?, ?) RETURNING id",
            (clock() + timeout, timeout),
        ).fetchone()
        self.id = int(row[0])

    def require(self, rows: sqlite3.Connection) -> None:
        """Raise `SessionExpired` if the session is over; once over, it stays so."""
        found = rows.execute("SELECT 1 FROM sessions WHERE id = ?", (self.id,)).fetchone()
        if found is None:
            self.over.set()
        self.require_locally()

    def require_locally(self) -> None:
        """Raise `SessionExpired` if the session is known to be over, without asking the file."""
        if self.over.is_set():
            raise SessionExpired(self.name)

    def renew(self, rows: sqlite3.Connection) -> None:
        """Move the expiry on, or raise `SessionExpired`."""
        self.require(rows)
        # The clock is read inside the transaction: no other client can have read it later and
        # written earlier.
        rows.execute("UPDATE sessions SET expiry = ? WHERE id = ?", (self._clock() + self.timeout, self.id))

    def sees_overdue(self, rows: sqlite3.Connection) -> bool:
        """Say whether another session has to be buried."""
        query = f"SELECT 1 FROM sessions WHERE {_OVERDUE} LIMIT 1"
        return rows.execute(query, self._now()).fetchone() is not None

    def bury_overdue(self, rows: sqlite3.Connection) -> None:
        """End every other session that was not renewed in time."""
        found = rows.execute(f"SELECT id FROM sessions WHERE {_OVERDUE}", self._now()).fetchall()
        for (overdue,) in found:
            _end(rows, overdue)

    def end(self, rows: sqlite3.Connection) -> None:
        """End this session; its ephemeral nodes vanish. Idempotent."""
        _end(rows, self.id)

    def _now(self) -> dict[str, float]:
        return {"own": self.id, "now": self._clock()}


def _end(rows: sqlite3.Connection, session: int) -> None:
    delete_owned_by(rows, session)
    rows.execute("DELETE FROM sessions WHERE id = ?", (session,))


class Heartbeat:
    """A background thread that keeps a session alive until it is closed.

    It has its own connection so that a slow call of the client cannot hold it up.
    """

    def __init__(self, database: Database, session: Session) -> None:
        """Start beating; `database` is closed together with the heartbeat."""
        self._database = database
        self._session = session
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tidelock-heartbeat", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop beating. Idempotent."""
        self._stop.set()
        self._thread.join()
        self._database.close()

    def _run(self) -> None:
        while not self._stop.wait(self._session.timeout / 3):
            try:
                self._beat()
            except SessionExpired:
                return
            except TidelockError as error:
                # The next beat may still be in time; if none is, the session expires.
                _LOGGER.warning("session with %s not renewed: %s", self._session.name, error)

    def _beat(self) -> None:
        with self._database.write() as rows:
            self._session.renew(rows)
            self._session.bury_overdue(rows)
