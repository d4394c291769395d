"""Small logs of numbers: written and read in a line."""

from __future__ import annotations

from typing import Any, BinaryIO

import pyarrow as pa

from tidelock.epochs import Epoch, EpochRange
from tidelock.log import EpochLog, LogWriter, open_store
from tidelock.log.entry import Manifest, Part
from tidelock.log.parts import write_batches
from tidelock.log.repair import put_back

SCHEMA: dict[str, Any] = {
    "type": "struct",
    "fields": [{"name": "n", "type": "long", "nullable": True, "metadata": {}}],
}
"""One column of numbers, as Spark writes schemas."""
ARROW = pa.schema([("n", pa.int64())])
"""The same for Arrow."""


def covers(first: int, last: int | None = None) -> EpochRange:
    """The epochs from ``first`` to ``last``, or ``first`` alone."""
    return EpochRange(Epoch(first), Epoch(first if last is None else last))


def write_part(writer: LogWriter, epochs: EpochRange, numbers: list[int]) -> Part:
    """Write numbers as a part that a manifest for these epochs may name."""
    name = f"{writer.part_prefix(epochs.last)}{numbers[0] if numbers else 'empty'}.arrow"
    batch = pa.RecordBatch.from_pydict({"n": numbers}, schema=ARROW)

    def write(file: BinaryIO) -> Part:
        return write_batches(file, name, ARROW, [batch])

    return open_store(writer.log.url).write_part(name, write)


def publish(writer: LogWriter, epochs: EpochRange, numbers: list[int], query: str = "q") -> bool:
    """Publish numbers as an entry; False if the same work was published before."""
    part = write_part(writer, epochs, numbers)
    manifest = Manifest(writer.log.header.id, epochs, SCHEMA, (part,), query=query, batch=epochs.last)
    return writer.publish(manifest)


def back(log: EpochLog, to: int) -> None:
    """Put a log back to an epoch, as the mending of a home does; who wrote it writes no more."""
    put_back(log.store, log.ranges(), Epoch(to), {})


def rows(log: EpochLog) -> dict[int, list[int]]:
    """The numbers of a log, by the last epochs of their entries."""
    found: dict[int, list[int]] = {}
    for epochs in log.ranges():
        batches = [b for p in log.manifest(epochs).parts for b in log.read_part(epochs, p)]
        found[epochs.last] = [n for batch in batches for n in batch.column("n").to_pylist()]
    return found
