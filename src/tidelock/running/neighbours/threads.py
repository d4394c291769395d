"""The threads of a run that deal with other jobs: none, for a pipeline that neither follows nor publishes."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Protocol

from tidelock.epochs import Epoch
from tidelock.errands import all_end
from tidelock.errors import BackendUnavailable
from tidelock.home.events import Events
from tidelock.home.home import Home
from tidelock.intervals import interval_seconds
from tidelock.pipeline.declaration import Declaration
from tidelock.pipeline.subscriptions import default_coordinator
from tidelock.running.neighbours.aligning import Aligner, Neighbours
from tidelock.running.neighbours.sharing import SharedSubject
from tidelock.spark.segments.segment_queries import SegmentQueries


class _Speaker(Protocol):
    def run(self) -> None:
        """Go on until `end` is called."""

    def end(self) -> None:
        """Let `run` return."""


class NeighbourThreads:
    """What speaks for a run, and combines the subjects that it shares."""

    def __init__(self, aligner: Aligner | None, shared: Sequence[SharedSubject]) -> None:
        self._aligner = aligner
        self._speakers: list[_Speaker] = [*([aligner] if aligner else []), *shared]
        self._threads = [
            threading.Thread(target=speaker.run, name="tidelock talking", daemon=True)
            for speaker in self._speakers
        ]

    @classmethod
    def of(
        cls, pipeline: Declaration, segments: SegmentQueries, home: Home, events: Events, last_epoch: Epoch | None
    ) -> NeighbourThreads:
        """Make the job known to others, if it has to do with any.

        Raises:
            PipelineError: its name or a subject is taken, or jobs would follow each other in a cycle.
            BackendUnavailable: the shared tree does not answer, and the job cannot do without it.
        """
        neighbours = Neighbours.of(pipeline, segments, home)
        if neighbours is None:
            return cls(None, ())
        aligner = Aligner(
            neighbours,
            home,
            events,
            interval=interval_seconds(pipeline.epoch),
            patience=pipeline.run_settings.alignment_patience,
            last_epoch=last_epoch,
        )
        try:
            aligner.register()
        except BackendUnavailable:
            if home.coordinator is not None:
                raise
        coordinator = home.coordinator or default_coordinator()
        shared = [
            SharedSubject(
                neighbours.publishes[known.subject][0],
                pipeline.name,
                coordinator,
                pipeline.run_settings.alignment_patience,
                events,
                producers=known.producers,
            )
            for known in pipeline.published.values()
            if known.shared is not None
        ]
        return cls(aligner, shared)

    def start(self) -> None:
        """Begin."""
        for thread in self._threads:
            thread.start()

    def closing(self) -> None:
        """The job is about to stop."""
        if self._aligner is not None:
            self._aligner.closing()

    def close(self) -> None:
        """Leave the shared tree, also if nothing was ever started. Idempotent."""
        if self._aligner is not None and not any(thread.is_alive() for thread in self._threads):
            self._aligner.close()

    def end(self, timeout: float) -> bool:
        """Stop, after a last word; whether that took at most ``timeout`` seconds.

        Whoever hangs longer is left alone: when it wakes up, it writes nothing into the home.
        """
        for speaker in self._speakers:
            speaker.end()
        ended = all_end([thread for thread in self._threads if thread.is_alive()], timeout)
        if not ended and self._aligner is not None:
            self._aligner.leave()
        return ended
