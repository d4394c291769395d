"""Schemas at the border between Spark and a log: what can be stored, what fits, what a reader sees.

A log keeps Spark's own description of the columns. As in Spark's file sources every column and every nested
field is nullable in a log, so that a query which later proves less about its output still fits. The delay of a
watermark stays in the description as Spark put it there; a reader that does not restore the watermark must not
see it, because Spark would take the column for a watermarked one that never advances.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import to_arrow_schema, to_arrow_type
from pyspark.sql.types import StructField, StructType

from tidelock.errors import SchemaMismatch

WATERMARK_DELAY = "spark.watermarkDelayMs"


def describe(schema: StructType) -> dict[str, Any]:
    """The description of ``schema`` that a log keeps.

    Raises:
        SchemaMismatch: a column cannot be stored; the message names it.
    """
    _check_storable(schema)
    described: dict[str, Any] = _nullable(schema.jsonValue())
    return described


def readable(described: Mapping[str, Any]) -> StructType:
    """The schema that a plain reader of a log sees."""
    if _mentions_udt(described):
        raise SchemaMismatch("this log has a column of a user-defined type, which is never read")
    schema = _parse(described)
    plain = [StructField(f.name, f.dataType, f.nullable, _without_watermark(f.metadata)) for f in schema]
    return StructType(plain)


def event_time_columns(described: Mapping[str, Any]) -> dict[str, int]:
    """The columns that had a watermark when they were written, with its delay in milliseconds."""
    return {
        field["name"]: field["metadata"][WATERMARK_DELAY]
        for field in described["fields"]
        if WATERMARK_DELAY in field["metadata"]
    }


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema of the parts: the one that Spark expects from a Python data source."""
    return to_arrow_schema(schema, timezone="UTC")


def check_fits(schema: StructType, described: Mapping[str, Any], url: str) -> None:
    """Refuse a DataFrame whose columns are not those of the log; order and nullability do not count.

    Raises:
        SchemaMismatch: the message names the columns.
    """
    mine, theirs = _types(readable(describe(schema))), _types(readable(described))
    problems = [f"{name} is missing" for name in theirs if name not in mine]
    problems += [f"{name} is not a column of the log" for name in mine if name not in theirs]
    problems += _changed(mine, theirs)
    if problems:
        raise SchemaMismatch(
            f"{url}: the columns do not fit this log: {'; '.join(problems)}. Select and cast the columns "
            "to fit, or write to a new log"
        )


def check_selection(wanted: StructType, described: Mapping[str, Any], url: str) -> None:
    """Refuse a user's schema that asks a log for columns or types that it does not have.

    Raises:
        SchemaMismatch: the message names the columns.
    """
    asked, held = _types(wanted), _types(readable(described))
    problems = [f"{name} is not a column of the log" for name in asked if name not in held]
    problems += _changed(asked, held)
    if problems:
        raise SchemaMismatch(
            f"{url}: the schema that was asked for does not fit: {'; '.join(problems)}. The log has "
            f"{', '.join(f'{name} {kind}' for name, kind in held.items())}"
        )


def quoted(name: str) -> str:
    """A column's name as Spark's expressions take it, whatever is in it."""
    return f"`{name.replace('`', '``')}`"


def select(schema: StructType, columns: Sequence[str], url: str) -> StructType:
    """The fields of ``schema`` with these names, in the order of the names.

    Raises:
        SchemaMismatch: one of the names is unknown.
    """
    if not columns:
        raise SchemaMismatch(f"{url}: no columns were asked for: leave `columns` out and select of the stream")
    missing = [name for name in columns if name not in schema.names]
    if missing:
        raise SchemaMismatch(
            f"{url}: {', '.join(missing)} is not a column of the log; it has {', '.join(schema.names)}"
        )
    return StructType([schema[name] for name in columns])


def _changed(mine: Mapping[str, str], theirs: Mapping[str, str]) -> list[str]:
    return [
        f"{name} is {mine[name]}, but {theirs[name]} in the log"
        for name in mine
        if name in theirs and mine[name] != theirs[name]
    ]


def _parse(described: Mapping[str, Any]) -> StructType:
    return StructType.fromJson(deepcopy(dict(described)))  # Spark changes what it parses, where collations are


def _types(schema: StructType) -> dict[str, str]:
    plain = _parse(_nullable(schema.jsonValue()))
    return {field.name: field.dataType.simpleString() for field in plain}


def _check_storable(schema: StructType) -> None:
    if not schema.names:
        raise SchemaMismatch("there are no columns to store: rows need at least one to be counted by")
    problems = []
    names = [name.lower() for name in schema.names]
    for field in schema:
        if names.count(field.name.lower()) > 1:
            problems.append(f"{field.name} stands more than once")
        elif _mentions_udt(field.jsonValue()):
            problems.append(f"{field.name} has a user-defined type: store its plain fields")
        elif problem := _unsupported(field):
            problems.append(f"{field.name} has the type {problem}, which Arrow cannot carry")
    if problems:
        raise SchemaMismatch(f"these columns cannot be stored in a log: {'; '.join(problems)}")


def _unsupported(field: StructField) -> str | None:
    try:
        to_arrow_type(field.dataType, error_on_duplicated_field_names_in_struct=True, timezone="UTC")
    except PySparkException:
        return field.dataType.simpleString()
    return None


def _nullable(node: Any) -> Any:
    if isinstance(node, list):
        return [_nullable(item) for item in node]
    if not isinstance(node, dict):
        return node
    flags = {"nullable", "containsNull", "valueContainsNull"} & node.keys()
    kept = {k: v if k == "metadata" else _nullable(v) for k, v in node.items()}
    return {**kept, **dict.fromkeys(flags, True)}


def _mentions_udt(node: Any) -> bool:
    if isinstance(node, list):
        return any(_mentions_udt(item) for item in node)
    if not isinstance(node, Mapping):
        return False
    inner = (v for k, v in node.items() if k != "metadata")
    return node.get("type") == "udt" or any(_mentions_udt(v) for v in inner)


def _without_watermark(metadata: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in metadata.items() if k != WATERMARK_DELAY}
