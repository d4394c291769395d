"""A log as a query would have written it, without Spark."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from tidelock import EpochLog
from tidelock.epochs import Epoch, EpochRange
from tidelock.log import LogWriter
from tidelock.log.entry import Manifest, Part, Watermark
from tidelock.log.parts import write_batches
from tidelock.log.window import InputRange

COLUMNS = {
    "type": "struct",
    "fields": [
        {"name": "word", "type": "string", "nullable": True, "metadata": {}},
        {"name": "count", "type": "long", "nullable": True, "metadata": {}},
    ],
}


def publish(writer: LogWriter, epoch: int, rows: int) -> None:
    """Publish one epoch with ``rows`` rows, made from the same epoch of a log called `tweets`."""
    covers = EpochRange.single(Epoch(epoch))
    writer.publish(
        Manifest(
            log=writer.log.header.id,
            covers=covers,
            schema=COLUMNS,
            parts=(_part(writer, epoch, rows),),
            inputs=(InputRange("f" * 32, "tweets", covers),),
            watermark=Watermark(0, epoch * 60_000, {"at": 0}),
            query="query",
            batch=epoch,
        )
    )


def _part(writer: LogWriter, epoch: int, rows: int) -> Part:
    batch = pa.RecordBatch.from_pydict(
        {"word": [f"word {n}" for n in range(rows)], "count": pa.array(range(rows), pa.int64())}
    )
    name = f"{writer.part_prefix(Epoch(epoch))}x.arrow"
    return writer.log.store.write_part(name, lambda file: write_batches(file, name, batch.schema, [batch]))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the log is."""
    return tmp_path / "words"


@pytest.fixture
def writer(folder: Path) -> LogWriter:
    """The writer of an empty log."""
    return EpochLog.create(f"file:{folder}", COLUMNS).take_over("run 1", clock=lambda: 1_700_000_000.0)


@pytest.fixture
def log(writer: LogWriter) -> EpochLog:
    """A log with the epochs 0 to 4, of 10 to 14 rows, and a consumer that has finished epoch 2."""
    for epoch in range(5):
        publish(writer, epoch, rows=10 + epoch)
    writer.log.move_cursor("counts", Epoch(2))
    return writer.log


@pytest.fixture
def publish_epoch(writer: LogWriter) -> Callable[[int], None]:
    """Publish one more epoch, with one row."""
    return lambda epoch: publish(writer, epoch, rows=1)
