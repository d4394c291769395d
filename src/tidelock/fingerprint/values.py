"""Values that stand for themselves, whatever run they are in: exactly, and for people."""

from __future__ import annotations

import os
import re
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from pathlib import PurePath
from types import EllipsisType, FunctionType, NoneType, NotImplementedType
from typing import Any, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

from tidelock.fingerprint.source import constant, digest

_HIDDEN = "'…'"
_CONSTANTS = (bool, int, float, complex, NoneType, EllipsisType, NotImplementedType)
_BY_REPR = (Decimal, Fraction, UUID, range, date, datetime, time, timedelta, timezone, ZoneInfo)
_ZONES = (NoneType, timezone, ZoneInfo)
_UDFS = ("UserDefinedFunction", "UserDefinedTableFunction")


class Shown(NamedTuple):
    """A value, exactly (to be compared) and for people, who see no texts: one of them may be a password."""

    exact: str
    shown: str


def plain_value(value: Any, folder: str | None = None) -> Shown | None:
    """A value that is known by itself; None if it is made of others. Paths count from ``folder`` on.

    Only the types of Python themselves are: a class that is derived from one may say anything of its objects.
    """
    kind = type(value)
    if kind in _CONSTANTS:
        return Shown(constant(value), repr(value))
    if kind is str:
        return Shown(constant(_without(folder, value)), _HIDDEN)
    if kind in (bytes, bytearray):
        return Shown(constant(bytes(value)), _HIDDEN)
    if kind.__module__.startswith("pathlib") and isinstance(value, PurePath):
        return Shown(f"path:{_without(folder, os.fspath(value))}", _HIDDEN)
    if kind in _BY_REPR and type(getattr(value, "tzinfo", None)) in _ZONES:
        return Shown(f"{kind.__name__}:{value!r}", repr(value))
    if kind is re.Pattern:
        return Shown(f"pattern:{value.pattern!r}:{value.flags}", "a pattern")
    return _array(value) or _type_of_spark(value)


def is_udf(value: Any) -> bool:
    """Whether it is what Spark makes of a Python function: an object of its own, or a function around one."""
    kind = type(value)
    if kind is FunctionType:
        return all(name in vars(value) for name in ("func", "evalType", "returnType"))
    return kind.__module__.startswith("pyspark.sql.") and kind.__name__ in _UDFS


def _without(folder: str | None, text: str) -> str:
    if folder is None or not (text == folder or text.startswith(folder + os.sep)):
        return text
    return f"<folder>{text[len(folder) :]}"


def _array(value: Any) -> Shown | None:
    """An array or a number of numpy, by its bytes."""
    if not type(value).__module__.startswith("numpy") or not hasattr(value, "tobytes"):
        return None
    if value.dtype.hasobject:
        return None
    exact = f"numpy:{value.dtype}:{value.shape}:{digest(value.tobytes().hex())}"
    return Shown(exact, repr(value.item()) if value.shape == () else f"an array {value.shape}")


def _type_of_spark(value: Any) -> Shown | None:
    """A type of Spark's, which says itself what it is."""
    if type(value).__module__ == "pyspark.sql.types" and hasattr(value, "json"):
        return Shown(f"type:{value.json()}", str(value.simpleString()))
    return None
