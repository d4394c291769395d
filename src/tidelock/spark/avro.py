"""Avro records of others as columns, and rows as Avro records: one in each message, nothing before or after it.

fastavro reads and writes them, in Python workers: Spark's own functions for Avro are not in its Python package.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import types as T
from pyspark.sql.pandas.functions import arrow_udf

from tidelock.errors import PipelineError, SchemaMismatch
from tidelock.spark.schema import arrow_schema

AvroSchema = str | Mapping[str, Any] | PathLike[str]
"""The JSON of a schema as text, the same as a dictionary, or the path of a file with it."""

_PRIMITIVES: Mapping[str, T.DataType] = {
    "string": T.StringType(),
    "enum": T.StringType(),
    "bytes": T.BinaryType(),
    "fixed": T.BinaryType(),
    "boolean": T.BooleanType(),
    "int": T.IntegerType(),
    "long": T.LongType(),
    "float": T.FloatType(),
    "double": T.DoubleType(),
}
_LOGICAL: Mapping[str, T.DataType] = {
    "date": T.DateType(),
    "timestamp-millis": T.TimestampType(),
    "timestamp-micros": T.TimestampType(),
    "local-timestamp-millis": T.TimestampNTZType(),
    "local-timestamp-micros": T.TimestampNTZType(),
}
_WIDER = ((frozenset({"int", "long"}), T.LongType()), (frozenset({"float", "double"}), T.DoubleType()))


class AvroRecords:
    """Records of one schema.

    Raises:
        PipelineError: it is no schema of a record, or has what columns cannot have; or fastavro is missing.
    """

    def __init__(self, schema: AvroSchema) -> None:
        if find_spec("fastavro") is None:
            raise PipelineError("Avro needs the package fastavro: install tidelock[kafka]")
        loaded = _loaded(schema)
        written_out = _without_other_meanings(_written_out(loaded))
        if not isinstance(written_out, dict) or written_out["type"] != "record":
            raise PipelineError("the Avro schema is not one of a record: give the schema of a record, with fields")
        self._schema = _without_other_meanings(loaded)
        self.columns = _struct(written_out, "")

    def decoded(self, column: Column) -> Column:
        """The records in a column of bytes as structs; one that does not fit is null."""
        schema, arrow = self._schema, pa.struct(list(arrow_schema(self.columns)))

        def decode(values: pa.Array) -> pa.Array:
            read = _reading(schema)
            return pa.array([read(value) for value in values.to_pylist()], arrow)

        return _over_arrow(decode, self.columns, column)

    def encoded(self, row: Column) -> Column:
        """The records of a column of structs, as bytes."""
        schema = self._schema

        def encode(rows: pa.Array) -> pa.Array:
            write = _writing(schema)
            return pa.array([write(one) for one in rows.to_pylist(maps_as_pydicts="strict")], pa.binary())

        return _over_arrow(encode, T.BinaryType(), row)

    def check_columns(self, columns: list[str], where: str) -> None:
        """See that rows with these columns can become records.

        Raises:
            SchemaMismatch: a field has no column, or a column has no field.
        """
        fields = {field["name"]: "default" in field for field in self._schema["fields"]}
        missing = [name for name, has_default in fields.items() if name not in columns and not has_default]
        unknown = [name for name in columns if name not in fields]
        wrong = [f"there is no column {name}" for name in missing]
        wrong += [f"column {name} is not in the schema" for name in unknown]
        if wrong:
            raise SchemaMismatch(
                f"{where}: {', '.join(wrong)}; the fields of the Avro schema are {', '.join(fields)}"
            )


def _over_arrow(function: Callable[[pa.Array], pa.Array], kind: T.DataType, column: Column) -> Column:
    function.__annotations__ = dict.fromkeys(("return", *function.__annotations__), pa.Array)  # not as texts
    made: Any = arrow_udf  # which takes structs, whatever its declaration says
    return cast(Column, made(function, kind)(column))


def _loaded(schema: AvroSchema) -> Any:
    if isinstance(schema, Mapping):
        return dict(schema)
    try:
        text = schema if isinstance(schema, str) else Path(schema).read_text(encoding="utf-8")
        return json.loads(text)
    except OSError as error:
        raise PipelineError(f"the Avro schema cannot be read: {error}") from error
    except ValueError as error:
        raise PipelineError(
            f"the Avro schema is no JSON ({error}): give its text, a dictionary, or a pathlib.Path of its file"
        ) from error


def _written_out(schema: Any) -> Any:
    """The schema with every named type written out where it is used."""
    from fastavro.schema import SchemaParseException, UnknownType, expand_schema, parse_schema

    try:
        parse_schema(schema)
        return expand_schema(schema)
    except (SchemaParseException, UnknownType, KeyError, TypeError, ValueError) as error:
        raise PipelineError(f"this is no Avro schema: {error!r}") from error


def _without_other_meanings(schema: Any) -> Any:
    """The schema without the logical types that no column has, which are then what they are made of."""
    if isinstance(schema, list):
        return [_without_other_meanings(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {
        name: value
        for name, value in schema.items()
        if name != "logicalType" or value in _LOGICAL or value == "decimal"
    }
    if "fields" in kept:
        kept["fields"] = [{**f, "type": _without_other_meanings(f["type"])} for f in kept["fields"]]
    for inner in ("type", "items", "values"):
        if inner in kept:
            kept[inner] = _without_other_meanings(kept[inner])
    return kept


def _struct(record: Mapping[str, Any], path: str) -> T.StructType:
    fields = [(field["name"], _column_type(field["type"], f"{path}{field['name']}")) for field in record["fields"]]
    return T.StructType([T.StructField(name, kind) for name, kind in fields])


def _column_type(schema: Any, path: str) -> T.DataType:
    if isinstance(schema, list):
        return _union(schema, path)
    fields = schema if isinstance(schema, dict) else {"type": schema}
    kind = fields["type"]
    if fields.get("logicalType") == "decimal":
        return T.DecimalType(fields["precision"], fields.get("scale", 0))
    if "logicalType" in fields:
        return _LOGICAL[fields["logicalType"]]
    if kind == "record":
        return _struct(fields, f"{path}.")
    if kind == "array":
        return T.ArrayType(_column_type(fields["items"], path))
    if kind == "map":
        return T.MapType(T.StringType(), _column_type(fields["values"], path))
    if isinstance(kind, dict | list):
        return _column_type(kind, path)
    if kind not in _PRIMITIVES:
        raise PipelineError(
            f"the field {path} of the Avro schema is of the type {kind}, which no column can have (a type cannot "
            "contain itself): take the records as they are, without `avro`"
        )
    return _PRIMITIVES[kind]


def _union(schemas: list[Any], path: str) -> T.DataType:
    kinds = [one for one in schemas if one != "null"]
    if len(kinds) == 1:
        return _column_type(kinds[0], path)
    for narrower, wider in _WIDER:
        if kinds and all(isinstance(one, str) for one in kinds) and narrower.issuperset(kinds):
            return wider
    raise PipelineError(
        f"the field {path} of the Avro schema is one of several types, which no column can have: take the records "
        "as they are, without `avro`"
    )


def _reading(schema: Any) -> Callable[[bytes | None], dict[str, Any] | None]:
    from fastavro import parse_schema, schemaless_reader

    parsed = parse_schema(schema)

    def read(value: bytes | None) -> dict[str, Any] | None:
        data = io.BytesIO(value or b"")
        try:
            found: Any = schemaless_reader(data, parsed, None)
        except Exception:  # a damaged record can break the reader in any way
            return None
        return None if data.read(1) else dict(found)

    return read


def _writing(schema: Any) -> Callable[[dict[str, Any]], bytes]:
    from fastavro import parse_schema, schemaless_writer

    parsed = parse_schema(schema)

    def write(row: dict[str, Any]) -> bytes:
        data = io.BytesIO()
        try:
            schemaless_writer(data, parsed, row)
        except (ValueError, TypeError, KeyError, OverflowError, AttributeError) as error:
            raise SchemaMismatch(f"a row does not fit its Avro schema: {error}; the row is {row}") from error
        return data.getvalue()

    return write
