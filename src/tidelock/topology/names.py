"""What a name may be, and which name a person may have meant. Pure."""

from __future__ import annotations

import difflib
import keyword
from collections.abc import Iterable

# A sink's function gets the epoch under this name, a source's the session under that one.
RESERVED = ("epoch", "spark")

EVERY = "*"
"""In the place of a name: all that are not named."""


def name_fault(name: str) -> str | None:
    """Say what is wrong with ``name`` for a source, an operator or a sink; None if it is good.

    >>> name_fault("words")
    >>> name_fault("top-k")
    "use letters, digits and _ only, and no digit first, as in 'top_k'"
    """
    if name in RESERVED:
        return "that word is taken: it is how a function asks for the epoch or the session"
    if keyword.iskeyword(name):
        return "that is a word of Python itself"
    if name.isascii() and name.isidentifier():
        return None
    return f"use letters, digits and _ only, and no digit first, as in {_repaired(name)!r}"


def _repaired(name: str) -> str:
    mended = "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in name)
    return mended if mended.isidentifier() else f"my_{mended}"


def suggestion(name: str, known: Iterable[str]) -> str:
    """The nearest of the known names as a question, or all of them when none is near.

    >>> suggestion("word", ["words", "tweets"])
    "did you mean 'words'?"
    >>> suggestion("scores", ["words", "tweets"])
    'there are: tweets, words'
    """
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1)
    if near:
        return f"did you mean {near[0]!r}?"
    return f"there are: {', '.join(names)}" if names else "there are none"


def listed(names: Iterable[str]) -> str:
    """Names as a person says them.

    >>> listed(["a", "b", "c"])
    'a, b and c'
    """
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last
