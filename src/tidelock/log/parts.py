"""Parts: the rows of an entry, as Arrow IPC files. Written by executors, read by executors.

A part is written once under a name that no other attempt uses, so nothing needs to be locked: an attempt that
dies leaves a file that no manifest names. Reading verifies the checksum before Arrow sees a byte, and Arrow
IPC holds data only: nothing is ever unpickled.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from typing import BinaryIO

import pyarrow as pa

from tidelock.errors import LogCorrupt
from tidelock.log.entry import Part

PART_BYTES = 32 * 1024 * 1024
"""Where a writer starts a new part: small enough that a reader can spread one epoch over its cores."""


class ChecksummedFile:
    """A write-only file for Arrow that knows the size and the CRC-32 of what went through it."""

    def __init__(self, target: BinaryIO) -> None:
        self._target = target
        self.bytes = 0
        self.crc32 = 0
        self.closed = False

    def write(self, data: bytes) -> int:
        """Write all of ``data``."""
        self.crc32 = zlib.crc32(data, self.crc32)
        self.bytes += len(data)
        self._target.write(data)
        return len(data)

    def flush(self) -> None:
        """Nothing to do: the store makes the target durable when the part is complete."""

    def close(self) -> None:
        """Leave the target open: it belongs to the store."""
        self.closed = True


def write_batches(target: BinaryIO, name: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Part:
    """Write ``batches`` to ``target`` as one Arrow IPC file and describe it."""
    file, rows = ChecksummedFile(target), 0
    with pa.ipc.new_file(pa.PythonFile(file, mode="w"), schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
            rows += batch.num_rows
    return Part(name, rows, file.bytes, file.crc32)


def read_batches(data: pa.Buffer, part: Part, where: str) -> Iterator[pa.RecordBatch]:
    """The record batches of a part, after its size and checksum were verified.

    Raises:
        LogCorrupt: the bytes are not those that were published.
    """
    if data.size != part.bytes:
        raise LogCorrupt(f"{where} has {data.size} bytes, not the {part.bytes} that were published")
    if zlib.crc32(data) != part.crc32:
        raise LogCorrupt(f"{where} is damaged (its checksum does not match)")
    reader = pa.ipc.open_file(data)
    for number in range(reader.num_record_batches):
        yield reader.get_batch(number)
