"""Rows as byte strings and back, column by column: how keys and values stand in a cache. Pure but for arrays.

A row is a part of fixed length, then the strings. The fixed part begins with one bit per column that is null; then
every column has its bytes (zeros where it is null) or, if it is a string, its length in four bytes. Equal rows
have equal bytes, so that a row can be a key.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelock.cache.bytes import Numbers, Octets, bitmap, content, cut, strings, table, whole
from tidelock.errors import SchemaMismatch

_LENGTH = 4
_BYTE = pa.uint8()


@dataclass(frozen=True)
class _Column:
    name: str
    kind: Any
    """The Arrow type."""
    width: int
    """Its bytes in the fixed part."""
    place: int
    """Where they begin."""
    is_string: bool


class RowCodec:
    """Rows of one schema as byte strings.

    Raises:
        SchemaMismatch: a column has a type that cannot be kept; the message names it.
    """

    def __init__(self, schema: pa.Schema, what: str) -> None:
        self.schema = schema
        self._what = what
        self._nulls = (len(schema) + 7) // 8
        self._columns: list[_Column] = []
        place = self._nulls
        for field in schema:
            width, is_string = _width(field, what)
            self._columns.append(_Column(field.name, field.type, width, place, is_string))
            place += width
        self.fixed = place

    # -- to bytes

    def encode(self, rows: pa.Table | pa.RecordBatch) -> pa.BinaryArray:
        """One byte string for each row; the columns are taken by name.

        Raises:
            SchemaMismatch: a list has a null in it.
        """
        count = rows.num_rows
        fixed = np.zeros((count, self.fixed), np.uint8)
        tails = []
        for number, column in enumerate(self._columns):
            values = whole(rows.column(column.name))
            there = _there(values)
            fixed[:, number // 8] |= (~there).astype(np.uint8) << (number % 8)
            part = slice(column.place, column.place + column.width)
            if column.is_string:
                tail = _binary(values, f"{self._what}: {column.name}")
                tails.append(tail)
                fixed[:, part] = content(tail)[2].astype("<u4").view(np.uint8).reshape(count, _LENGTH)
            else:
                fixed[:, part] = np.where(there[:, None], _octets(values), 0)
        if not tails:
            return strings(fixed)
        return pc.binary_join_element_wise(strings(fixed), *tails, pa.scalar(b""))

    # -- and back

    def decode(self, rows: pa.BinaryArray) -> pa.Table:
        """The columns of what `encode` made; a null is a row of nulls."""
        data, starts, lengths = content(rows)
        given = lengths > 0  # a row has at least the byte for its nulls
        fixed = np.zeros((len(rows), self.fixed), np.uint8)
        fixed[given] = table(data, starts[given], self.fixed)
        after = starts + self.fixed
        columns = []
        for number, column in enumerate(self._columns):
            there = given & ((fixed[:, number // 8] >> (number % 8)) & 1 == 0)
            part = np.ascontiguousarray(fixed[:, column.place : column.place + column.width])
            if column.is_string:
                sizes = part.view("<u4").reshape(-1).astype(np.int64)
                columns.append(_string_column(column.kind, data, after, sizes, there))
                after = after + sizes
            else:
                columns.append(_fixed_column(column.kind, part, there))
        return pa.Table.from_arrays(columns, schema=self.schema)


def _width(field: pa.Field, what: str) -> tuple[int, bool]:
    kind = field.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return _LENGTH, True
    if pa.types.is_list(kind) and _is_number(kind.value_type):
        return _LENGTH, True
    if pa.types.is_boolean(kind):
        return 1, False
    if _is_number(kind) or pa.types.is_decimal128(kind) or pa.types.is_date32(kind) or pa.types.is_timestamp(kind):
        return kind.bit_width // 8, False
    raise SchemaMismatch(
        f"{what}: {field.name} has the type {kind}, which cannot be kept in a cache: use numbers, decimals, "
        "booleans, dates, timestamps, strings, binary or lists of numbers"
    )


def _is_number(kind: Any) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_float32(kind) or pa.types.is_float64(kind))


def _there(values: pa.Array) -> Any:
    if not values.null_count:
        return np.ones(len(values), np.bool_)
    return pc.is_valid(values).to_numpy(zero_copy_only=False)


def _octets(values: pa.Array) -> Octets:
    """The bytes of each value, as a row; equal numbers have equal bytes: -0.0 is 0.0, and there is one NaN."""
    width = _BYTE.byte_width if pa.types.is_boolean(values.type) else values.type.byte_width
    if not len(values):
        return np.empty((0, width), np.uint8)
    if pa.types.is_floating(values.type):
        numbers = values.to_numpy(zero_copy_only=False) + 0.0
        numbers = np.where(np.isnan(numbers), np.nan, numbers).astype(values.type.to_pandas_dtype())
        return numbers.view(np.uint8).reshape(-1, width)
    data = (values.cast(_BYTE) if pa.types.is_boolean(values.type) else values).buffers()[1]
    return np.frombuffer(data, np.uint8, len(values) * width).reshape(-1, width)


def _binary(values: pa.Array, where: str) -> pa.BinaryArray:
    """Strings as binary; a list of numbers as the bytes of its numbers."""
    if not pa.types.is_list(values.type):
        return pc.fill_null(values.cast(pa.binary()), b"")
    numbers = whole(pc.list_flatten(values))
    if numbers.null_count:
        raise SchemaMismatch(f"{where} has a list with a null in it, which a cache cannot keep: leave it out")
    octets = _octets(numbers)
    counts = pc.fill_null(pc.list_value_length(values), 0).to_numpy(zero_copy_only=False)
    lengths = counts.astype(np.int64) * octets.shape[1]
    return cut(octets.reshape(-1), np.cumsum(lengths) - lengths, lengths)


def _fixed_column(kind: Any, octets: Octets, there: Any) -> pa.Array:
    if pa.types.is_boolean(kind):
        return pa.array(octets[:, 0].astype(np.bool_), mask=~there)
    return pa.Array.from_buffers(kind, len(octets), [bitmap(there), pa.py_buffer(octets)])


def _string_column(kind: Any, data: Octets, starts: Numbers, sizes: Numbers, there: Any) -> pa.Array:
    plain = cut(data, starts, sizes)
    if pa.types.is_list(kind):
        width = kind.value_type.bit_width // 8
        _, offsets, octets = plain.buffers()
        numbers = pa.Array.from_buffers(kind.value_type, int(sizes.sum()) // width, [None, octets])
        places = (np.frombuffer(offsets, np.int32, len(sizes) + 1) // width).astype(np.int32)
        return pa.Array.from_buffers(kind, len(sizes), [bitmap(there), pa.py_buffer(places)], children=[numbers])
    return pa.Array.from_buffers(kind, len(sizes), [bitmap(there), *plain.buffers()[1:]])
