"""JSON records of somebody who knows nothing of Tidelock, as rows with columns. Pure.

Only types that JSON has itself: texts, numbers, truth values, and lists and objects of them. A moment is a text
until an operator makes it a timestamp.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
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


class NoRecord(Exception):
    """A record is no JSON object, or does not fit its columns."""


def describe_columns(text: str) -> dict[str, Any]:
    """The description that a log keeps of columns that are written like `id long, tags array<string>`.

    >>> describe_columns("id long")["fields"]
    [{'name': 'id', 'type': 'long', 'nullable': True, 'metadata': {}}]

    Raises:
        PipelineError: it cannot be read, or has a type that JSON does not have.
    """
    fields = []
    for column in text.split(","):
        found = _COLUMN.fullmatch(column)
        if found is None:
            raise PipelineError(f"{text!r} is no list of columns: write it like `id long, text string`")
        name = found["quoted"] or found["plain"]
        fields.append({"name": name, "type": _described(found["type"]), "nullable": True, "metadata": {}})
    return {"type": "struct", "fields": fields}


def _described(text: str) -> Any:
    text = text.strip().lower()
    name = _OTHER_NAMES.get(text, text)
    if name in _TYPES:
        return name
    inner = re.fullmatch(r"array\s*<(.+)>", text)
    if inner is not None:
        return {"type": "array", "elementType": _described(inner[1]), "containsNull": True}
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

    Raises:
        NoRecord: one does not fit; ``args`` has its place among ``values``, and why.
    """
    rows = [_object(place, value) for place, value in enumerate(values)]
    try:
        return pa.RecordBatch.from_pylist(rows, schema=schema)
    except (pa.ArrowException, OverflowError, TypeError):
        for place, row in enumerate(rows):  # which one it was is worth a second look
            _check(place, row, schema)
        raise


def _object(place: int, value: bytes | None) -> dict[str, Any]:
    try:
        found = json.loads(value or b"")
    except ValueError as error:
        raise NoRecord(place, f"it is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise NoRecord(place, "it is no JSON object")
    return found


def _check(place: int, row: dict[str, Any], schema: pa.Schema) -> None:
    for field in schema:
        try:
            pa.array([row.get(field.name)], field.type)
        except (pa.ArrowException, OverflowError, TypeError) as error:
            raise NoRecord(place, f"{field.name} is no {field.type}: {error}") from error
