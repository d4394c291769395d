"""What a Redis URL says. Pure.

    redis://[user[:password]@]host[:port][,host[:port]...]/db/path...[?option=value&...]

`rediss:` is the same over TLS. The path names a log or a job's state inside the database; keys begin with it.

| option | meaning |
|---|---|
| replicas | how many copies a write must have reached before it counts (default 0) |
| timeout | how many seconds an answer may take, and a full server may stay full (default 5) |
| sentinel | the hosts are Sentinels, and this is the name of the primary that they watch |
| ca, cert, key | files for TLS: who vouches for the server; our own certificate and its key |
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from urllib.parse import quote, unquote, urlencode, urlsplit

from tidelock.errors import PipelineError
from tidelock.urls import bracketed, masked, parse_host, parse_options, parse_timeout

_PORT = 6379
_SENTINEL_PORT = 26379
_OPTIONS = {"replicas", "timeout", "sentinel", "ca", "cert", "key"}
_EXAMPLE = "redis://host:6379/0/name"


@dataclass(frozen=True)
class Location:
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
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    replicas: int = 0
    timeout: float = 5.0
    sentinel: str | None = None
    files: tuple[tuple[str, str], ...] = ()

    @property
    def url(self) -> str:
        """The URL that `parse` reads; it holds the password."""
        return self._url(self.password)

    @property
    def shown(self) -> str:
        """The URL for people: without the password."""
        return self._url("***" if self.password else None)

    @property
    def server(self) -> Location:
        """The database itself: the same for everything that is in it."""
        return replace(self, path="")

    def under(self, name: str) -> Location:
        """The place ``name`` below this one."""
        return replace(self, path=f"{self.path}/{name}" if self.path else name)

    def _url(self, password: str | None) -> str:
        scheme = "rediss" if self.tls else "redis"
        who = quote(self.user or "", safe="") + (f":{quote(password, safe='*')}" if password else "")
        hosts = ",".join(f"{bracketed(host)}:{port}" for host, port in self.hosts)
        given: dict[str, str] = dict(self.files)
        if self.replicas:
            given["replicas"] = str(self.replicas)
        if self.timeout != 5.0:
            given["timeout"] = f"{self.timeout:g}"
        if self.sentinel:
            given["sentinel"] = self.sentinel
        path = f"/{quote(self.path)}" if self.path else ""
        query = f"?{urlencode(sorted(given.items()), safe='/')}" if given else ""
        return f"{scheme}://{f'{who}@' if who else ''}{hosts}/{self.db}{path}{query}"


def parse(url: str) -> Location:
    """The place that ``url`` names.

    Raises:
        PipelineError: it is not a Redis URL; the message says what is wrong with it.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("redis", "rediss") or not parts.netloc:
        raise PipelineError(f"{masked(url)} is not the URL of a Redis server: write {_EXAMPLE}")
    who, _, hosts = parts.netloc.rpartition("@")
    user, _, password = who.partition(":")
    options = parse_options(url, parts.query, _OPTIONS, "Redis")
    db, path = _place(url, parts.path)
    default = _SENTINEL_PORT if "sentinel" in options else _PORT
    return Location(
        hosts=tuple(parse_host(url, host, port=default, example=_EXAMPLE) for host in hosts.split(",")),
        db=db,
        path=path,
        tls=parts.scheme == "rediss",
        user=unquote(user) or None,
        password=unquote(password) or None,
        replicas=_replicas(url, options.get("replicas", "0")),
        timeout=parse_timeout(url, options.get("timeout", "5")),
        sentinel=options.get("sentinel"),
        files=tuple(sorted((name, options[name]) for name in ("ca", "cert", "key") if name in options)),
    )


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
