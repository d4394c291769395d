"""What a Redis URL says.

    redis://[user[:password]@]host[:port]/db/path...[?option=value&...]
    redis://[user[:password]@]sentinel[:port][,sentinel[:port]...]/db/path...?sentinel=name[&option=value&...]

`rediss:` is the same over TLS. A `RedisLocation` is a place: who we are there is kept apart
(`tidelock.credentials`). The path names a log or a job's state inside the database; keys begin with it.

| option | meaning |
|---|---|
| replicas | how many copies a write must have reached before it counts (default 0) |
| timeout | how many seconds an answer may take, and a full server may stay full (default 5) |
| sentinel | the hosts are Sentinels, and this is the name of the primary that they watch |
| ca, cert, key | files for TLS: who vouches for the server; our own certificate and its key |
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from urllib.parse import quote, unquote, urlencode

from tidelock.credentials import taken
from tidelock.errors import PipelineError
from tidelock.urls import bracketed, masked, parse_host, parse_options, parse_timeout, split

_PORT = 6379
_SENTINEL_PORT = 26379
_OPTIONS = {"replicas", "timeout", "sentinel", "ca", "cert", "key"}
_EXAMPLE = "redis://host:6379/0/name"


@dataclass(frozen=True)
class RedisLocation:
    """A place in a Redis database.

    >>> here = parse("redis://localhost/2/jobs/trending?replicas=1")
    >>> here.hosts, here.db, here.path, here.replicas
    ((('localhost', 6379),), 2, 'jobs/trending', 1)
    >>> here.under("words").url
    'redis://localhost:6379/2/jobs/trending/words?replicas=1'
    """

    hosts: tuple[tuple[str, int], ...]
    db: int
    path: str
    tls: bool = False
    replicas: int = 0
    timeout: float = 5.0
    sentinel: str | None = None
    files: tuple[tuple[str, str], ...] = ()

    @property
    def url(self) -> str:
        """The URL that `parse` reads; it holds no credentials."""
        scheme = "rediss" if self.tls else "redis"
        path = f"/{quote(self.path)}" if self.path else ""
        return f"{scheme}://{self.addresses}/{self.db}{path}{self._query}"

    @property
    def shown(self) -> str:
        """The URL for people."""
        return self.url

    @property
    def sentinels(self) -> str:
        """The URL of the Sentinels themselves, for their credentials."""
        return f"{'sentinels' if self.tls else 'sentinel'}://{self.addresses}"

    @property
    def addresses(self) -> str:
        """The hosts and their ports, with commas."""
        return ",".join(f"{bracketed(host)}:{port}" for host, port in self.hosts)

    @property
    def server(self) -> RedisLocation:
        """The database itself: the same for everything that is in it."""
        return replace(self, path="")

    def under(self, name: str) -> RedisLocation:
        """The place ``name`` below this one."""
        return replace(self, path=f"{self.path}/{name}" if self.path else name)

    @property
    def _query(self) -> str:
        given: dict[str, str] = dict(self.files)
        if self.replicas:
            given["replicas"] = str(self.replicas)
        if self.timeout != 5.0:
            given["timeout"] = f"{self.timeout:g}"
        if self.sentinel:
            given["sentinel"] = self.sentinel
        return f"?{urlencode(sorted(given.items()), safe='/')}" if given else ""


def parse(url: str) -> RedisLocation:
    """The place that ``url`` names; credentials in it are kept in this process's memory.

    Raises:
        PipelineError: it is not a Redis URL; the message says what is wrong with it.
    """
    parts = split(taken(url))
    if parts.scheme not in ("redis", "rediss") or not parts.netloc:
        raise PipelineError(f"{masked(url)} is not the URL of a Redis server: write {_EXAMPLE}")
    options = parse_options(url, parts.query, _OPTIONS, "Redis")
    db, path = _place(url, parts.path)
    return RedisLocation(
        hosts=_hosts(url, parts.netloc, options.get("sentinel")),
        db=db,
        path=path,
        tls=parts.scheme == "rediss",
        replicas=_replicas(url, options.get("replicas", "0")),
        timeout=parse_timeout(url, options.get("timeout", "5")),
        sentinel=options.get("sentinel"),
        files=tuple(sorted((name, options[name]) for name in ("ca", "cert", "key") if name in options)),
    )


def _hosts(url: str, text: str, sentinel: str | None) -> tuple[tuple[str, int], ...]:
    """All hosts; there is one server, or there are Sentinels that know which one it is."""
    if sentinel == "":
        raise PipelineError(
            f"{masked(url)}: sentinel has no value: it must be the name of the primary that the Sentinels watch"
        )
    default = _PORT if sentinel is None else _SENTINEL_PORT
    hosts = tuple(parse_host(url, host, port=default, example=_EXAMPLE) for host in text.split(","))
    if sentinel is None and len(hosts) > 1:
        raise PipelineError(
            f"{masked(url)}: several hosts are Sentinels: add ?sentinel=NAME, the name of the primary that they "
            "watch. If they are servers, give one host alone: nothing here could know when another takes its place"
        )
    return hosts


def _place(url: str, path: str) -> tuple[int, str]:
    db, _, rest = path.lstrip("/").partition("/")
    if db and not db.isdecimal():
        raise PipelineError(
            f"{masked(url)}: the path begins with the number of the database: write {_EXAMPLE} instead of "
            f"redis://host:6379/{db}"
        )
    return int(db or 0), unquote(rest).strip("/")


def _replicas(url: str, text: str) -> int:
    if not text.isdecimal():
        raise PipelineError(f"{masked(url)}: replicas is {text!r}: it must be a whole number, not below 0")
    return int(text)
