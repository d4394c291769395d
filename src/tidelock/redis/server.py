"""A connection to a Redis server, made once per process, and what its troubles mean for us.

A server that may drop data when it is full is refused: nothing here can be fetched again from elsewhere. Commands
that lost their connection are sent again for a while, so whatever is sent outside of a transaction has to be
idempotent.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import redis
from redis.backoff import ConstantBackoff, NoBackoff
from redis.exceptions import (
    AuthenticationError,
    ConnectionError,
    NoPermissionError,
    OutOfMemoryError,
    RedisError,
    ResponseError,
)
from redis.retry import Retry
from redis.sentinel import MasterNotFoundError, Sentinel

from tidelock.credentials import HINT, Credentials, cause, credentials_for, told
from tidelock.errors import BackendUnavailable, PipelineError
from tidelock.redis.location import RedisLocation

Answer = TypeVar("Answer")

_PAUSE = 0.1
_MET = re.compile(r" - (?:\w+:)?(\w+Error)\b")
"""In the text of redis-py's error, what asking each Sentinel met, behind a long description of its client."""
_FILES = {"ca": "ssl_ca_certs", "cert": "ssl_certfile", "key": "ssl_keyfile"}

_clients: dict[tuple[RedisLocation, Credentials | None], redis.Redis] = {}
_turns: dict[tuple[RedisLocation, Credentials | None], threading.Lock] = {}
"""For each client the lock of whoever makes it: a server that hangs holds up those who want it alone."""
_connecting = threading.Lock()
"""Guards both; nobody asks a server anything under it."""


def connect(location: RedisLocation) -> redis.Redis:
    """The client for the server of ``location``; one per process, safe for threads and after a fork.

    Raises:
        PipelineError: the server refuses us, or may drop data when it is full.
        BackendUnavailable: it does not answer.
    """
    server, who = identity = location.server, credentials_for(location.url)
    with _connecting:
        known, turn = _clients.get(identity), _turns.setdefault(identity, threading.Lock())
    if known is not None:
        return known
    with turn:
        if identity not in _clients:  # whoever had the turn before may have made it
            with translated(server):
                client = _client(server, who)
                _check_keeps_data(client, server)
            with _connecting:
                _clients[identity] = client
        return _clients[identity]


def _client(server: RedisLocation, who: Credentials | None) -> redis.Redis:
    options: dict[str, Any] = {
        "db": server.db,
        **_login(who),
        # The server itself waits for replicas as long as the timeout says, before it answers.
        "socket_timeout": server.timeout * (2 if server.replicas else 1),
        "socket_connect_timeout": server.timeout,
        "protocol": 2,
        # A server that is away is tried again for as long as the timeout says; one that hangs has had that time.
        "retry": Retry(ConstantBackoff(_PAUSE), int(server.timeout / _PAUSE), (ConnectionError,)),
    }
    if server.sentinel is None:
        host, port = server.hosts[0]
        return redis.Redis(host=host, port=port, **options, **_tls(server))
    primary: redis.Redis = _sentinels(server, who).master_for(server.sentinel, **options, **_tls(server))
    return primary


def _sentinels(server: RedisLocation, who: Credentials | None) -> Any:
    """The Sentinels of a server, which say where its primary is: over TLS if the server is, and as who they want.

    They may have credentials of their own. If nobody has said any, they are asked without, and those that want
    some get the server's.
    """
    own, watched = credentials_for(server.sentinels), str(server.sentinel)
    waiting: dict[str, Any] = {"socket_timeout": server.timeout, "socket_connect_timeout": server.timeout}
    # Each is asked once: who wants to know where the primary is asks again, for as long as the timeout says.
    waiting |= {"retry": Retry(NoBackoff(), 0), **_tls(server)}
    made: Any = Sentinel
    asked = made(server.hosts, sentinel_kwargs={**waiting, **_login(own)})
    if own is None and who is not None and not _answers(asked, watched):
        proved = made(server.hosts, sentinel_kwargs={**waiting, **_login(who)})
        return proved if _answers(proved, watched) else asked
    return asked


def _answers(sentinels: Any, watched: str) -> bool:
    try:
        return bool(sentinels.discover_master(watched))
    except RedisError:
        return False


def _login(who: Credentials | None) -> dict[str, Any]:
    return {} if who is None else {"username": who.user, "password": who.password or ""}


def _tls(server: RedisLocation) -> dict[str, Any]:
    return {"ssl": True, **{_FILES[name]: file for name, file in server.files}} if server.tls else {}


def _check_keeps_data(client: redis.Redis, server: RedisLocation) -> None:
    policy = dict(client.info("memory")).get("maxmemory_policy", "noeviction")
    if str(policy).startswith("allkeys"):
        raise PipelineError(
            f"{server.shown}: this server may drop data when it is full (its maxmemory-policy is {policy}): set "
            "it to noeviction, or use another server"
        )


@contextmanager
def translated(location: RedisLocation) -> Iterator[None]:
    """Say in our words what Redis raises inside.

    Raises:
        PipelineError: the user or the password is wrong, or may not do what is needed.
        BackendUnavailable: no connection, no answer in time, no room, or the server cannot do it now.
    """
    try:
        yield
    except (AuthenticationError, NoPermissionError) as error:
        raise PipelineError(
            f"{location.shown}: the server refuses this user or password ({told(error)}): {HINT}"
        ) from cause(error)
    except MasterNotFoundError as error:
        raise _unknown_primary(location, error) from None  # its text describes clients, which know passwords
    except OutOfMemoryError as error:
        raise BackendUnavailable(
            f"{location.shown}: the server has no memory left, and nothing was changed. Give it more (maxmemory), "
            "or let the readers of its logs catch up"
        ) from cause(error)
    except ResponseError as error:
        if str(error).startswith(("NOAUTH", "WRONGPASS")):
            raise PipelineError(
                f"{location.shown}: the server wants a user and a password ({told(error)}): {HINT}"
            ) from cause(error)
        raise BackendUnavailable(f"{location.shown}: the server cannot do this now ({told(error)})") from cause(
            error
        )
    except (RedisError, OSError) as error:
        raise BackendUnavailable(
            f"{location.shown}: the server does not answer ({told(error)}). Start it, or see whether it "
            "can be reached from here"
        ) from cause(error)


def _unknown_primary(location: RedisLocation, error: MasterNotFoundError) -> PipelineError | BackendUnavailable:
    """No Sentinel says where the primary is: they refuse us all, or it may be a passing trouble."""
    kinds = set(_MET.findall(str(error)))
    said = f"{location.shown}: no Sentinel says where {location.sentinel!r} is"
    said += f" ({', '.join(sorted(kinds))})" if kinds else ""
    if kinds == {AuthenticationError.__name__}:
        return PipelineError(f"{said}: {HINT}")
    return BackendUnavailable(f"{said}. Start them, or see whether they watch a primary of this name that is up")


def with_room(location: RedisLocation, write: Callable[[], Answer]) -> Answer:
    """What ``write`` answers; while the server is full it is tried again, for as long as its timeout says.

    Readers of logs make room meanwhile. Whoever still finds none fails, and is started again later.
    """
    deadline = time.monotonic() + location.timeout
    while True:
        try:
            return write()
        except OutOfMemoryError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_PAUSE)


def share_used(location: RedisLocation) -> float:
    """How much of the memory that the server may use is used; 0 if it has no limit.

    Raises:
        BackendUnavailable: the server does not answer.
    """
    with translated(location):
        facts = dict(connect(location).info("memory"))
    limit = int(facts.get("maxmemory", 0))
    return int(facts["used_memory"]) / limit if limit else 0.0


def copying_milliseconds(location: RedisLocation) -> int:
    """How many milliseconds to WAIT for copies: a little less than the connection itself waits for its answer."""
    return int(location.timeout * 900)


def check_copied(location: RedisLocation, copies: object) -> None:
    """See that what WAIT has counted is enough.

    Raises:
        BackendUnavailable: fewer replicas than ``location`` wants have the data.
    """
    if int(str(copies)) < location.replicas:
        raise BackendUnavailable(
            f"{location.shown}: the data reached {copies} replicas within {location.timeout:g} s, and "
            f"{location.replicas} are wanted. See that the replicas run, or lower `replicas`"
        )
