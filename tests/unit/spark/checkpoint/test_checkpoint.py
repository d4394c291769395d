"""What is read from, and written to, the checkpoint of a query that does not run."""

import json
from pathlib import Path

from tidelock.spark.checkpoint.checkpoint import Checkpoint


def commit(folder: Path, batch: int, watermark: int, after: int) -> None:
    """A batch as Spark 4.3 writes it, up to what is not read."""
    for name in ("offsets", "commits"):
        (folder / name).mkdir(exist_ok=True)
    metadata = {
        "batchWatermarkMs": watermark,
        "batchTimestampMs": 1,
        "conf": {"spark.sql.shuffle.partitions": "7"},
    }
    (folder / "offsets" / str(batch)).write_text(f'v1\n{json.dumps(metadata)}\n{{"logOffset":{batch}}}\n-')
    (folder / "commits" / str(batch)).write_text(f'v1\n{{"nextBatchWatermarkMs":{after}}}')


def test_an_empty_batch_takes_nothing_under_the_next_watermark(tmp_path: Path) -> None:
    checkpoint = Checkpoint(None, str(tmp_path))
    checkpoint.begin_empty_batch()
    assert checkpoint.newest_begun() == -1, "a query that has done nothing has nothing to close"
    assert not checkpoint.watermark_has_moved()
    assert checkpoint.shuffle_partitions() is None

    commit(tmp_path, 0, 0, 0)
    commit(tmp_path, 1, 0, 5000)
    assert checkpoint.watermark_has_moved()
    for _ in range(2):
        checkpoint.begin_empty_batch()
        assert checkpoint.newest_begun() == 2
    assert checkpoint.position() == 1
    assert checkpoint.offsets(2).sources == checkpoint.offsets(1).sources
    assert checkpoint.offsets(2).watermark_ms == 5000
    assert (tmp_path / "offsets" / "2").read_text().splitlines()[2:] == ['{"logOffset":1}', "-"]
    assert checkpoint.shuffle_partitions() == 7

    commit(tmp_path, 2, 5000, 5000)
    assert not checkpoint.watermark_has_moved()


def test_a_batch_that_was_begun_stays_what_it_is(tmp_path: Path) -> None:
    commit(tmp_path, 0, 0, 9)
    commit(tmp_path, 1, 9, 9)
    (tmp_path / "commits" / "1").unlink()
    before = (tmp_path / "offsets" / "1").read_text()
    Checkpoint(None, str(tmp_path)).begin_empty_batch()
    assert (tmp_path / "offsets" / "1").read_text() == before
    assert not (tmp_path / "offsets" / "2").exists()


def test_a_batch_that_spark_has_forgotten_is_committed(tmp_path: Path) -> None:
    """Spark keeps the newest batches only, and the listener's word of an older one may be lost."""
    checkpoint = Checkpoint(None, str(tmp_path))
    assert not checkpoint.is_committed(0)
    for batch in range(10, 14):
        commit(tmp_path, batch, 0, 0)
    (tmp_path / "commits" / "13").unlink()
    assert checkpoint.is_committed(3)
    assert checkpoint.is_committed(12)
    assert not checkpoint.is_committed(13), "it has begun"
