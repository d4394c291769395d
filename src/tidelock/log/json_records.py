"""JSON records of somebody who knows nothing of Tidelock, as rows with columns. Pure.

Only types that JSON has itself: texts, numbers, truth values, and lists and objects of them. A moment is a text
until an operator makes it a timestamp.
"""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from tidelock.errors import PipelineError

_TYPES: Mapping[str, pa.DataType] = {
    "string": pa.string(),
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
}
_OTHER_NAMES = {"int": "integer", "bigint": "long", "smallint": "short", "tinyint": "byte", "real": "float"}
_COLUMN = re.compile(r"\s*(?:`(?P<quoted>[^`]+)`|(?P<plain>\w+))\s*:?\s+(?P<type>[\w<>\s]+?)\s*")


_DIGITS = 20
"""More digits than a whole number of 64 bits can have."""

_LARGE, _LONGEST = 10**30, 40

_DEEPEST = 50
"""Arrays inside of each other that a column may have."""


class NoRecord(Exception):
    """A record is no JSON object, or does not fit its columns."""


def describe_columns(text: str) -> dict[str, Any]:
    """The description that a log keeps of columns that are written like `id long, tags array<string>`.

    >>> describe_columns("id long")["fields"]
    [{'name': 'id', 'type': 'long', 'nullable': True, 'metadata': {}}]

    Raises:
        PipelineError: it cannot be read, or has a type that JSON does not have.
    """
    fields: list[dict[str, Any]] = []
    for column in text.split(","):
        found = _COLUMN.fullmatch(column)
        if found is None:
            raise PipelineError(f"{text!r} is no list of columns: write it like `id long, text string`")
        name = found["quoted"] or found["plain"]
        if any(name == field["name"] for field in fields):
            raise PipelineError(f"{text!r} has the column {name} twice: every column needs a name of its own")
        fields.append({"name": name, "type": _described(found["type"]), "nullable": True, "metadata": {}})
    return {"type": "struct", "fields": fields}


def _described(text: str, depth: int = 0) -> Any:
    if depth > _DEEPEST:
        raise PipelineError(f"a type has more than {_DEEPEST} arrays inside of each other")
    text = text.strip().lower()
    name = _OTHER_NAMES.get(text, text)
    if name in _TYPES:
        return name
    inner = re.fullmatch(r"array\s*<(.+)>", text)
    if inner is not None:
        return {"type": "array", "elementType": _described(inner[1], depth + 1), "containsNull": True}
    raise PipelineError(
        f"records of a topic cannot have the type {text!r}: JSON has {', '.join(_TYPES)} and array<...> of them; "
        "take a moment as string and make it a timestamp in an operator"
    )


def arrow_columns(described: Mapping[str, Any]) -> pa.Schema:
    """The Arrow schema of columns that `describe_columns` has described."""
    return pa.schema([(field["name"], _arrow(field["type"])) for field in described["fields"]])


def _arrow(described: Any) -> pa.DataType:
    return _TYPES[described] if isinstance(described, str) else pa.list_(_arrow(described["elementType"]))


def decode(values: Sequence[bytes | None], schema: pa.Schema) -> pa.RecordBatch:
    """The rows of these records. What a record does not have is null, and what is no column is left out.

    A value becomes exactly what it says, or the record does not fit: nothing is cut off, wrapped around or taken
    for something else. A number with a fraction becomes the `double` (or `float`) next to it, as JSON means it.

    Raises:
        NoRecord: one does not fit; ``args`` has its place among ``values``, and why.
    """
    names, converts = frozenset(schema.names), [_converter(field.type) for field in schema]
    columns: list[list[Any]] = [[] for _ in schema]
    for place, value in enumerate(values):
        found = _fields(place, value, names)
        for field, convert, column in zip(schema, converts, columns, strict=True):
            try:
                column.append(convert(found.get(field.name)))
            except _Unfit as why:
                raise NoRecord(place, f"{field.name} is no {field.type}: {why}") from why
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


# -- reading JSON


class _Pairs(list[tuple[str, Any]]):
    """An object as it is written: a name may stand in it twice."""


def _constant(name: str) -> Any:
    raise ValueError(f"{name} is no number")


def _fields(place: int, value: bytes | None, names: frozenset[str]) -> dict[str, Any]:
    """Those fields of a record that are columns."""
    try:
        # A Decimal is the number that is written, whatever becomes of it.
        found = json.loads(value or b"", object_pairs_hook=_Pairs, parse_float=Decimal, parse_constant=_constant)
    except RecursionError as error:
        raise NoRecord(place, "it is nested too deeply") from error
    except (ValueError, ArithmeticError) as error:  # the latter of a number that is too long or too large
        raise NoRecord(
            place, f"it is no JSON that can be read: {str(error) or 'a number is too large'}"
        ) from error
    if type(found) is not _Pairs:
        raise NoRecord(place, "it is no JSON object")
    fields: dict[str, Any] = {}
    for name, one in found:
        if name in fields:
            raise NoRecord(place, f"{name} stands in it twice")
        if name in names:
            fields[name] = one
    return fields


# -- from JSON to the type of a column


class _Unfit(Exception):
    """A value does not fit the type of its column."""


def _converter(kind: pa.DataType) -> Callable[[Any], Any]:
    if pa.types.is_list(kind):
        return _optional(_list_of(_converter(kind.value_type)))
    if pa.types.is_integer(kind):
        return _optional(_whole(kind.bit_width))
    if pa.types.is_floating(kind):
        return _optional(_single if kind == pa.float32() else _double)
    return _optional(_truth if pa.types.is_boolean(kind) else _text)


def _optional(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else convert(value)


def _text(value: Any) -> str:
    if type(value) is not str:
        raise _Unfit(_shown(value))
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise _Unfit("it has half of a surrogate pair") from error
    return value


def _truth(value: Any) -> bool:
    if type(value) is not bool:
        raise _Unfit(_shown(value))
    return value


def _list_of(convert: Callable[[Any], Any]) -> Callable[[Any], list[Any]]:
    def listed(value: Any) -> list[Any]:
        if type(value) is not list:
            raise _Unfit(_shown(value))
        return [convert(one) for one in value]

    return listed


def _whole(bits: int) -> Callable[[Any], int]:
    beyond = 1 << (bits - 1)

    def whole(value: Any) -> int:
        if type(value) is Decimal and value.adjusted() <= _DIGITS and value == value.to_integral_value():
            value = int(value)  # as 1.0 or 1e3; one that is much larger would take all memory
        if type(value) is not int:
            raise _Unfit(_shown(value))
        if not -beyond <= value < beyond:
            raise _Unfit(f"{_shown(value)} is out of range")
        return value

    return whole


def _double(value: Any) -> float:
    return _near(value, float)


def _single(value: Any) -> float:
    return _near(value, lambda number: float(*struct.unpack("<f", struct.pack("<f", float(number)))))


def _near(value: Any, convert: Callable[[int | Decimal], float]) -> float:
    """The floating-point number next to a number; that of a whole number is the same number."""
    if type(value) not in (int, Decimal):
        raise _Unfit(_shown(value))
    try:
        near = convert(value)
    except OverflowError:
        near = math.inf
    if math.isinf(near) or (value and not near):
        raise _Unfit(f"{_shown(value)} is out of range")
    if type(value) is int and near != value:
        raise _Unfit(f"{_shown(value)} would lose digits")
    return near


def _shown(value: Any) -> str:
    """A value as a message has it: shortly."""
    if type(value) in (int, Decimal):
        return str(value)[:_LONGEST] if -_LARGE < value < _LARGE else "a very large number"
    kinds = {str: "it is a text", bool: "it is true or false", list: "it is a list", _Pairs: "it is an object"}
    return kinds[type(value)]
