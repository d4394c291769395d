"""Names that come from stored data: never of something outside of where they belong. Pure.

Whoever can write to a backup or a log could put any name into its documents. So every name that becomes a path, or
a part of one, goes through here where it is read, or through `tidelock.inside` where it is joined.
"""

from __future__ import annotations

from tidelock.errors import LogCorrupt


def plain_name(name: str) -> str:
    """``name``, if it is the name of a file or a folder and nothing else.

    Raises:
        LogCorrupt: it is not.

    >>> plain_name("000012-3f.arrow")
    '000012-3f.arrow'
    >>> plain_name("parts/12")
    Traceback (most recent call last):
    tidelock.errors.LogCorrupt: 'parts/12' is not a plain name: somebody has changed what is stored
    """
    if not isinstance(name, str) or "/" in name or not _is_relative(name):
        raise LogCorrupt(f"{name!r} is not a plain name: somebody has changed what is stored")
    return name


def relative_name(name: str) -> str:
    """``name``, if it is a path with forward slashes that leads down and nowhere else.

    Raises:
        LogCorrupt: it is not.

    >>> relative_name("state/0/0/3.delta")
    'state/0/0/3.delta'
    >>> relative_name("state/../../3.delta")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    tidelock.errors.LogCorrupt: 'state/../../3.delta' leads outside of where it belongs: somebody has changed ...
    """
    if not is_relative_name(name):
        raise LogCorrupt(f"{name!r} leads outside of where it belongs: somebody has changed what is stored")
    return name


def is_relative_name(name: str) -> bool:
    r"""Whether a name leads down and nowhere else.

    >>> [is_relative_name(name) for name in ("a/b", "/a", "a/../b", "a//b", "./a", "", "a\\b", "a\0")]
    [True, False, False, False, False, False, False, False]
    """
    return isinstance(name, str) and _is_relative(name)


def _is_relative(name: str) -> bool:
    return "\0" not in name and "\\" not in name and all(part not in ("", ".", "..") for part in name.split("/"))
