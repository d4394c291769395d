"""Playing the segments of a pipeline by hand, one after the other, to see how long each of them takes.

Nobody supervises and nothing competes: a segment has the machine for itself, so what Spark says about its batches
is about that segment. Only the segments of a loop have to run together.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, replace

from tidelock.epochs import Epoch
from tidelock.errors import BatchFailed
from tidelock.home.home import Home
from tidelock.pipeline.declaration import Declaration
from tidelock.preparing.preparation import PlanLike, Prepared, prepare, settle
from tidelock.running.gates import SegmentGate
from tidelock.spark.checkpoint.checkpoint import Checkpoint
from tidelock.spark.frames import SparkSession, StreamingQuery
from tidelock.spark.query.listening import BatchProgress, recent
from tidelock.spark.stories.stories import Storyteller

_LOOK_EVERY = 0.02
_PATIENCE = 300.0
_AFTERWARDS = 0.2
"""Spark speaks of a batch a little after it is committed."""
_AT_ONCE = {"processingTime": "0 seconds"}


@dataclass(frozen=True)
class Played:
    """What was seen of a segment: its batches, and how long the first one took from the start of the query on."""

    batches: list[BatchProgress]
    first_commit: float


class Stage:
    """The segments of a pipeline in a home of their own. Use a `Pipeline.rehearsal`: sinks are really called."""

    def __init__(self, pipeline: Declaration, spark: SparkSession, home: Home, plan: PlanLike) -> None:
        self.prepared: Prepared = prepare(pipeline, spark, plan)
        self.home = home
        self._segments = settle(self.prepared, home, spark, asked=True)
        self._stories = Storyteller(pipeline.functions)

    def position(self, segment: str) -> Epoch:
        """The newest epoch that a segment has committed."""
        return Checkpoint(None, self.home.checkpoint(segment)).position()

    def play(self, names: Iterable[str], last: int, *, at_once: int = 1) -> dict[str, Played]:
        """Run these segments together until each of them has committed epoch ``last``.

        ``at_once`` is the number of epochs in a batch; heads always take one.

        Raises:
            BatchFailed: one of them fails; the message has the story.
        """
        running: dict[str, tuple[SegmentGate, StreamingQuery, float]] = {}
        first: dict[str, float] = {}
        try:
            for name in names:
                running[name] = self._start(name, last, at_once)
            begun = {name: self.position(name) for name in running}
            deadline = time.monotonic() + _PATIENCE
            while any(self.position(name) < last for name in running):
                for name, (gate, query, at) in running.items():
                    self._check(name, gate, query)
                    if name not in first and self.position(name) > begun[name]:
                        first[name] = time.monotonic() - at
                if time.monotonic() > deadline:
                    raise BatchFailed(f"{self._where(running, last)} within {_PATIENCE:.0f} s: is there input?")
                time.sleep(_LOOK_EVERY)
            return {
                name: Played(_batches(query), first.get(name, time.monotonic() - at))
                for name, (_, query, at) in running.items()
            }
        finally:
            for gate, query, _ in running.values():
                gate.close()
                query.stop()

    def _start(self, name: str, last: int, at_once: int) -> tuple[SegmentGate, StreamingQuery, float]:
        segment = replace(self.prepared.cutting.segment(name), epochs_per_batch=at_once)
        gate = SegmentGate(lambda: True, Epoch(last))
        at = time.monotonic()
        query = self._segments.start(segment, gate, None if segment.is_head else _AT_ONCE)
        return gate, query, at

    def _check(self, name: str, gate: SegmentGate, query: StreamingQuery) -> None:
        failure = gate.failed[1] if gate.failed else None if query.isActive else query.exception()
        if failure is not None:
            operators = self.prepared.cutting.segment(name).operators
            raise BatchFailed(f"segment {name} fails: {self._stories.tell(failure, operators)}")

    def _where(self, running: Iterable[str], last: int) -> str:
        behind = [name for name in running if self.position(name) < last]
        return f"{', '.join(behind)} did not get to epoch {last}"


def _batches(query: StreamingQuery) -> list[BatchProgress]:
    time.sleep(_AFTERWARDS)
    return recent(query)
