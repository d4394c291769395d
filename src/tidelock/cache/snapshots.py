"""Snapshots of cached state: durable copies, each of one epoch, kept as entries of an epoch log.

A snapshot of epoch *e* is an entry that ends at *e*. It is taken bucket by bucket while later epochs go on: the
store keeps what they would overwrite (`Fence.pinned`). The newest one is kept, the others go. Together with the
logs that the operator reads it is DCAS's S = {offset, states} (section 4.1): load the states, and take the
epochs behind *e* again.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import pyarrow as pa

from tidelock.cache.cells import Cells, Versions, single
from tidelock.cache.fence import Fence
from tidelock.cache.operator import StateShape, ended
from tidelock.cache.store import BUCKETS, Bucket, CellStore, Keys
from tidelock.epochs import Epoch, EpochRange
from tidelock.log import EpochLog, Retention
from tidelock.log.entry import Manifest, Part
from tidelock.log.parts import write_batches

_SCHEMA = pa.schema([("bucket", pa.int32()), ("epoch", pa.int64()), ("key", pa.binary()), ("value", pa.binary())])
_DESCRIBED = {
    "type": "struct",
    "fields": [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in (("bucket", "integer"), ("epoch", "long"), ("key", "binary"), ("value", "binary"))
    ],
}
_BUCKETS_PER_PART = 32


class Snapshots:
    """The snapshots of one operator. Any thread may look at them; they are taken and loaded by one at a time."""

    def __init__(self, url: str) -> None:
        self._log = EpochLog.create(url, _DESCRIBED, retention=Retention(epochs=0))

    def epochs(self) -> list[Epoch]:
        """The epochs of which there are snapshots, oldest first."""
        return [covers.last for covers in self._log.ranges()]

    def take(self, store: CellStore, shape: StateShape, epoch: Epoch, fence: Fence, server: str) -> int:
        """Copy the state at the end of ``epoch``, which ``fence`` pins on ``server``; returns its number of keys.

        State that has ended by the watermark of the fence is left out, and its cells are removed. Durable. The
        server may restart at any time, also empty, so a snapshot counts only if it has not.

        Raises:
            Fenced: a newer run has taken over.
            BackendUnavailable: the cache or the log does not work; the snapshots are as they were.
        """
        writer = self._log.take_over(f"the snapshot of epoch {epoch}")
        before = writer.window.tail
        prefix = writer.part_prefix(epoch)
        parts = []
        for first in range(0, BUCKETS, _BUCKETS_PER_PART):
            batches = self._read(store, shape, range(first, first + _BUCKETS_PER_PART), epoch, fence.watermark)
            parts.append(self._write(prefix, batches))
        manifest = Manifest(
            log=self._log.header.id,
            covers=EpochRange.after(before, epoch),
            schema=self._log.header.schema,
            parts=tuple(parts),
            query=uuid.uuid4().hex,
            batch=epoch,
        )
        store.check_pinned(fence, server)
        writer.publish(manifest)
        writer.truncate()
        return manifest.rows

    def _write(self, prefix: str, batches: Iterator[pa.RecordBatch]) -> Part:
        name = f"{prefix}{uuid.uuid4().hex}.arrow"
        write = partial(write_batches, name=name, schema=_SCHEMA, batches=batches)
        return self._log.store.write_part(name, write)

    @staticmethod
    def _read(
        store: CellStore, shape: StateShape, buckets: range, epoch: Epoch, watermark_ms: int
    ) -> Iterator[pa.RecordBatch]:
        for bucket in buckets:
            cells, saved = store.bucket(bucket)
            _sweep(store, bucket, cells, shape, epoch, watermark_ms)
            fields, versions = _at(cells, saved, epoch)
            kept = np.flatnonzero(~ended(shape, versions.values, watermark_ms))
            places = pa.array(kept)
            yield pa.record_batch(
                [
                    pa.array(np.full(len(kept), bucket, np.int32)),
                    pa.array(versions.epochs[kept]),
                    fields.take(places),
                    versions.values.take(places),
                ],
                schema=_SCHEMA,
            )

    # -- reading

    def read(self, epoch: Epoch) -> Iterator[tuple[Keys, Versions]]:
        """The snapshot of ``epoch``, in pieces.

        Raises:
            LogCorrupt: it is damaged.
        """
        covers = next(covers for covers in self._log.ranges() if covers.last == epoch)
        for part in self._log.manifest(covers).parts:
            for batch in self._log.read_part(covers, part):
                buckets = batch.column("bucket").to_numpy(zero_copy_only=False).astype(np.int64)
                epochs = batch.column("epoch").to_numpy(zero_copy_only=False)
                yield Keys(batch.column("key"), buckets), Versions(epochs, batch.column("value"))

    def load(self, epoch: Epoch, store: CellStore, header: bytes, check: Callable[[], None] = lambda: None) -> int:
        """Make the cache what it was at ``epoch``; returns how many keys that are.

        Whatever the cache held is gone. If this is interrupted, as by what ``check`` raises before each step, the
        cache has no state and it is done again.

        Raises:
            LogCorrupt: the snapshot is damaged.
            BackendUnavailable: the cache does not work.
        """
        store.clear()
        count = 0
        for keys, versions in self.read(epoch):
            check()
            store.load(keys, single(versions))
            count += len(versions.values)
        check()
        store.create(header, epoch)
        return count


def _sweep(
    store: CellStore, bucket: int, cells: Bucket, shape: StateShape, epoch: Epoch, watermark_ms: int
) -> None:
    """Remove the cells whose newest version has ended and cannot be written again by a batch that is run again."""
    newest = Cells(cells.cells).newest()
    over = np.flatnonzero(ended(shape, newest.values, watermark_ms) & (newest.epochs <= epoch))
    places = pa.array(over)
    store.drop(bucket, cells.fields.take(places), cells.cells.take(places))


def _at(cells: Bucket, saved: Bucket, epoch: Epoch) -> tuple[pa.BinaryArray, Versions]:
    """The versions of a bucket at the end of ``epoch``."""
    versions, lost = Cells(cells.cells).at(epoch)
    left = np.flatnonzero(~lost)
    kept = Cells(saved.cells).newest()
    fields = pa.concat_arrays([cells.fields.take(pa.array(left)), saved.fields])
    values = pa.concat_arrays([versions.values.take(pa.array(left)), kept.values])
    return fields, Versions(np.concatenate([versions.epochs[left], kept.epochs]), values)
