"""What the URLs of servers have in common: who asks, hosts with ports, options, and how they are shown. Pure."""

from __future__ import annotations

from collections.abc import Collection
from urllib.parse import parse_qsl

from tidelock.errors import PipelineError

__all__ = ["bracketed", "masked", "parse_host", "parse_options", "parse_timeout"]


def masked(url: str) -> str:
    """Any URL for people: without the password.

    >>> masked("redis://me:secret@host/0/x"), masked("file:/data/x")
    ('redis://me:***@host/0/x', 'file:/data/x')
    """
    before, at, after = url.rpartition("@")
    if not at:
        return url
    scheme, slashes, who = before.partition("//")
    user, colon, _ = who.partition(":")
    return f"{scheme}{slashes}{user}{':***' if colon else ''}@{after}"


def parse_host(url: str, text: str, *, port: int, example: str) -> tuple[str, int]:
    """A host and its port, which is ``port`` if none is given.

    >>> parse_host("redis://[::1]:7/0", "[::1]:7", port=6379, example="redis://host:6379/0")
    ('::1', 7)

    Raises:
        PipelineError: ``text``, a part of ``url``, is none.
    """
    name, colon, number = text.rpartition(":")
    if not colon or text.endswith("]"):
        name, number = text, str(port)
    name = name.strip("[]")
    if not name or not number.isdecimal() or not 0 < int(number) < 2**16:
        raise PipelineError(f"{masked(url)}: {text!r} is not a host and its port: write {example}")
    return name, int(number)


def bracketed(host: str) -> str:
    """A host as it stands in a URL."""
    return f"[{host}]" if ":" in host else host


def parse_options(url: str, query: str, known: Collection[str], what: str) -> dict[str, str]:
    """The options behind the question mark; ``what`` is the kind of URL, for people.

    Raises:
        PipelineError: one is not ``known``.
    """
    options = dict(parse_qsl(query, keep_blank_values=True))
    unknown = sorted(options.keys() - set(known))
    if unknown:
        names = ", ".join(sorted(known))
        raise PipelineError(f"{masked(url)}: unknown option {', '.join(unknown)}; a {what} URL knows {names}")
    return options


def parse_timeout(url: str, text: str) -> float:
    """The value of the option `timeout`.

    Raises:
        PipelineError: it is no time.
    """
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise PipelineError(f"{masked(url)}: timeout is {text!r}: it must be a number of seconds above 0")
    return number
