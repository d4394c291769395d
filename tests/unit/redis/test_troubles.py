"""What a server's troubles are called: what it says itself may hold a password that it was given."""

from __future__ import annotations

import traceback

import pytest
from redis.exceptions import (
    AuthenticationError,
    ConnectionError,
    NoPermissionError,
    OutOfMemoryError,
    ResponseError,
)

from tidelock.credentials import taken
from tidelock.errors import BackendUnavailable, PipelineError, TidelockError
from tidelock.redis.location import parse
from tidelock.redis.server import translated

QUOTED = "unknown command 'AUTH', with args beginning with: 'me' 'w0rd-of-me'"


def told(error: Exception) -> TidelockError:
    with pytest.raises(TidelockError) as caught, translated(parse("redis://h/0/x")):
        raise error
    return caught.value


@pytest.mark.parametrize(
    ("kind", "words", "ours"),
    [
        (ResponseError, QUOTED, BackendUnavailable),
        (ResponseError, "WRONGPASS w0rd-of-me", PipelineError),
        (AuthenticationError, "w0rd-of-me is wrong", PipelineError),
        (NoPermissionError, "me:w0rd-of-me", PipelineError),
        (OutOfMemoryError, "OOM AUTH w0rd-of-me", BackendUnavailable),
        (ConnectionError, "Error 111 with w0rd-of-me", BackendUnavailable),
        (OSError, "w0rd-of-me", BackendUnavailable),
    ],
)
def test_words_of_the_server_hold_no_password(
    kind: type[Exception], words: str, ours: type[TidelockError]
) -> None:
    taken("redis://me:w0rd-of-me@h/0/x")
    error = told(kind(words))
    assert isinstance(error, ours)
    # Whoever prints it in full prints what it came from, too.
    assert "w0rd-of-me" not in "".join(traceback.format_exception(error))


def test_words_without_a_password_stay_and_so_does_the_cause() -> None:
    taken("redis://me:w0rd-of-me@h/0/x")
    cause = ResponseError("LOADING the dataset\nin memory")
    error = told(cause)
    assert "the server cannot do this now (LOADING the dataset)" in str(error)
    assert error.__cause__ is cause
    assert "(TimeoutError)" in str(told(TimeoutError()))
