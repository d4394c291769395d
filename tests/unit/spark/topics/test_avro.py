"""Avro schemas as columns: what they become, what cannot be, and what is told then."""

from __future__ import annotations

import doctest
import io
import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from fastavro import parse_schema, schemaless_reader
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tidelock.errors import PipelineError, SchemaMismatch
from tidelock.spark.schema import arrow_schema
from tidelock.spark.topics import avro
from tidelock.spark.topics.avro import AvroRecords, _reading, _writing


def record(**fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": "r", "fields": [{"name": n, "type": t} for n, t in fields.items()]}


@pytest.mark.parametrize(
    ("written", "column"),
    [
        ("string", "string"),
        ("int", "int"),
        (["null", "long"], "bigint"),
        (["int", "long", "null"], "bigint"),
        (["float", "double"], "double"),
        ({"type": "string"}, "string"),
        ({"type": "enum", "name": "e", "symbols": ["a"]}, "string"),
        ({"type": "fixed", "name": "f", "size": 2}, "binary"),
        ({"type": "array", "items": ["null", "int"]}, "array<int>"),
        ({"type": "map", "values": "boolean"}, "map<string,boolean>"),
        ({"type": "int", "logicalType": "date"}, "date"),
        ({"type": "long", "logicalType": "timestamp-micros"}, "timestamp"),
        ({"type": "long", "logicalType": "local-timestamp-millis"}, "timestamp_ntz"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, "decimal(9,2)"),
        ({"type": "string", "logicalType": "uuid"}, "string"),
        ({"type": "long", "logicalType": "time-micros"}, "bigint"),
        ({**record(a="int", b=["null", "string"]), "name": "inner"}, "struct<a:int,b:string>"),
    ],
)
def test_types(written: Any, column: str) -> None:
    assert AvroRecords(record(x=written)).columns.simpleString() == f"struct<x:{column}>"


def test_a_named_type_that_is_used_twice() -> None:
    inner = {**record(a="int"), "name": "inner"}
    assert AvroRecords(record(x=inner, y="inner")).columns["y"].dataType.simpleString() == "struct<a:int>"


def test_a_schema_in_any_form(tmp_path: Path) -> None:
    file = tmp_path / "r.avsc"
    file.write_text(json.dumps(record(x="int")))
    for schema in (record(x="int"), json.dumps(record(x="int")), file):
        assert AvroRecords(schema).columns.names == ["x"]


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ("r.avsc", r"no JSON .*give its text, a dictionary, or a pathlib\.Path"),
        (Path("nowhere.avsc"), r"cannot be read: .*nowhere\.avsc"),
        ({"type": "what"}, "no Avro schema"),
        ({"type": "record", "name": "r", "fields": [{"name": "x"}]}, "no Avro schema"),
        ({"type": "array", "items": "int"}, "not one of a record"),
        (record(x=["int", "string"]), "the field x of the Avro schema is one of several types"),
        (record(x={"type": "array", "items": ["null", "r"]}), "the field x .*a type cannot contain itself"),
    ],
)
def test_what_cannot_be(schema: Any, told: str) -> None:
    with pytest.raises(PipelineError, match=told):
        AvroRecords(schema)


def test_rows_and_fields_that_do_not_belong_together() -> None:
    schema = record(id="long", text="string")
    schema["fields"][1]["default"] = ""
    AvroRecords(schema).check_columns(["id"], "sink s")
    with pytest.raises(SchemaMismatch, match="sink s: there is no column id, column n is not in the schema"):
        AvroRecords(schema).check_columns(["n"], "sink s")


def test_records_there_and_back_and_what_does_not_fit() -> None:
    inner = {**record(a="int"), "name": "inner"}
    schema = record(id="long", tags={"type": "map", "values": "int"}, one=inner, two="inner")
    row = {"id": 7, "tags": {"a": 1}, "one": {"a": 2}, "two": {"a": 3}}
    data = _writing(schema)(row)
    assert _reading(schema)(data) == row
    for wrong in (None, b"", data[:-1], data + b"\0", b"\xff" * 40, b'{"id": 7}'):
        assert _reading(schema)(wrong) is None
    with pytest.raises(SchemaMismatch, match=r"does not fit its Avro schema: .*; the row is \{'id': 'seven'"):
        _writing(schema)({**row, "id": "seven"})


MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
MICROS = {"type": "long", "logicalType": "timestamp-micros"}
MONEY = {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}


def _in_milliseconds(moment: datetime) -> datetime:
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


moments = st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC))


def test_doctests() -> None:
    result = doctest.testmod(avro)
    assert (result.failed, result.attempted > 0) == (0, True)


@settings(deadline=None, derandomize=True)
@given(
    kind=st.sampled_from(["int", "long", "float", "double", "boolean", "string", "bytes", MILLIS, MICROS, MONEY]),
    value=st.one_of(
        st.integers(), st.integers(-(2**33), 2**33), st.floats(), st.floats(width=32), st.booleans(), st.text(),
        st.binary(max_size=5), moments, moments.map(_in_milliseconds),
        st.decimals(-100_000, 100_000, places=2), st.decimals(-1000, 1000, places=3), st.just("\ud800"),
    ),
)  # fmt: skip
@example(kind="int", value=1.5)
@example(kind="int", value=2**40)
@example(kind="float", value=1e300)
@example(kind=MILLIS, value=datetime(2026, 1, 2, 3, 4, 5, 123456, tzinfo=UTC))
def test_a_value_is_written_exactly_or_refused(kind: Any, value: Any) -> None:
    schema = record(x=kind)
    try:
        data = _writing(schema)({"x": value})
    except SchemaMismatch:
        return
    plain = schemaless_reader(io.BytesIO(data), parse_schema(record(x=kind)), None)["x"]
    assert plain == value or (plain != plain and value != value)
    assert isinstance(plain, bool) == isinstance(value, bool)
    columns = AvroRecords(schema).columns
    (row,) = pa.array([_reading(schema)(data)], pa.struct(list(arrow_schema(columns)))).to_pylist()
    assert row is not None, "what is written can be read into its column"


def test_damaged_records_among_others_are_null() -> None:
    """They are Avro, and hold more than their types do."""
    wide = record(n="long", price="bytes")
    rows = [(1, 12345), (2**40, 1), (3, 1_234_567), (4, -99_999_999), (5, -999_999)]
    damaged = [_writing(wide)({"n": n, "price": price.to_bytes(8, "big", signed=True)}) for n, price in rows]
    schema = record(n="int", price=MONEY)
    kind = pa.struct(list(arrow_schema(AvroRecords(schema).columns)))
    found = pa.array([_reading(schema)(data) for data in damaged], kind).to_pylist()
    assert found == [
        {"n": 1, "price": Decimal("123.45")},
        None,
        None,
        None,
        {"n": 5, "price": Decimal("-9999.99")},
    ]


LETTER = {"type": "enum", "name": "letter", "symbols": ["a", "b"]}
NUMBERS = {"type": "map", "values": "int"}


@pytest.mark.parametrize(
    ("kind", "data", "value"),
    [
        ("boolean", b"\0", False),
        ("boolean", b"\1", True),
        ("boolean", b"\2", None),
        ("boolean", b"\xff", None),
        (["null", "boolean"], b"\2\1", True),
        (["null", "boolean"], b"\2\2", None),
        (LETTER, b"\2", "b"),
        (LETTER, b"\1", None),
        (LETTER, b"\3", None),
        (LETTER, b"\4", None),
        (NUMBERS, b"\4\2a\2\2b\4\0", {"a": 1, "b": 2}),
        (NUMBERS, b"\2\2a\2\2\2b\4\0", {"a": 1, "b": 2}),
        (NUMBERS, b"\1\6\2a\2\0", {"a": 1}),
        (NUMBERS, b"\4\2a\2\2a\2\0", None),
        (NUMBERS, b"\2\2a\2\2\2a\4\0", None),
        ({"type": "map", "values": {"type": "array", "items": LETTER}}, b"\2\2a\2\1\0\0", None),
    ],
)
def test_a_value_that_its_type_does_not_have_is_null(kind: Any, data: bytes, value: Any) -> None:
    assert _reading(record(x=kind))(data) == (None if value is None else {"x": value})


def test_types_with_names_are_read_wherever_they_are_used() -> None:
    size = {"type": "fixed", "name": "size", "size": 1}
    inner = {**record(letter=LETTER, sure="boolean"), "name": "inner", "namespace": "a.b"}
    schema = {**record(x=inner, y="a.b.inner", z=["null", "a.b.letter"], s=size, t="size"), "namespace": ""}
    schema["fields"][2]["default"] = None
    row = {"x": {"letter": "a", "sure": True}, "y": {"letter": "b", "sure": False}, "z": "b", "s": b"s", "t": b"t"}
    data = _writing(schema)(row)
    assert _reading(schema)(data) == row
