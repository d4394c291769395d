"""What a ZooKeeper URL says.

    zookeeper://[user:password@]host[:port][,host[:port]...][/path][?timeout=seconds]

The hosts are the servers of one ensemble. Everything of the tree is kept below `path` (default
``/tidelock``), which is created if needed. `timeout` is how many seconds a call may take before it
gives up (default 10). A user and a password make nodes that only this user can read and change
(ZooKeeper's scheme ``digest``).
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote, unquote

from tidelock.coordination.paths import check_path
from tidelock.credentials import taken
from tidelock.errors import PipelineError
from tidelock.urls import bracketed, masked, parse_host, parse_options, parse_timeout, split

__all__ = ["ZooKeeperLocation", "parse"]

_PORT = 2181
_TIMEOUT = 10.0
_ROOT = "/tidelock"
_EXAMPLE = "zookeeper://host:2181,host2:2181/path"


@dataclass(frozen=True)
class ZooKeeperLocation:
    """A place in a ZooKeeper ensemble.

    >>> here = parse("zookeeper://a,b:2182/jobs?timeout=3")
    >>> here.addresses, here.root, here.timeout
    ('a:2181,b:2182', '/jobs', 3.0)
    """

    hosts: tuple[tuple[str, int], ...]
    root: str = _ROOT
    timeout: float = _TIMEOUT

    @property
    def addresses(self) -> str:
        """The hosts and their ports, with commas."""
        return ",".join(f"{bracketed(host)}:{port}" for host, port in self.hosts)

    @property
    def shown(self) -> str:
        """The URL that `parse` reads, and for people; it holds no credentials."""
        options = "" if self.timeout == _TIMEOUT else f"?timeout={self.timeout:g}"
        return f"zookeeper://{self.addresses}{quote(self.root)}{options}"


def parse(url: str) -> ZooKeeperLocation:
    """The place that `url` names; credentials in it are kept in this process's memory.

    Raises:
        PipelineError: it is not a ZooKeeper URL; the message says what is wrong with it.
    """
    parts = split(taken(url))
    if parts.scheme != "zookeeper" or not parts.netloc or parts.fragment:
        raise PipelineError(f"{masked(url)} is not the URL of a ZooKeeper ensemble: write {_EXAMPLE}")
    options = parse_options(url, parts.query, {"timeout"}, "ZooKeeper")
    return ZooKeeperLocation(
        hosts=tuple(parse_host(url, host, port=_PORT, example=_EXAMPLE) for host in parts.netloc.split(",")),
        root=_root(url, unquote(parts.path)),
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
