"""What the tests of jobs that share epochs share: subjects whose every epoch a test publishes itself."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
from pyspark.sql import DataFrame
from tests.waiting import eventually

import tidelock
from tidelock.alignment.directory import Directory, Subject
from tidelock.alignment.leading import Leader
from tidelock.alignment.machine import Source
from tidelock.coordination import open_tree
from tidelock.epochs import Epoch, EpochRange
from tidelock.log import EpochLog
from tidelock.log.entry import Manifest, Part
from tidelock.log.parts import write_batches

COLUMNS = {"type": "struct", "fields": [{"name": "n", "type": "long", "nullable": True, "metadata": {}}]}
ARROW = pa.schema([("n", pa.int64())])


class HandMade:
    """A subject whose producer is the test."""

    def __init__(self, folder: Path, name: str, coordinator: str) -> None:
        self.name = name
        self.log = EpochLog.create(f"file:{folder}/{name}", COLUMNS, retention=tidelock.Retention(epochs=1000))
        self._writer = self.log.take_over("the test")
        self.published: list[list[int]] = []
        with open_tree(coordinator) as tree:
            subject = Subject(name, self.log.url, COLUMNS, shared=False)
            Directory(tree).publish(subject, f"maker-of-{name}", self.log.url)

    def publish(self, *epochs: Sequence[int]) -> None:
        """Publish these epochs, each with these numbers."""
        for numbers in epochs:
            covers = EpochRange.single(Epoch(len(self.published)))
            part = self._part(covers.last, numbers)
            manifest = Manifest(self.log.header.id, covers, COLUMNS, (part,), query="test", batch=covers.last)
            assert self._writer.publish(manifest)
            self.published.append(list(numbers))

    def put_back(self, epoch: int) -> None:
        """Forget what was published behind an epoch, as a store that comes back with older data does."""
        self.log.store.unpublish(
            self.log.store.take_over("the test"), [r for r in reversed(self.log.ranges()) if r.last > epoch]
        )
        self.log.tell_recalls([*self.log.recalls(), Epoch(epoch)])
        self._writer = self.log.take_over("the test")
        del self.published[epoch + 1 :]

    def _part(self, epoch: Epoch, numbers: Sequence[int]) -> Part:
        name = f"{self._writer.part_prefix(epoch)}x.arrow"
        batch = pa.RecordBatch.from_pydict({"n": list(numbers)}, schema=ARROW)

        def write(file: BinaryIO) -> Part:
            return write_batches(file, name, ARROW, [batch])

        return self.log.store.write_part(name, write)


class Deliveries:
    """What a sink was given: rows by epoch, in the order of their coming."""

    def __init__(self) -> None:
        self.epochs: dict[int, list[Any]] = {}

    def attach(self, pipeline: tidelock.Pipeline, node: str) -> Deliveries:
        from tests.integration.pipelines import named

        def keep(epoch: int, **rows: DataFrame) -> None:
            self.epochs[epoch] = sorted(tuple(row) for row in rows[node].collect())

        keep.__name__ = f"keep_{node}"
        pipeline.sink(named(keep, node, "epoch"))
        return self

    def rows(self) -> list[Any]:
        """All rows so far, sorted."""
        return sorted(row for some in list(self.epochs.values()) for row in some)

    def wait_for(self, rows: int) -> None:
        eventually(lambda: len(self.rows()) >= rows, f"{rows} rows are delivered")


def align(coordinator: str, job: str, *subjects: str) -> Source:
    with open_tree(coordinator) as tree:
        return Leader(Directory(tree), job).align(subjects, 60)


def abort(coordinator: str, job: str) -> Source:
    with open_tree(coordinator) as tree:
        return Leader(Directory(tree), job).abort(60)
