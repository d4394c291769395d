"""Sending commands to a Redis server, and waiting for the copies that the URL asks for.

Commands are sent over one connection, because WAIT counts the copies of what its own connection has written.
Each of them is atomic; together they are not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tidelock.redis.location import RedisLocation
from tidelock.redis.server import check_copied, connect, copying_milliseconds, translated, with_room

Command = tuple[Any, ...]


def send(location: RedisLocation, commands: Sequence[Command], *, copied: bool = False) -> list[Any]:
    """What the server answers; with ``copied`` after as many replicas as the URL wants have what was written.

    Raises:
        PipelineError: the server refuses us.
        BackendUnavailable: it does not answer, has no room, or too few replicas have the data.
    """
    with translated(location):
        answers = _exchange(location, commands, copied=copied)
    return _checked(location, answers, copied=copied)


def send_when_room(location: RedisLocation, commands: Sequence[Command]) -> list[Any]:
    """The same with ``copied``, and while the server is full it is tried again for as long as its timeout says.

    Raises:
        PipelineError: the server refuses us.
        BackendUnavailable: it does not answer, stays full, or too few replicas have the data.
    """
    with translated(location):
        answers = with_room(location, lambda: _exchange(location, commands, copied=True))
    return _checked(location, answers, copied=True)


def _exchange(location: RedisLocation, commands: Sequence[Command], *, copied: bool) -> list[Any]:
    pipeline: Any = connect(location).pipeline(transaction=False)
    for command in commands:
        pipeline.execute_command(*command)
    if copied and location.replicas:
        pipeline.execute_command("WAIT", location.replicas, copying_milliseconds(location))
    answers = pipeline.execute(raise_on_error=False)  # an error that it raises itself would quote our data
    for answer in answers:
        if isinstance(answer, Exception):
            raise answer
    return list(answers)


def _checked(location: RedisLocation, answers: list[Any], *, copied: bool) -> list[Any]:
    if copied and location.replicas:
        check_copied(location, answers.pop())
    return answers
