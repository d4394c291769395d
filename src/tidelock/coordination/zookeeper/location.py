"""What a ZooKeeper URL says. Pure.

    zookeeper://[user:password@]host[:port][,host[:port]...][/path][?timeout=seconds]

The hosts are the servers of one ensemble. Everything of the tree is kept below `path` (default
``/tidelock``), which is created if needed. `timeout` is how many seconds a call may take before it
gives up (default 10). A user and a password make nodes that only this user can read and change
(ZooKeeper's scheme ``digest``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from tidelock.coordination.paths import check_path
from tidelock.errors import PipelineError

__all__ = ["Location", "masked", "parse"]

_PORT = 2181
_TIMEOUT = 10.0
_ROOT = "/tidelock"
_EXAMPLE = "zookeeper://host:2181,host2:2181/path"


@dataclass(frozen=True)
class Location:
    """A place in a ZooKeeper ensemble.

    >>> here = parse("zookeeper://a,b:2182/jobs?timeout=3")
    >>> here.addresses, here.root, here.timeout
    ('a:2181,b:2182', '/jobs', 3.0)
    """

    hosts: tuple[tuple[str, int], ...]
    root: str = _ROOT
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    timeout: float = _TIMEOUT

    @property
    def addresses(self) -> str:
        """The hosts and their ports, with commas."""
        return ",".join(f"{f'[{host}]' if ':' in host else host}:{port}" for host, port in self.hosts)

    @property
    def shown(self) -> str:
        """The URL for people: without the password."""
        who = f"{quote(self.user, safe='')}:***@" if self.user else ""
        options = "" if self.timeout == _TIMEOUT else f"?timeout={self.timeout:g}"
        return f"zookeeper://{who}{self.addresses}{quote(self.root)}{options}"


def parse(url: str) -> Location:
    """The place that `url` names.

    Raises:
        PipelineError: it is not a ZooKeeper URL; the message says what is wrong with it.
    """
    parts = urlsplit(url)
    if parts.scheme != "zookeeper" or not parts.netloc or parts.fragment:
        raise PipelineError(f"{masked(url)} is not the URL of a ZooKeeper ensemble: write {_EXAMPLE}")
    who, _, hosts = parts.netloc.rpartition("@")
    user, _, password = who.partition(":")
    if bool(user) != bool(password):
        raise PipelineError(f"{masked(url)}: a user needs a password: write zookeeper://user:password@host:2181")
    return Location(
        hosts=tuple(_host(url, host) for host in hosts.split(",")),
        root=_root(url, unquote(parts.path)),
        user=unquote(user) or None,
        password=unquote(password) or None,
        timeout=_timeout(url, parts.query),
    )


def masked(url: str) -> str:
    """Any URL for people: without the password.

    >>> masked("zookeeper://me:secret@host/x"), masked("zookeeper://host/x")
    ('zookeeper://me:***@host/x', 'zookeeper://host/x')
    """
    return re.sub(r"(//[^:@]*):.*@", r"\1:***@", url)


def _host(url: str, text: str) -> tuple[str, int]:
    name, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        name, port = text, str(_PORT)
    name = name.strip("[]")
    if not name or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise PipelineError(f"{masked(url)}: {text!r} is not a host and its port: write {_EXAMPLE}")
    return name, int(port)


def _root(url: str, path: str) -> str:
    root = path.rstrip("/") or _ROOT
    try:
        check_path(root)
    except PipelineError as error:
        raise PipelineError(f"{masked(url)}: {error}") from error
    if root.split("/")[1] == "zookeeper":
        raise PipelineError(f"{masked(url)}: ZooKeeper keeps /zookeeper for itself: choose another path")
    return root


def _timeout(url: str, query: str) -> float:
    options = dict(parse_qsl(query, keep_blank_values=True))
    text = options.pop("timeout", str(_TIMEOUT))
    if options:
        unknown = ", ".join(sorted(options))
        raise PipelineError(f"{masked(url)}: unknown option {unknown}; a ZooKeeper URL knows timeout")
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise PipelineError(f"{masked(url)}: timeout is {text!r}: it must be a number of seconds above 0")
    return number
