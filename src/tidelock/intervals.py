"""Intervals of time, as Spark writes them. Pure, so that a wrong one is told before Spark starts.

The grammar is that of Spark's own text intervals: numbers and units in turn, `1 minute 30 seconds`, perhaps behind
the word `interval`; each number may have a sign, and seconds a fraction. A month counts 31 days, as in Spark's
triggers. A test compares both on the same texts.
"""

from __future__ import annotations

import re
from fractions import Fraction

from tidelock.errors import PipelineError

_MICROS = {
    "microsecond": 1,
    "millisecond": 10**3,
    "second": 10**6,
    "minute": 60 * 10**6,
    "hour": 3600 * 10**6,
    "day": 86_400 * 10**6,
    "week": 7 * 86_400 * 10**6,
    "month": 31 * 86_400 * 10**6,
    "year": 12 * 31 * 86_400 * 10**6,
}
_PART = re.compile(
    r"\s*(?P<sign>[+-]?)\s*(?P<number>\d+(?:\.\d{0,9})?|\.\d{1,9})\s+(?P<unit>[a-z]+?)s?(?=\s|$)",
    re.IGNORECASE | re.ASCII,
)
_LARGEST = 2**63 - 1


def interval_seconds(text: str, what: str = "epoch") -> float:
    """The seconds of an interval such as `1 second` or `500 milliseconds`; ``what`` names it in the message.

    >>> interval_seconds("500 milliseconds"), interval_seconds("1 minute 30 seconds")
    (0.5, 90.0)

    Raises:
        PipelineError: it is not an interval, or not longer than nothing.
    """
    micros = _micros(text) if isinstance(text, str) else None
    if micros is None:
        units = ", ".join(f"{unit}s" for unit in _MICROS)
        raise PipelineError(
            f"{what}={text!r} is not an interval: write a number and a unit, such as '1 second' or "
            f"'500 milliseconds'; the units are {units}"
        )
    if micros <= 0:
        raise PipelineError(f"{what}={text!r} is not longer than nothing: give an interval such as '1 second'")
    return micros / 1e6


def _micros(text: str) -> int | None:
    """The microseconds of an interval, of whatever sign; None if it is none."""
    rest = re.sub(r"^\s*interval\s+", "", text.rstrip(), flags=re.IGNORECASE)
    total = 0
    while rest:
        part = _PART.match(rest)
        unit = part and part["unit"].lower()
        if part is None or unit not in _MICROS or ("." in part["number"] and unit != "second"):
            return None
        # Digits below a microsecond are cut off, number by number.
        micros = int(Fraction(part["number"].rstrip(".")) * _MICROS[unit])
        total += -micros if part["sign"] == "-" else micros
        rest = rest[part.end() :]
    return total if re.search(r"\d", text) and abs(total) <= _LARGEST else None
