"""Putting the checkpoint of one segment back to an earlier epoch."""

from __future__ import annotations

from tidelock.epochs import Epoch
from tidelock.runtime.home import Home
from tidelock.spark.checkpoint import Checkpoint


def roll_back(home: Home, segment: str, epoch: Epoch) -> None:
    """Forget what ``segment`` has committed after ``epoch``."""
    checkpoint = Checkpoint(None, home.checkpoint(segment))
    batch = next((batch for batch, last in checkpoint.committed().items() if last == epoch), None)
    checkpoint.roll_back(batch)
