"""What a Kafka URL says.

    kafka://[user[:password]@]host[:port][,host[:port]...]/path...[?option=value&...]

`kafkas:` is the same over TLS. The path names a log; its topics are named after it.

| option | meaning |
|---|---|
| timeout | how many seconds brokers may be away or silent before that is a failure (default 10) |
| replication | how many copies topics get that are made here (default: what the brokers say) |
| partitions | how many partitions the data of a log gets when its topic is made (default 4) |
| mechanism | how user and password are told: PLAIN (the default), SCRAM-SHA-256 or SCRAM-SHA-512 |
| ca, cert, key | files for TLS: who vouches for the brokers; our own certificate and its key |
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from urllib.parse import quote, unquote, urlencode

from tidelock.credentials import taken
from tidelock.errors import PipelineError
from tidelock.urls import bracketed, masked, parse_host, parse_options, parse_timeout, split

_PORT = 9092
_OPTIONS = {"timeout", "replication", "partitions", "mechanism", "ca", "cert", "key"}
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_EXAMPLE = "kafka://host:9092/name"
_SEGMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_LONGEST = 230
"""Kafka takes names of topics up to 249 characters."""


@dataclass(frozen=True)
class KafkaLocation:
    """A place on Kafka brokers.

    >>> here = parse("kafka://one,two:9093/jobs/trending?partitions=2")
    >>> here.servers, here.path, here.partitions
    ('one:9092,two:9093', 'jobs/trending', 2)
    >>> here.topic
    'jobs.trending'
    """

    hosts: tuple[tuple[str, int], ...]
    path: str = ""
    tls: bool = False
    mechanism: str = "PLAIN"
    timeout: float = 10.0
    replication: int | None = None
    partitions: int = 4
    files: tuple[tuple[str, str], ...] = ()

    @property
    def url(self) -> str:
        """The URL that `parse` reads; it holds no credentials."""
        path = f"/{quote(self.path)}" if self.path else ""
        return f"{'kafkas' if self.tls else 'kafka'}://{self.servers}{path}{self._query}"

    @property
    def shown(self) -> str:
        """The URL for people."""
        return self.url

    @property
    def servers(self) -> str:
        """The brokers to ask first, as Kafka's clients want them."""
        return ",".join(f"{bracketed(host)}:{port}" for host, port in self.hosts)

    @property
    def topic(self) -> str:
        """The path as (the beginning of) the name of a topic. Different paths have different ones.

        A dot in a name is doubled, because the slash becomes one; no name begins with a dot.
        """
        return ".".join(segment.replace(".", "..") for segment in self.path.split("/"))

    @property
    def brokers(self) -> KafkaLocation:
        """The brokers themselves: the same for everything that is there."""
        return replace(self, path="", replication=None, partitions=4)

    @property
    def _query(self) -> str:
        given: dict[str, str] = dict(self.files)
        if self.timeout != 10.0:
            given["timeout"] = f"{self.timeout:g}"
        if self.replication is not None:
            given["replication"] = str(self.replication)
        if self.partitions != 4:
            given["partitions"] = str(self.partitions)
        if self.mechanism != "PLAIN":
            given["mechanism"] = self.mechanism
        return f"?{urlencode(sorted(given.items()), safe='/')}" if given else ""


def parse_servers(servers: str) -> KafkaLocation:
    """The brokers that ``servers`` names: a Kafka URL, or `host:9092,host:9092` as Kafka's own clients take it.

    Raises:
        PipelineError: it names none.
    """
    here = parse(servers if "://" in servers else f"kafka://{servers}")
    if here.path:
        raise PipelineError(f"{here.shown}: the brokers alone are wanted here, without a path: kafka://host:9092")
    return here


def parse(url: str) -> KafkaLocation:
    """The place that ``url`` names; credentials in it are kept in this process's memory.

    Raises:
        PipelineError: it is not a Kafka URL; the message says what is wrong with it.
    """
    parts = split(taken(url))
    if parts.scheme not in ("kafka", "kafkas") or not parts.netloc:
        raise PipelineError(f"{masked(url)} is not the URL of Kafka brokers: write {_EXAMPLE}")
    options = parse_options(url, parts.query, _OPTIONS, "Kafka")
    return KafkaLocation(
        hosts=tuple(parse_host(url, host, port=_PORT, example=_EXAMPLE) for host in parts.netloc.split(",")),
        path=_path(url, unquote(parts.path).strip("/")),
        tls=parts.scheme == "kafkas",
        mechanism=_mechanism(url, options.get("mechanism", "PLAIN")),
        timeout=parse_timeout(url, options.get("timeout", "10")),
        replication=_count(url, "replication", options["replication"]) if "replication" in options else None,
        partitions=_count(url, "partitions", options.get("partitions", "4")),
        files=tuple(sorted((name, options[name]) for name in ("ca", "cert", "key") if name in options)),
    )


def _path(url: str, path: str) -> str:
    wrong = [name for name in path.split("/") if path and not _SEGMENT.fullmatch(name)]
    if wrong or len(path) + path.count(".") > _LONGEST:
        raise PipelineError(
            f"{masked(url)}: topics are named after the path, so between its slashes it has letters, digits, '.', "
            f"'_' and '-', beginning with a letter or digit, and at most {_LONGEST} of them in all"
        )
    return path


def _count(url: str, option: str, text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise PipelineError(f"{masked(url)}: {option} is {text!r}: it must be a whole number above 0")
    return int(text)


def _mechanism(url: str, text: str) -> str:
    if text not in _MECHANISMS:
        raise PipelineError(f"{masked(url)}: mechanism is {text!r}: it must be one of {', '.join(_MECHANISMS)}")
    return text
