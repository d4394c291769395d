"""One session with a ZooKeeper ensemble, and questions that are asked again when a connection breaks.

Theory of operation. kazoo keeps the connection: it sends heartbeats and connects again, to any of
the hosts, when a connection breaks. When the ensemble says that the session has expired, kazoo would
quietly begin another one, in which our ephemeral nodes do not exist. A tree must not outlive its
session, so from that moment on no connection is made any more (`_LastSession`). kazoo reports the end
on the thread that makes connections: none can slip through.

A question that lost its connection fails with `ConnectionLost`, and whether the ensemble has seen it
is unknown. Reading may simply be repeated (`Session.read`); for changes see `changes`.
"""

from __future__ import annotations

import errno
import logging
import math
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import (
    ConnectionLoss,
    KazooException,
    NotReadOnlyCallError,
    OperationTimeoutError,
    RequestTimeoutError,
    SessionExpiredError,
    SessionMovedError,
    ThrottledOpError,
)
from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler
from kazoo.protocol.serialization import Auth
from kazoo.protocol.states import KazooState
from kazoo.retry import KazooRetry
from kazoo.security import CREATOR_ALL_ACL

from tidelock.coordination.errors import SessionExpired
from tidelock.coordination.zookeeper.location import ZooKeeperLocation
from tidelock.credentials import HINT, Credentials, credentials_for, told
from tidelock.errors import BackendUnavailable, PipelineError

__all__ = ["ConnectionLost", "NoAnswer", "Session"]

_LOGGER = logging.getLogger(__name__)
_KAZOOS_LOGGER = logging.getLogger("kazoo.client.tidelock")
"""Where kazoo logs what our sessions do."""

_LOSSES = (
    ConnectionLoss,
    NotReadOnlyCallError,
    OperationTimeoutError,
    RequestTimeoutError,
    SessionMovedError,
    ThrottledOpError,
)
_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 1.0
_SHORTEST_TIMEOUT, _LONGEST_TIMEOUT = 0.5, 86_400.0
"""Seconds: less than this is too little for kazoo to connect, and more than any server allows does not fit."""

_ATTEMPTS = 3
"""How many servers are tried at least within one session time-out. kazoo gives each host in its list an equal
share of it: with a list of one, a single server that takes a connection and does not answer, as one that is just
starting may, would cost the session."""

Send = Callable[[KazooClient], Iterable[Any]]
"""Sends one or more questions, in one go, and returns kazoo's promises of the answers."""


class ConnectionLost(Exception):
    """The connection broke before the answer came."""


class NoAnswer(Exception):
    """No answer came in time; `asked` says whether the question was sent at all."""

    def __init__(self, *, asked: bool) -> None:
        super().__init__(asked)
        self.asked = asked


def _tells_no_password(record: logging.LogRecord) -> bool:
    """Whether what kazoo logs may be seen: it logs all that it sends, also how it says who we are."""
    return not any(isinstance(sent, Auth) for sent in record.args or ())


_KAZOOS_LOGGER.addFilter(_tells_no_password)


class _LastSession(SequentialThreadingHandler):  # type: ignore[misc]
    """Lets kazoo connect until the session is over, and never again."""

    def __init__(self, over: threading.Event) -> None:
        super().__init__()
        self._over = over

    def create_connection(self, *args: Any, **kwargs: Any) -> Any:
        """Connect to a server."""
        if self._over.is_set():
            raise ConnectionAbortedError(errno.ECONNABORTED, "the session is over")
        return super().create_connection(*args, **kwargs)


def _who(location: ZooKeeperLocation) -> Credentials | None:
    """Who we are there; ZooKeeper knows no user without a password.

    Raises:
        PipelineError: one of the two is missing.
    """
    who = credentials_for(location.shown)
    if who is not None and (not who.user or who.password is None):
        raise PipelineError(f"{location.shown}: a user needs a password, and a password a user: {HINT}")
    return who


class Session:
    """The session of one client. Thread-safe; `over` is set once it has ended, for whatever reason."""

    def __init__(self, location: ZooKeeperLocation, timeout: float, on_end: Callable[[], None]) -> None:
        """Begin a session that may be silent for `timeout` seconds, if the ensemble allows so many.

        `on_end` is called when it is lost, on a thread that must not be held up.

        Raises:
            BackendUnavailable: no server answers.
        """
        self.location = location
        self.over = threading.Event()
        self._on_end = on_end
        self._connected = threading.Event()
        self._closing = threading.Lock()
        self._closed = False
        self.id = ""
        who = _who(location)
        self._kazoo = KazooClient(
            hosts=",".join([location.addresses] * math.ceil(_ATTEMPTS / len(location.hosts))),
            timeout=min(max(timeout, _SHORTEST_TIMEOUT), _LONGEST_TIMEOUT),
            handler=_LastSession(self.over),
            logger=_KAZOOS_LOGGER,
            connection_retry=KazooRetry(max_tries=-1, delay=_FIRST_PAUSE, max_delay=_LONGEST_PAUSE),
            auth_data=[("digest", f"{who.user}:{who.password}")] if who else None,
            default_acl=CREATOR_ALL_ACL if who else None,
        )
        self._kazoo.add_listener(self._hear)
        self._kazoo.start_async()
        try:
            self._await_connection(self.deadline())
        except BaseException as error:
            self.close()
            if isinstance(error, NoAnswer):
                raise self.unavailable() from error
            raise

    def deadline(self) -> float:
        """The moment at which a call that begins now gives up."""
        return time.monotonic() + self.location.timeout

    def require(self) -> None:
        """Raise `SessionExpired` if the session is known to be over."""
        if self.over.is_set():
            raise SessionExpired(self.location.shown)

    def end(self) -> None:
        """Note that the session is over, and let kazoo go: without that it tries to connect for ever."""
        self._note_the_end()
        # Not here: kazoo tells us of losses on a thread that has to end before it is stopped.
        threading.Thread(target=self.close, name="tidelock-zookeeper-end", daemon=True).start()

    def ask(self, send: Send, until: float) -> list[Any]:
        """Ask once and return the answers.

        Raises:
            ConnectionLost: the connection broke; whether anything was done is unknown.
            NoAnswer: none came by `until`; whether anything was done is unknown, if it was asked.
            SessionExpired: the session is over.
            KazooException: the answer is an error.
        """
        self._await_connection(until)
        try:
            promises = list(send(self._kazoo))
            return [promise.get(timeout=max(0.0, until - time.monotonic())) for promise in promises]
        except _LOSSES as error:
            self.require()
            raise ConnectionLost from error
        except SessionExpiredError as error:
            self.end()
            raise SessionExpired(self.location.shown) from error
        except KazooTimeoutError as error:
            self.require()
            raise NoAnswer(asked=True) from error

    def insist(self, send: Send, until: float) -> list[Any]:
        """Ask until a connection lasts as long as the question; otherwise like `ask`."""
        while True:
            try:
                return self.ask(send, until)
            except ConnectionLost:
                continue

    def read(self, send: Send) -> list[Any]:
        """Ask what may be asked twice, with the patience of one call.

        Raises:
            BackendUnavailable: no answer came in time.
            SessionExpired: the session is over.
            KazooException: the answer is an error.
        """
        try:
            return self.insist(send, self.deadline())
        except NoAnswer as error:
            raise self.unavailable() from error

    def unavailable(self, what: str = "") -> BackendUnavailable:
        """The error of a call that got no answer in time; `what` says what has become of it."""
        return BackendUnavailable(
            f"{self.location.shown}: no server answers within {self.location.timeout:g} s{what}. Start it, or see "
            "whether it can be reached from here"
        )

    def close(self) -> None:
        """End the session; a server that does not answer is left to find out by itself. Idempotent."""
        self._note_the_end()
        with self._closing:
            if self._closed:
                return
            self._closed = True
            try:
                self._kazoo.stop()
                self._kazoo.close()
            except (KazooException, OSError) as error:
                _LOGGER.warning("session with %s is left to expire: %s", self.location.shown, told(error))

    def _note_the_end(self) -> None:
        self.over.set()
        self._connected.set()  # who waits for a connection waits in vain
        self._on_end()

    def _await_connection(self, until: float) -> None:
        self.require()
        connected = self._connected.wait(max(0.0, until - time.monotonic()))
        self.require()
        if not connected:
            raise NoAnswer(asked=False)

    def _hear(self, state: str) -> None:
        """Learn from kazoo what has become of the connection."""
        if state == KazooState.CONNECTED:
            number, _ = self._kazoo.client_id  # it is known here, and the same after every reconnection
            self.id = f"{number & (2**64 - 1):016x}"
            self._connected.set()
        elif state == KazooState.SUSPENDED:
            self._connected.clear()
        else:
            self.end()
