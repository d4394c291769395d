"""Who we are at a server: taken out of URLs where they come in, found again when a server is asked.

Theory of operation
-------------------
A URL with a user or a password is cut in two as soon as this process meets it: the *place*, a URL without either,
which is all that is stored, shown and sent to others; and the credentials, which stay in this process's memory.
Whoever opens a place asks `credentials_for`, which looks in this order:

1. what was given to this process in URLs (`taken`);
2. the environment variable `TIDELOCK_PASSWORDS`: URLs with credentials, between spaces;
3. the file that `TIDELOCK_CREDENTIALS` names: such URLs, one a line, readable for its owner only;
4. what documents of version 0.1.0 still hold (`found`); they are written without it when they are written again.

Credentials are for a scheme and for hosts: they are used for a place only if *all* hosts of the place are among
theirs, and under the same scheme. So nobody who makes up a place (in a shared tree, say) gets the password of
another server, nor has one sent without TLS that was given for TLS. Where several fit, the one with the longest
common path does, then the one that was given last.

What others say, servers and Spark and the user's own code, may hold a password. So whoever passes their words on
lets them through `redacted`: `told` says an error in our words, `cause` whether it may be seen behind ours.

Spark's Python processes are told by their environment: `tidelock.spark.processes.worker_environment`. Thread-safe.
"""

from __future__ import annotations

import json
import os
import re
import stat
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from urllib.parse import parse_qs, quote, unquote

from tidelock.errors import PipelineError

__all__ = [
    "FILE",
    "HINT",
    "PASSWORDS",
    "Credentials",
    "cause",
    "credentials_for",
    "exported",
    "forget",
    "found",
    "has_password",
    "redacted",
    "taken",
    "told",
    "with_credentials",
    "without_credentials",
]

PASSWORDS = "TIDELOCK_PASSWORDS"
"""The environment variable with URLs that hold credentials. Spark hides settings whose name has the word."""
FILE = "TIDELOCK_CREDENTIALS"
"""The environment variable with the path of a file that holds them."""

HINT = f"say who you are in the URL that you give, in ${PASSWORDS} or in the file that ${FILE} names"
"""What to do about a server that refuses us."""

_AUTHORITY = re.compile(r"(?P<scheme>[A-Za-z][\w+.:-]*)://(?P<authority>[^/?#]*)(?P<rest>.*)", re.DOTALL)
_PORTS = {
    "redis": 6379,
    "rediss": 6379,
    "kafka": 9092,
    "kafkas": 9092,
    "zookeeper": 2181,
    "sentinel": 26379,
    "sentinels": 26379,
}
_FOR_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_WORTH_HIDING = 4
"""A shorter word is no secret, and hiding it would spoil texts."""
_ALONE = r"(?:(?<![^\W_])|(?<=\\x[0-9a-f]{{2}})){}(?![^\W_])"
"""A password of letters alone, where it is no part of a longer word; behind `\\x00` it is none either."""


@dataclass(frozen=True)
class Credentials:
    """A user, a password, or both."""

    user: str | None
    password: str | None = field(default=None, repr=False)

    @property
    def authority(self) -> str:
        """As they stand before the `@` of a URL."""
        user = quote(self.user or "", safe="")
        return user if self.password is None else f"{user}:{quote(self.password, safe='')}"


@dataclass(frozen=True)
class _Place:
    """What credentials are for."""

    scheme: str
    hosts: frozenset[str]
    path: tuple[str, ...]

    def covers(self, other: _Place) -> bool:
        return self.scheme == other.scheme and other.hosts <= self.hosts

    def nearness(self, other: _Place) -> int:
        """How much of its path another place has in common with this one; below 0 if it is elsewhere."""
        return len(self.path) if other.path[: len(self.path)] == self.path else -1


@dataclass(frozen=True)
class _Entry:
    place: _Place
    credentials: Credentials

    def __str__(self) -> str:
        path = "".join(f"/{quote(name, safe='')}" for name in self.place.path)
        hosts = ",".join(sorted(self.place.hosts))
        return f"{self.place.scheme}://{self.credentials.authority}@{hosts}{path}"


_Layer = Sequence[_Entry]

_remembering = threading.Lock()
_given: tuple[_Entry, ...] = ()
_stored: tuple[_Entry, ...] = ()


# -- what comes in


def taken(url: str) -> str:
    """The place that ``url`` names; credentials in it are kept in this process's memory, for who opens the place.

    Raises:
        PipelineError: a part of a password may stand behind the hosts.

    >>> taken("redis://me:secret@host/0/words?replicas=1")
    'redis://host/0/words?replicas=1'
    """
    global _given
    place, entry = _split(url)
    if entry is not None:
        with _remembering:
            _given = _with(entry, _given)
    return place


def found(url: str) -> str:
    """The same for a URL from a stored document: what it holds counts only where nothing else is known.

    It has been opened, so an `@` behind its hosts is of its path.
    """
    global _stored
    place, entry = _split(_with_plain_path(url))
    if entry is not None:
        with _remembering:
            _stored = _with(entry, _stored)
    return place


def _with(entry: _Entry, known: tuple[_Entry, ...]) -> tuple[_Entry, ...]:
    """What is known, and ``entry``: unless that says nothing new, so that what is exported seldom changes."""
    nearest = _nearest(known, entry.place)
    above = nearest is not None and nearest.place.nearness(entry.place) >= 0
    if nearest is not None and above and nearest.credentials == entry.credentials:
        return known
    return (entry, *(other for other in known if other.place != entry.place))


def forget() -> None:
    """Forget what URLs have told this process."""
    global _given, _stored
    _given = _stored = ()


def without_credentials(url: str) -> str:
    """The place that ``url`` names; nothing is kept.

    Raises:
        PipelineError: a part of a password may stand behind the hosts.

    >>> without_credentials("kafka://me@one,two/topic"), without_credentials("file:/data/x@y")
    ('kafka://one,two/topic', 'file:/data/x@y')
    """
    return _split(url)[0]


def with_credentials(place: str, credentials: Credentials | None) -> str:
    """The URL of ``place`` as clients want it that take credentials in no other way. Not for anybody's eyes."""
    parts = _AUTHORITY.fullmatch(place)
    if credentials is None or parts is None:
        return place
    return f"{parts['scheme']}://{credentials.authority}@{parts['authority']}{parts['rest']}"


def has_password(text: str) -> bool:
    """Whether a word of a command line holds a URL with a password."""
    parts = _AUTHORITY.search(text)
    if parts is None:
        return False
    who, at, _ = parts["authority"].rpartition("@")
    return (bool(at) and ":" in who) or _is_cut_off(parts)


# -- who we are


def credentials_for(place: str) -> Credentials | None:
    """Who we are at ``place``; None if nobody has said it.

    Raises:
        PipelineError: the environment or the file of credentials cannot be read as such.
    """
    asked = _entry_of(place, Credentials(None)).place
    known: Credentials | None = None
    for layer in _layers():
        if known is not None:  # the user was said, without the password
            layer = [entry for entry in layer if entry.credentials.user == known.user]
        nearest = _nearest(layer, asked)
        if nearest is not None and nearest.credentials.password is not None:
            return nearest.credentials
        if nearest is not None:
            known = known or nearest.credentials
    return known


def _nearest(layer: _Layer, asked: _Place) -> _Entry | None:
    fitting = [entry for entry in layer if entry.place.covers(asked)]
    return max(fitting, key=lambda entry: entry.place.nearness(asked), default=None)


def exported() -> str | None:
    """What another process of this job has to find in `PASSWORDS` to be who this one is; None if nothing."""
    layers = [_given, *_from_environment(), _stored]
    text = "\n".join(" ".join(map(str, layer)) for layer in layers if layer)
    return text or None


def redacted(text: str) -> str:
    """``text`` without the passwords that this process knows: the last guard, for words that others made up."""
    forms = {form for secret in _secrets() for form in _written(secret)}
    for form in sorted(forms, key=len, reverse=True):
        text = re.sub(_ALONE.format(form) if form.isalpha() else re.escape(form), "***", text)
    return text


def told(error: BaseException) -> str:
    r"""What an error of a server or a library says, in one line, without passwords; its type if it says nothing.

    >>> told(ValueError("no room\nat all")), told(TimeoutError())
    ('no room', 'TimeoutError')
    """
    return redacted(str(error)).strip().partition("\n")[0] or type(error).__name__


def cause(error: BaseException) -> BaseException | None:
    """``error``, to be named behind ``raise ... from``; None if it, or what it came from, tells a password.

    What is behind an error is printed and logged with it, also by those who know nothing of passwords.
    """
    behind: BaseException | None = error
    while behind is not None:
        said = str(behind)
        if redacted(said) != said:
            return None
        behind = behind.__cause__ or (None if behind.__suppress_context__ else behind.__context__)
    return error


def _written(secret: str) -> set[str]:
    """How others may write it: in a URL, in quotes, as bytes, in JSON."""
    quoted = {repr(secret)[1:-1], repr(secret.encode())[2:-1], json.dumps(secret)[1:-1]}
    escaped = {form.replace("'", r"\'") for form in (secret, repr(f'{secret}"')[1:-2])}
    return {secret, quote(secret), quote(secret, safe=""), *quoted, *escaped}


def _secrets() -> set[str]:
    with suppress(PipelineError):
        known = {entry.credentials.password or "" for layer in _layers() for entry in layer}
        # Words of others are often cut into lines.
        parts = known.union(*(secret.splitlines() for secret in known))
        return {secret for secret in parts if len(secret) >= _WORTH_HIDING}
    return {entry.credentials.password or "***" for entry in (*_given, *_stored)}


# -- where it stands


def _layers() -> Iterator[_Layer]:
    yield _given
    yield from _from_environment()
    file = os.environ.get(FILE)
    if file:
        yield _from_file(file)
    yield _stored


def _from_environment() -> tuple[_Layer, ...]:
    return _lines(os.environ.get(PASSWORDS, ""))


@lru_cache(maxsize=8)
def _lines(text: str) -> tuple[_Layer, ...]:
    return tuple(_entries(line.split(), f"${PASSWORDS}") for line in text.splitlines())


def _from_file(name: str) -> _Layer:
    try:
        facts = Path(name).stat()
    except OSError as error:
        raise PipelineError(f"${FILE} names {name}, which cannot be read: {error.strerror}") from error
    if facts.st_mode & _FOR_OTHERS:
        raise PipelineError(
            f"{name}, which ${FILE} names, holds passwords and others may read it: chmod 600 {name}"
        )
    return _read_file(name, facts.st_mtime_ns, facts.st_size)


@lru_cache(maxsize=8)
def _read_file(name: str, changed: int, size: int) -> _Layer:
    """The entries of a file; of one that was changed, as it is now."""
    try:
        lines = Path(name).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise PipelineError(f"${FILE} names {name}, which cannot be read as text") from error
    return _entries((line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")), name)


def _entries(urls: Iterable[str], where: str) -> _Layer:
    made = []
    for number, url in enumerate(urls, 1):
        entry = None
        with suppress(PipelineError):
            _, entry = _split(url)
        if entry is None:
            raise PipelineError(
                f"{where}: entry {number} is not a URL with a user or a password: write it like "
                "redis://user:password@host:6379, with %40 for an @ and %2F for a / in a password"
            )
        made.append(entry)
    return tuple(made)


def _split(url: str) -> tuple[str, _Entry | None]:
    parts = _AUTHORITY.fullmatch(url)
    if parts is not None and _is_cut_off(parts):
        raise PipelineError(
            f"{parts['scheme']}://...: there is an @ behind the hosts. If it ends a password, write %2F for /, "
            "%3F for ? and %23 for # in that; if it is of a path, write %40 for it"
        )
    who, at, hosts = parts["authority"].rpartition("@") if parts else ("", "", "")
    user, colon, password = who.partition(":")
    # What stands before an @ alone is a user in our own URLs, and something else in others: abfs://container@account
    if parts is None or not at or (not colon and parts["scheme"].lower() not in _PORTS):
        return url, None
    place = f"{parts['scheme']}://{hosts}{parts['rest']}"
    credentials = Credentials(unquote(user) or None, unquote(password) if colon and password else None)
    if credentials == Credentials(None):
        return place, None
    return place, _entry_of(place, credentials)


def _is_cut_off(parts: re.Match[str]) -> bool:
    """Whether a password may have a letter that ends the hosts of a URL, so that the rest of it is behind them."""
    if "@" not in parts["rest"]:
        return False
    _, colon, port = parts["authority"].rpartition("@")[2].rpartition(":")
    # In URLs that are not ours an @ may stand in a path: s3://bucket/a@b
    return parts["scheme"].lower() in _PORTS or (bool(colon) and not port.rstrip("]").isdecimal())


def _with_plain_path(url: str) -> str:
    parts = _AUTHORITY.fullmatch(url)
    if parts is None or parts["scheme"].lower() not in _PORTS:
        return url
    return f"{parts['scheme']}://{parts['authority']}{parts['rest'].replace('@', '%40')}"


def _entry_of(place: str, credentials: Credentials) -> _Entry:
    parts = _AUTHORITY.fullmatch(place)
    if parts is None:
        return _Entry(_Place("", frozenset(), ()), credentials)
    scheme, rest = parts["scheme"].lower(), parts["rest"]
    path, _, query = rest.partition("#")[0].partition("?")
    port = _PORTS["sentinel"] if "sentinel" in parse_qs(query) else _PORTS.get(scheme)
    hosts = frozenset(_host(host, port) for host in parts["authority"].split(","))
    return _Entry(_Place(scheme, hosts, tuple(unquote(name) for name in path.split("/") if name)), credentials)


def _host(text: str, port: int | None) -> str:
    """A host with its port, spelled in one way."""
    has_port = ":" in text.rpartition("]")[2]
    return text.lower() if has_port or port is None else f"{text.lower()}:{port}"
