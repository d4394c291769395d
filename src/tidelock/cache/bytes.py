"""Many small byte strings at once: pieces of one buffer, cut out and put together without a loop over them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidelock.errors import PipelineError

_MOST = np.iinfo(np.int32).max
"""What Arrow's offsets can tell."""

Numbers = npt.NDArray[np.int64]
Octets = npt.NDArray[np.uint8]


def content(array: pa.BinaryArray) -> tuple[Octets, Numbers, Numbers]:
    """The buffer of ``array``, and where each of its strings starts and how long it is; nulls are empty."""
    offsets = np.frombuffer(array.buffers()[1], np.int32)[array.offset : array.offset + len(array) + 1]
    data = array.buffers()[2]
    octets = np.frombuffer(data, np.uint8) if data is not None and data.size else np.empty(0, np.uint8)
    starts = offsets[:-1].astype(np.int64)
    return octets, starts, np.diff(offsets).astype(np.int64)


def cut(data: Octets, starts: Numbers, lengths: Numbers, kind: Any = None) -> pa.Array:
    """The strings of these lengths that start there, as an Arrow array of binary (or of ``kind``)."""
    if len(lengths) and (lengths == lengths[0]).all():
        return strings(table(data, starts, int(lengths[0])), kind)
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    if total > _MOST:
        raise PipelineError(
            f"one task has {total} bytes of state in one epoch, and {_MOST} are the most: use more partitions "
            "(spark.sql.shuffle.partitions) or shorter epochs"
        )
    places = np.repeat(starts - (ends - lengths), lengths) + np.arange(total)
    offsets = np.concatenate([[0], ends]).astype(np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data[places])]
    return pa.Array.from_buffers(kind or pa.binary(), len(lengths), buffers)


def table(data: Octets, starts: Numbers, width: int) -> Octets:
    """The ``width`` bytes from each start, one row each."""
    if not width or not len(starts):
        return np.empty((len(starts), width), np.uint8)
    # Whole rows out of all possible ones: several times faster than byte by byte.
    rows: Octets = np.lib.stride_tricks.sliding_window_view(data, width)[starts]
    return rows


def strings(rows: Octets, kind: Any = None) -> pa.BinaryArray:
    """The rows of a matrix of bytes, as an Arrow array of binary (or of ``kind``)."""
    count, width = rows.shape
    offsets = (np.arange(count + 1) * width).astype(np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(rows))]
    return pa.Array.from_buffers(kind or pa.binary(), count, buffers)


def bitmap(flags: npt.NDArray[np.bool_]) -> pa.Buffer | None:
    """Arrow's validity bitmap; None if everything is valid."""
    return None if flags.all() else pa.py_buffer(np.packbits(flags, bitorder="little"))


def whole(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """A column in one piece that starts at its buffers' beginning."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if isinstance(column, pa.ChunkedArray):  # nothing to combine
        column = pa.array([], column.type)
    return column if not column.offset else pa.concat_arrays([column])
