"""Which columns can be kept in a cache, and how it is told that one cannot."""

from __future__ import annotations

import math
import struct
from typing import Any

import pyarrow as pa
import pytest

from tidelock.cache.rows import RowCodec
from tidelock.errors import SchemaMismatch


def encoded(values: list[Any], kind: Any) -> list[bytes]:
    table = pa.table({"v": pa.array(values, kind)})
    found: list[bytes] = RowCodec(table.schema, "the rows").encode(table).to_pylist()
    return found


@pytest.mark.parametrize(
    "kind",
    [
        pa.struct([("a", pa.int64())]),
        pa.map_(pa.string(), pa.int64()),
        pa.list_(pa.string()),
        pa.list_(pa.bool_()),
        pa.list_(pa.list_(pa.int64())),
        pa.large_string(),
        pa.null(),
        pa.float16(),
        pa.duration("us"),
        pa.time64("us"),
    ],
    ids=str,
)
def test_a_type_that_cannot_be_kept_is_refused_by_name(kind: Any) -> None:
    with pytest.raises(SchemaMismatch, match=r"the state: total has the type .* cannot be kept in a cache: use"):
        RowCodec(pa.schema([("k", pa.int64()), ("total", kind)]), "the state")


def test_the_bytes_of_a_row_are_as_described() -> None:
    schema = pa.schema([("n", pa.int64()), ("s", pa.string()), ("b", pa.bool_())])
    rows = pa.table([[7, None], ["ab", None], [True, None]], schema=schema)
    assert RowCodec(schema, "the rows").encode(rows).to_pylist() == [
        struct.pack("<BqIB", 0, 7, 2, 1) + b"ab",
        struct.pack("<BqIB", 0b111, 0, 0, 0),
    ]


def test_nulls_of_many_columns_have_their_bits() -> None:
    schema = pa.schema([(f"c{i}", pa.int8()) for i in range(17)])
    for null in range(17):
        row = {f"c{i}": [None if i == null else i] for i in range(17)}
        table = pa.table(row, schema=schema)
        codec = RowCodec(schema, "the rows")
        (row_bytes,) = codec.encode(table).to_pylist()
        assert int.from_bytes(row_bytes[:3], "little") == 1 << null
        assert codec.decode(pa.array([row_bytes])).equals(table)


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
def test_there_is_one_zero_and_one_nan(kind: Any) -> None:
    (other_nan,) = struct.unpack("<d", b"\x01\0\0\0\0\0\xf8\xff")
    zero, minus_zero, nan, another = encoded([0.0, -0.0, math.nan, other_nan], kind)
    assert (zero, nan) == (minus_zero, another)
    assert zero != nan
    zero, minus_zero = encoded([[0.0, math.nan], [-0.0, other_nan]], pa.list_(kind))
    assert zero == minus_zero


def test_a_null_is_neither_empty_nor_zero() -> None:
    for kind, nothing in ((pa.string(), ""), (pa.binary(), b""), (pa.list_(pa.int64()), []), (pa.int64(), 0)):
        null, empty = encoded([None, nothing], kind)
        assert null != empty


def test_a_null_inside_of_a_list_is_refused() -> None:
    with pytest.raises(SchemaMismatch, match="the rows: v has a list with a null in it"):
        encoded([[1], [2, None]], pa.list_(pa.int64()))
