"""What a sink does with batches that are done again."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import pytest
from tests.unit.backup.backup_job import Job

from tidelock.epochs import BEFORE_FIRST, Epoch
from tidelock.home.home import Home
from tidelock.spark.checkpoint.replay import Replay
from tidelock.spark.query.batches import OpenGate, Work
from tidelock.spark.sinks.sink import DeliverySink, Sink


@pytest.mark.parametrize(("delivered", "expected"), [(BEFORE_FIRST, [1, 2, 3]), (Epoch(2), [3])])
def test_what_was_delivered_of_the_same_input_is_only_computed(
    tmp_path: Path, delivered: Epoch, expected: list[int]
) -> None:
    job = Job(Home(tmp_path / "home"))
    job.run_to(3)
    epochs: list[int] = []

    class Keeping(Sink):
        keeps_rows = False

        def deliver(self, rows: object, work: Work) -> None:
            epochs.append(work.covers.last)

    replay = Replay(Epoch(0), 0, (Epoch(1), Epoch(2)), delivered)
    checkpoint = job.home.checkpoint("report")
    sink = DeliverySink(mock.Mock(), "report", Keeping(), checkpoint, OpenGate(), replay)
    rows = {batch: mock.MagicMock() for batch in (1, 2, 3)}
    for batch, some in rows.items():
        sink(some, batch)
    assert epochs == expected
    computed = [batch for batch, some in rows.items() if some.write.format.called]
    assert computed == [batch for batch in rows if batch not in expected], "Spark gets its state all the same"
