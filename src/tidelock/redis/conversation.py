"""Several commands over one connection, as WATCH, MULTI and WAIT want it; one round trip per question."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from redis.exceptions import ConnectionError, RedisError, TimeoutError

from tidelock.redis.location import RedisLocation
from tidelock.redis.server import connect, translated, with_room

Answer = TypeVar("Answer")

_BROKEN = 3
"""How many connections may break before that is the failure of what they were for."""


class Conversation:
    """A connection that is ours alone for a while."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def ask(self, *commands: bytes) -> list[Any]:
        """The answers to all these commands, which are sent together; the first that is an error is raised."""
        if not commands:
            return []
        self._connection.send_packed_command([b"".join(commands)])
        answers = [self._read() for _ in commands]
        _raise_first(answers)
        return answers

    def ask_if_unchanged(self, changes: Iterable[bytes]) -> list[Any] | None:
        """Carry out all ``changes`` or, if what was watched has changed, none of them: then the answer is None."""
        queued = list(changes)
        *_, answers = self.ask(_MULTI, *queued, _EXEC)
        if answers is None:
            return None
        _raise_first(answers)
        return list(answers)

    def close(self) -> None:
        """Give the connection up: answers may be left in it, and a WATCH."""
        self._connection.disconnect()

    def _read(self) -> Any:
        try:
            return self._connection.read_response()
        except (ConnectionError, TimeoutError):
            raise
        except RedisError as error:  # the answer to one command: the others still follow
            return error


_MULTI = b"*1\r\n$5\r\nMULTI\r\n"
_EXEC = b"*1\r\n$4\r\nEXEC\r\n"


def converse(location: RedisLocation, work: Callable[[Conversation], Answer]) -> Answer:
    """What ``work`` makes of a connection; if that breaks, or the server is full, it is done again.

    So ``work`` has to lead to the same end when it is repeated, whatever of it has happened already.

    Raises:
        BackendUnavailable: it did not work out in a few attempts.
        PipelineError: the server refuses us.
    """
    with translated(location):
        return with_room(location, lambda: _persistently(location, work))


def _persistently(location: RedisLocation, work: Callable[[Conversation], Answer]) -> Answer:
    """Do it again when a connection breaks; how long to try for a new one is the business of `connect`."""
    for _ in range(_BROKEN):
        with _conversation(location) as conversation:
            try:
                return work(conversation)
            except ConnectionError:
                conversation.close()
    with _conversation(location) as conversation:
        return work(conversation)


@contextmanager
def _conversation(location: RedisLocation) -> Iterator[Conversation]:
    pool = connect(location).connection_pool
    connection: Any = pool.get_connection()
    conversation = Conversation(connection)
    try:
        yield conversation
    except BaseException:
        conversation.close()
        raise
    finally:
        pool.release(connection)


def _raise_first(answers: list[Any]) -> None:
    for answer in answers:
        if isinstance(answer, Exception):
            raise answer
