"""Rows go to bytes and come back as they were, and equal rows have equal bytes, whatever their types."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelock.cache.rows import RowCodec

QUICK = settings(max_examples=60, deadline=None)
MOMENTS = st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1))
BYTES = st.one_of(st.binary(max_size=6), st.sampled_from([b"", b"\r\n", b"\0", b"$1\r\n\0\r\n"]))
DOUBLES = st.one_of(st.floats(), st.sampled_from([0.0, -0.0, math.nan, math.inf]))


def integers(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


KINDS: dict[Any, st.SearchStrategy[Any]] = {
    pa.int8(): integers(8),
    pa.int16(): integers(16),
    pa.int32(): integers(32),
    pa.int64(): integers(64),
    pa.uint64(): st.integers(0, 2**64 - 1),
    pa.float32(): st.floats(width=32),
    pa.float64(): DOUBLES,
    pa.bool_(): st.booleans(),
    pa.date32(): st.dates(date(1800, 1, 1), date(2200, 1, 1)),
    pa.timestamp("us"): MOMENTS,
    pa.timestamp("us", "UTC"): MOMENTS.map(lambda t: t.replace(tzinfo=UTC)),
    pa.timestamp("us", "Europe/Berlin"): MOMENTS.map(lambda t: t.replace(tzinfo=UTC)),
    pa.decimal128(38, 9): st.decimals(-(10**20), 10**20, places=9),
    pa.string(): st.one_of(st.text(max_size=5), st.sampled_from(["", "\r\n", "\0", "ß€😀"])),
    pa.binary(): BYTES,
    pa.list_(pa.int64()): st.lists(integers(64), max_size=3),
    pa.list_(pa.int8()): st.lists(integers(8), max_size=3),
    pa.list_(pa.float64()): st.lists(DOUBLES, max_size=3),
}


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    """Up to ten columns, with nulls, in several pieces that start in the middle of their buffers."""
    kinds = draw(st.lists(st.sampled_from(list(KINDS)), min_size=1, max_size=10))
    schema = pa.schema([(f"c{i}", kind) for i, kind in enumerate(kinds)])
    row = st.tuples(*(st.none() | KINDS[kind] for kind in kinds))
    pieces = []
    for rows in draw(st.lists(st.lists(row, max_size=5), max_size=3)):
        columns = [pa.array([r[i] for r in rows], kind) for i, kind in enumerate(kinds)]
        piece = pa.record_batch(columns, schema=schema)
        pieces.append(piece.slice(draw(st.integers(0, len(rows)))))
    return pa.Table.from_batches(pieces, schema)


def plain(value: Any) -> Any:
    """A value such that two are equal exactly if they are the same to SQL: one zero, one NaN."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    if isinstance(value, list):
        return ("list", *map(plain, value))
    return value


def plain_rows(table: pa.Table) -> list[tuple[Any, ...]]:
    columns = [[plain(value) for value in column.to_pylist()] for column in table.columns]
    return list(zip(*columns, strict=True))


@QUICK
@given(tables())
def test_rows_come_back_as_they_were(table: pa.Table) -> None:
    codec = RowCodec(table.schema, "the rows")
    encoded = codec.encode(table)
    assert len(encoded) == table.num_rows
    back = codec.decode(encoded)
    back.validate(full=True)
    assert back.schema == table.schema
    assert plain_rows(back) == plain_rows(table)


@QUICK
@given(tables(), st.data())
def test_rows_are_equal_exactly_if_their_bytes_are(table: pa.Table, data: st.DataObject) -> None:
    places = st.lists(st.integers(0, max(0, table.num_rows - 1)), max_size=8 if table.num_rows else 0)
    mixed = pa.concat_tables([table, table.take(pa.array(data.draw(places), pa.int64()))])
    encoded = RowCodec(table.schema, "the rows").encode(mixed).to_pylist()
    rows = plain_rows(mixed)
    for one, its_bytes in zip(rows, encoded, strict=True):
        for other, other_bytes in zip(rows, encoded, strict=True):
            assert (one == other) == (its_bytes == other_bytes)


@QUICK
@given(tables(), st.data())
def test_pieces_and_gaps_of_stored_rows_are_read(table: pa.Table, data: st.DataObject) -> None:
    codec = RowCodec(table.schema, "the rows")
    stored = codec.encode(table).to_pylist()
    there = data.draw(st.lists(st.booleans(), min_size=len(stored), max_size=len(stored)))
    first = data.draw(st.integers(0, len(stored)))
    given_rows = [row if is_there else None for row, is_there in zip(stored, there, strict=True)]
    back = codec.decode(pa.array(given_rows, pa.binary()).slice(first))
    nothing = (None,) * len(table.schema)
    expected = [row if is_there else nothing for row, is_there in zip(plain_rows(table), there, strict=True)]
    assert plain_rows(back) == expected[first:]


def test_decimals_keep_their_digits() -> None:
    rows = pa.table({"d": pa.array([Decimal("-0.000000001"), None, Decimal("9" * 29)], pa.decimal128(38, 9))})
    codec = RowCodec(rows.schema, "the rows")
    assert codec.decode(codec.encode(rows)).equals(rows)
