"""Avro schemas as columns: what they become, what cannot be, and what is told then."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tidelock.errors import PipelineError, SchemaMismatch
from tidelock.spark.avro import AvroRecords, _reading, _writing


def record(**fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": "r", "fields": [{"name": n, "type": t} for n, t in fields.items()]}


@pytest.mark.parametrize(
    ("avro", "column"),
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
def test_types(avro: Any, column: str) -> None:
    assert AvroRecords(record(x=avro)).columns.simpleString() == f"struct<x:{column}>"


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
