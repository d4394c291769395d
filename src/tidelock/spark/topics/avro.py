"""Avro records of others as columns, and rows as Avro records: one in each message, nothing before or after it.

fastavro reads and writes them, in Python workers: Spark's own functions for Avro are not in its Python package.

It is generous where we must not be: it writes 1.5 as the int 1, cuts microseconds off a moment in milliseconds,
has ints of 40 bits and rounds decimals that have more digits than their type. It takes any byte but 0 for true,
counts symbols of an enum from the last one if the number is negative, and of two values under one key of a map it
drops the first. So these are read by readers of our own, and a record that was written is read again and compared
with its row.
"""

from __future__ import annotations

import io
import itertools
import json
import math
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from os import PathLike
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import types as T
from pyspark.sql.pandas.functions import arrow_udf

from tidelock.errors import PipelineError, SchemaMismatch
from tidelock.extras import need
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
_INT, _DECIMAL = "tidelock-int", "tidelock-decimal"
_BOOLEAN, _ENUM, _MAP = "tidelock-boolean", "tidelock-enum", "tidelock-map"
_SYMBOLS = "tidelock-symbols"
_WIDER = ((frozenset({"int", "long"}), T.LongType()), (frozenset({"float", "double"}), T.DoubleType()))


class AvroRecords:
    """Records of one schema.

    Raises:
        PipelineError: it is no schema of a record, or has what columns cannot have; or fastavro is missing.
    """

    def __init__(self, schema: AvroSchema) -> None:
        need("kafka", "an Avro schema")
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
        """The records of a column of structs, as bytes; a row that a record cannot hold exactly fails the task."""
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


def _strict(schema: Any, names: Iterator[str]) -> Any:
    """A schema of the same bytes in which what needs readers of our own has types for which these are called.

    A boolean is its byte there, an enum its number, and a map the list of its pairs. Every type gets a name of its
    own: the schema has them written out wherever they are used.
    """
    if isinstance(schema, list):
        return [_strict(one, names) for one in schema]
    if not isinstance(schema, dict):
        return _strict({"type": schema}, names) if schema in ("int", "boolean") else schema
    kind = schema["type"]
    if kind == "record":
        return _record(next(names), {field["name"]: _strict(field["type"], names) for field in schema["fields"]})
    if kind == "map":
        pair = _record(next(names), {"key": "string", "value": _strict(schema["values"], names)})
        return {"type": "array", "items": pair, "logicalType": _MAP}
    if kind == "array":
        return {"type": "array", "items": _strict(schema["items"], names)}
    if kind == "enum":
        return {"type": "int", "logicalType": _ENUM, _SYMBOLS: schema["symbols"]}
    if kind == "boolean":
        return {"type": "fixed", "name": next(names), "size": 1, "logicalType": _BOOLEAN}
    if kind == "int":
        return {"logicalType": _INT, **schema}
    if isinstance(kind, dict | list):
        return _strict(kind, names)
    changed = {**schema, "name": next(names)} if kind == "fixed" else schema
    return {**changed, "logicalType": _DECIMAL} if changed.get("logicalType") == "decimal" else changed


def _record(name: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": n, "type": kind} for n, kind in fields.items()]}


def _exact_int(data: int, *_: Any) -> int:
    if not -(1 << 31) <= data < 1 << 31:
        raise ValueError(f"{data} is no int of 32 bits")
    return data


def _exact_decimal(data: bytes, written: Mapping[str, Any], *_: Any) -> Decimal:
    unscaled = int.from_bytes(data, "big", signed=True)
    if len(str(abs(unscaled))) > written["precision"]:
        raise ValueError(f"a decimal has more than {written['precision']} digits")
    sign, digits, _power = Decimal(unscaled).as_tuple()
    return Decimal((sign, digits, -written.get("scale", 0)))


def _exact_boolean(data: bytes, *_: Any) -> bool:
    return (b"\0", b"\1").index(data) == 1


def _exact_symbol(data: int, written: Mapping[str, Any], *_: Any) -> str:
    symbols: list[str] = written[_SYMBOLS]
    if not 0 <= data < len(symbols):
        raise ValueError(f"an enum has no symbol with the number {data}")
    return symbols[data]


def _exact_map(data: list[dict[str, Any]], *_: Any) -> dict[str, Any]:
    found = {pair["key"]: pair["value"] for pair in data}
    if len(found) < len(data):
        raise ValueError("a map has a key twice")
    return found


def _reading(schema: Any) -> Callable[[bytes | None], dict[str, Any] | None]:
    from fastavro import parse_schema, schemaless_reader
    from fastavro.read import LOGICAL_READERS

    readers: dict[str, Any] = LOGICAL_READERS  # whose declaration allows no schema to be there
    readers[f"int-{_INT}"] = _exact_int
    readers[f"bytes-{_DECIMAL}"] = readers[f"fixed-{_DECIMAL}"] = _exact_decimal
    readers[f"fixed-{_BOOLEAN}"], readers[f"int-{_ENUM}"] = _exact_boolean, _exact_symbol
    readers[f"array-{_MAP}"] = _exact_map
    parsed = parse_schema(_strict(_written_out(schema), (f"type{n}" for n in itertools.count())))

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

    parsed, read = parse_schema(schema), _reading(schema)

    def write(row: dict[str, Any]) -> bytes:
        data = io.BytesIO()
        try:
            schemaless_writer(data, parsed, row)
        except (ValueError, TypeError, KeyError, OverflowError, AttributeError) as error:
            raise SchemaMismatch(f"a row does not fit its Avro schema: {error}; the row is {row}") from error
        written = data.getvalue()
        if not _is_same(row, there := read(written)):
            raise SchemaMismatch(
                f"a row does not fit its Avro schema: a reader of the record would find {there}; the row is {row}."
                " Cast its columns to the types of the schema, or give the schema wider types"
            )
        return written

    return write


def _is_same(given: Any, found: Any) -> bool:
    """Whether what is found says the same as what was given; it may have fields more, which have defaults.

    >>> _is_same({"a": [1]}, {"a": [1], "b": 0}), _is_same({"a": 1.5}, {"a": 1}), _is_same(True, 1)
    (True, False, False)
    """
    if isinstance(given, dict):
        return isinstance(found, dict) and all(n in found and _is_same(one, found[n]) for n, one in given.items())
    if isinstance(given, list):
        return len(given) == len(found) and all(map(_is_same, given, found))
    if isinstance(given, float) and math.isnan(given):
        return isinstance(found, float) and math.isnan(found)
    return isinstance(given, bool) == isinstance(found, bool) and bool(given == found)
