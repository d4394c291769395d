"""What an error of ZooKeeper means to a user of the tree."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kazoo.exceptions import (
    AuthFailedError,
    BadArgumentsError,
    BadVersionError,
    InvalidACLError,
    KazooException,
    NoAuthError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    SessionClosedRequireSaslError,
)

from tidelock.coordination.errors import (
    BadVersion,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
)
from tidelock.coordination.paths import parent
from tidelock.coordination.zookeeper.location import ZooKeeperLocation
from tidelock.credentials import cause, told
from tidelock.errors import BackendUnavailable, PipelineError, TidelockError

__all__ = ["creating", "translated"]

_REFUSALS = (AuthFailedError, InvalidACLError, NoAuthError, SessionClosedRequireSaslError)


@contextmanager
def translated(location: ZooKeeperLocation, path: str, version: int | None = None) -> Iterator[None]:
    """Turn errors of ZooKeeper about the node `path` into Tidelock's own."""
    try:
        yield
    except NoNodeError as error:
        raise NoNode(path) from error
    except BadVersionError as error:
        raise BadVersion(path, -1 if version is None else version) from error
    except NotEmptyError as error:
        raise NotEmpty(path) from error
    except KazooException as error:
        raise _translation(error, location, path) from cause(error)


@contextmanager
def creating(location: ZooKeeperLocation, path: str) -> Iterator[None]:
    """The same for the creation of `path`, where it is the parent that may be missing."""
    try:
        yield
    except NodeExistsError as error:
        raise NodeExists(path) from error
    except NoNodeError as error:
        raise NoNode(parent(path)) from error
    except NoChildrenForEphemeralsError as error:
        raise NoChildrenForEphemerals(parent(path)) from error
    except KazooException as error:
        raise _translation(error, location, path) from cause(error)


def _translation(error: KazooException, location: ZooKeeperLocation, path: str) -> TidelockError:
    if isinstance(error, _REFUSALS):
        return PipelineError(
            f"{location.shown}: the server does not let us use {path} ({told(error)}): see whether the user and "
            "the password in the URL are those that made the nodes"
        )
    if isinstance(error, BadArgumentsError):
        return PipelineError(f"{location.shown}: the server does not accept {path} as a path ({told(error)})")
    return BackendUnavailable(f"{location.shown}: the server cannot do this now ({told(error)}): try again")
