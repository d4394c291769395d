"""What a ZooKeeper URL says. Pure.

    zookeeper://[user:password@]host[:port][,host[:port]...][/path][?timeout=seconds]

The hosts are the servers of one ensemble. Everything of the tree is kept below `path` (default
``/tidelock``), which is created if needed. `timeout` is how many seconds a call may take before it
gives up (default 10). A user and a password make nodes that only this user can read and change
(ZooKeeper's scheme ``digest``).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import quote, unquote, urlsplit

from tidelock.coordination.paths import check_path
from tidelock.errors import PipelineError
from tidelock.urls import bracketed, masked, parse_host, parse_options, parse_timeout

__all__ = ["Location", "parse"]

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
        return ",".join(f"{bracketed(host)}:{port}" for host, port in self.hosts)

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
    options = parse_options(url, parts.query, {"timeout"}, "ZooKeeper")
    return Location(
        hosts=tuple(parse_host(url, host, port=_PORT, example=_EXAMPLE) for host in hosts.split(",")),
        root=_root(url, unquote(parts.path)),
        user=unquote(user) or None,
        password=unquote(password) or None,
        timeout=parse_timeout(url, options.get("timeout", str(_TIMEOUT))),
    )


def _root(url: str, path: str) -> str:
    root = path.rstrip("/") or _ROOT
    try:
        check_path(root)
    except PipelineError as error:
        raise PipelineError(f"{masked(url)}: {error}") from error
    if root.split("/")[1] == "zookeeper":
        raise PipelineError(f"{masked(url)}: ZooKeeper keeps /zookeeper for itself: choose another path")
    return root
