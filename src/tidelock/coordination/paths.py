"""Paths of the shared tree: absolute, slash-separated, and the same for every backend.

The rules are ZooKeeper's, so that a tree moves from one backend to another unchanged.

>>> parent("/jobs/trending"), parent("/jobs"), join("/jobs", "trending")
('/jobs', '/', '/jobs/trending')
>>> ancestors("/jobs/trending/epoch")
['/jobs', '/jobs/trending']
"""

from __future__ import annotations

import re

from tidelock.errors import PipelineError

__all__ = ["MAX_DATA", "ROOT", "ancestors", "check_data", "check_path", "join", "parent"]

ROOT = "/"
MAX_DATA = 1_000_000
"""The most bytes that one node may hold: a little under ZooKeeper's limit for one request."""

# Control characters, surrogates, the private use area, the non-characters, and everything beyond U+FFFF,
# which ZooKeeper sees as two surrogates.
_FORBIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\U0010ffff]")


def check_path(path: str) -> str:
    """Return `path` if it is a valid path of the tree; raise `PipelineError` if not.

    >>> check_path("/jobs/trending")
    '/jobs/trending'
    >>> check_path("jobs")
    Traceback (most recent call last):
    ...
    tidelock.errors.PipelineError: bad tree path 'jobs': it must start with '/'
    """
    if problem := _problem(path):
        raise PipelineError(f"bad tree path {path!r}: {problem}")
    return path


def _problem(path: str) -> str | None:
    """Say what is wrong with `path`, or None."""
    if not isinstance(path, str):
        return "it must be a string"
    if not path.startswith(ROOT):
        return "it must start with '/'"
    if path == ROOT:
        return None
    if _FORBIDDEN.search(path):
        return "it has a control or private character, or one beyond U+FFFF; use plain text"
    names = path[1:].split("/")
    if "" in names:
        return "it has an empty name; write single slashes and none at the end"
    if "." in names or ".." in names:
        return "'.' and '..' are not names; write the whole path"
    return None


def check_data(path: str, data: bytes) -> bytes:
    """Return `data` if a node may hold it; raise `PipelineError` if not."""
    if not isinstance(data, bytes):
        raise PipelineError(f"node {path} holds bytes, not {type(data).__name__}: encode it first")
    if len(data) > MAX_DATA:
        raise PipelineError(
            f"node {path} cannot hold {len(data)} bytes (at most {MAX_DATA}): "
            "keep large data in a log or a file and only its address in the tree"
        )
    return data


def parent(path: str) -> str:
    """Return the path above `path`; the root is its own parent."""
    return path.rpartition("/")[0] or ROOT


def join(path: str, name: str) -> str:
    """Return the path of the child `name` of `path`."""
    return f"{path.rstrip('/')}/{name}"


def ancestors(path: str) -> list[str]:
    """Return the paths between the root and `path`, both excluded, shortest first."""
    ends = [index for index, letter in enumerate(path) if letter == "/" and index > 0]
    return [path[:end] for end in ends]
