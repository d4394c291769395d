"""What URLs say: those of directories all of it, those of servers what they have in common.

That is who asks, hosts with ports, options, and how they are shown.

A `file:` URL is made and read here and nowhere else, so that whatever letters a directory's path has, it is that
directory which is opened. A name from stored data may have any letters, too: unquoted, `..%2f` would lead out of
where it belongs (`tidelock.inside` does not know URLs).
"""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlsplit

from tidelock.errors import PipelineError

__all__ = [
    "bracketed",
    "directory",
    "directory_url",
    "located",
    "masked",
    "parse_host",
    "parse_options",
    "parse_timeout",
    "split",
]


def directory_url(path: str | Path) -> str:
    """The URL of a directory, absolute: others may open it from directories of their own.

    >>> directory_url("/jobs/a b/50%#1?")
    'file:/jobs/a b/50%25%231%3F'
    """
    absolute = str(Path(path).absolute())
    return f"file:/{quote(absolute.lstrip('/'), safe='/ ', errors='surrogateescape')}"


def directory(url: str) -> Path:
    """The directory that ``url`` names, a `file:` URL or a plain path.

    >>> directory("file:/jobs/50%25"), directory("file:///jobs/a b"), directory("/jobs/50%25")
    (PosixPath('/jobs/50%'), PosixPath('/jobs/a b'), PosixPath('/jobs/50%25'))

    Raises:
        PipelineError: it is the URL of something else.
    """
    parts = split(located(url))
    if parts.scheme != "file" or parts.netloc not in ("", "localhost") or not parts.path:
        raise PipelineError(f"{masked(url)!r} is not a directory's URL: write file:/path/to/the/log")
    return Path(unquote(parts.path, errors="surrogateescape")).absolute()


def located(url: str) -> str:
    """``url``, if it is one: a plain path becomes the URL of that directory.

    >>> located("redis://host/0/job"), located("/jobs/a#1")
    ('redis://host/0/job', 'file:/jobs/a%231')
    """
    scheme, colon, _ = url.partition(":")
    return url if colon and "/" not in scheme else directory_url(url)


def split(url: str) -> SplitResult:
    """The parts of a URL; of one that cannot be taken to pieces none, not even a scheme.

    Credentials are taken out of it before: in a password anything may stand.

    >>> split("redis://[::1]:7/0").netloc, split("redis://[what]/0").scheme
    ('[::1]:7', '')
    """
    try:
        return urlsplit(url)
    except ValueError:
        return urlsplit("")


_WHO = re.compile(r"(?<=://)([^:@]*)(:.*)?@", re.DOTALL)
_WITHOUT_SLASHES = re.compile(r"\A([A-Za-z][\w+.-]*:).*@", re.DOTALL)
_SECRET_OPTION = re.compile(r"([?&][^=&]*(?:pass|secret|token|credential)[^=&]*=)[^&]*", re.IGNORECASE)


def masked(url: str) -> str:
    """Any URL for people, also a wrong one: without the password, and without options that look like one.

    So are words around it: whatever is between the first user and the last `@` could be of a password.

    >>> masked("redis://me:secret@host/0/x"), masked("file:/data/x"), masked("redis://host/0?password=secret")
    ('redis://me:***@host/0/x', 'file:/data/x', 'redis://host/0?password=***')
    """
    if url.startswith("file:"):
        return url
    if "://" in url:
        url = _WHO.sub(lambda who: f"{who[1]}{':***' if who[2] else ''}@", url)
    else:
        url = _WITHOUT_SLASHES.sub(r"\1***@", url)
    return _SECRET_OPTION.sub(r"\1***", url)


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
        shown = f"{text!r}" if text in masked(url) else "what stands there"  # it may be a part of a password
        raise PipelineError(f"{masked(url)}: {shown} is not a host and its port: write {example}")
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
