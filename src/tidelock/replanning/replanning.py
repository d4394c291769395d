"""Another plan for a home: its segments are cut in another way, and go on where they were.

Theory of operation
-------------------
Segments that stay the same are not touched; how many epochs they take per batch is no part of them. If all are
kept, the new plan is written down and that is all: Spark repeats a half-done batch with the offsets that it has
recorded, and cuts the later ones by the new number.

Otherwise the home has to be drained: all segments stand at the same epoch E. Then nothing lies between them, and a
new query has to know three things only: where it stands in its sources, that its logs begin behind E, and its
watermark (`replanning.checkpoints`). It must not need state (`replanning.rules`).

A change happens at one moment, when the record of the home is replaced; `replanning.finish` has the crash points.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tidelock.caching.caches import Caches
from tidelock.caching.gates import batches_needed
from tidelock.epochs import BEFORE_FIRST, Epoch
from tidelock.errors import PipelineError, PlanError
from tidelock.home.events import Events
from tidelock.home.home import Home, Record, SegmentRecord
from tidelock.log import EpochLog
from tidelock.log.repair import begin_log, tail
from tidelock.mending.checkpoints import mend_checkpoints
from tidelock.pipeline.declaration import Declaration
from tidelock.preparing.changed_code import accepted_changes, node_prints
from tidelock.preparing.preparation import (
    PlanLike,
    Prepared,
    followed_logs,
    prepare,
    segment_records,
    stored_plan,
)
from tidelock.replanning.finish import aside, begin, finish
from tidelock.replanning.rules import Transition
from tidelock.spark.checkpoint.checkpoint import Checkpoint
from tidelock.spark.checkpoint.successors import (
    begin_after,
    has_half_done,
    identify,
    source_count,
    take_over,
    watermark_of,
)
from tidelock.spark.connector.streams import log_offset
from tidelock.spark.frames import DataFrame, SparkSession
from tidelock.spark.plans.sources_read import streams_read
from tidelock.spark.segments.segment_queries import SegmentQueries
from tidelock.topology import Plan, Segment
from tidelock.urls import masked


@dataclass(frozen=True)
class Replanned:
    """What a new plan has changed, by the names of segments."""

    kept: tuple[str, ...]
    changed: tuple[str, ...]
    """There before and after, with other operators."""
    added: tuple[str, ...]
    removed: tuple[str, ...]
    epochs_per_batch: Mapping[str, tuple[int, int]]
    """Before and after, where it differs."""

    def __str__(self) -> str:
        parts = {"kept": self.kept, "changed": self.changed, "added": self.added, "removed": self.removed}
        told = [f"{what} {', '.join(names)}" for what, names in parts.items() if names]
        sizes = [f"{name} {old} -> {new}" for name, (old, new) in self.epochs_per_batch.items()]
        return "; ".join([*told, *(f"epochs per batch of {size}" for size in sizes)])


def replan(pipeline: Declaration, spark: SparkSession, home: Home, plan: PlanLike) -> Replanned:
    """Let ``home`` go on with ``plan``. Whatever ends this, the home has the old plan or the new one.

    Raises:
        PipelineError: nothing has run there, something runs there, it is another pipeline's, or an operator that
            keeps state has changed.
        PlanError: the plan does not fit the pipeline, or the home cannot change to it; then nothing has changed.
        LogCorrupt: a power cut has torn a file of a checkpoint that has to be known; then nothing has changed.
    """
    home = home.as_recorded()
    home.known()
    with home.held():
        finish(home)
        before = home.known()
        stored_plan(home, pipeline.topology())
        _check_logs(home, before)
        for removed in mend_checkpoints(home, before):
            Events(home).add("torn file removed", removed.segment, str(removed))
        prepared = prepare(pipeline, spark, plan, home.coordinator)
        accepted_changes(home, before, node_prints(pipeline, prepared.cutting.topology, prepared.described))
        change = _transition(prepared, home, before)
        done = Replanned(
            change.kept, change.changed, change.added, change.removed, _epochs(before, prepared.cutting.segments)
        )
        if change.made:
            _Replanning(prepared, spark, home, change).run()
        elif change.after.encode() != before.encode():
            home.remember(change.after)
        else:
            return done
        Events(home).add("plan changed", None, str(done))
        return done


class _Replanning:
    """A change of the segments, up to the moment in which it happens."""

    def __init__(self, prepared: Prepared, spark: SparkSession, home: Home, change: Transition) -> None:
        self._prepared = prepared
        self._home = home
        self._change = change
        self._segments = SegmentQueries(
            spark=spark,
            cutting=prepared.cutting,
            functions=prepared.pipeline.functions,
            sinks={},
            described=prepared.described,
            places=home,
            epoch=prepared.pipeline.epoch,
            turns=threading.Semaphore(1),
            followed=followed_logs(prepared.pipeline, home),
            caches=Caches(home, {}, 1, Events(home)),
            kept_batches=batches_needed(1),
        )

    def run(self) -> None:
        self._change.check()
        epoch = _drained_at(self._home, self._change)
        self._check_source_counts()
        try:
            begin(self._home, self._change.before, self._change.after)
            self._make_logs(epoch)
            self._make_checkpoints(epoch)
            os.sync()
            self._home.remember(self._change.after)
        finally:
            finish(self._home)

    def _check_source_counts(self) -> None:
        for segment in self._change.made:
            head = self._change.head_before(segment)
            if head is None:
                continue
            old, new = source_count(self._checkpoint(head)), len(streams_read(self._stream(segment)))
            if old not in (None, new):
                raise PlanError(
                    f"segment {segment.name} would have its sources at {new} places of its query, and segment "
                    f"{head} has them at {old}: Spark could not tell where each of them stands. Leave operators "
                    "that several others read as they are, stored or in `copies`, or use a new home"
                )

    def _make_logs(self, epoch: Epoch) -> None:
        logs = self._segments.make_logs(self._prepared.pipeline.retention, {})
        known = {segment.name for segment in self._change.before.segments if segment.log is not None}
        for name in logs.keys() - known:
            if epoch > BEFORE_FIRST:
                begin_log(logs[name], epoch)

    def _make_checkpoints(self, epoch: Epoch) -> None:
        for segment in self._change.made:
            place = self._checkpoint(segment.name)
            if segment.name in self._change.added:
                self._make_checkpoint(segment, place, epoch)
                identify(place, None)
            else:
                self._make_checkpoint(segment, aside(self._home, segment.name), epoch)
                identify(aside(self._home, segment.name), place)

    def _make_checkpoint(self, segment: SegmentRecord, target: Path, epoch: Epoch) -> None:
        clock, head = self._change.clock_before(segment), self._change.head_before(segment)
        watermark = 0 if clock is None else watermark_of(self._checkpoint(clock))
        if head is not None:
            take_over(target, self._checkpoint(head), watermark)
        elif epoch > BEFORE_FIRST:
            model = self._checkpoint(self._change.before.segments[0].name)
            begin_after(target, self._offsets(segment, epoch), model, watermark)

    def _offsets(self, segment: SegmentRecord, epoch: Epoch) -> list[dict[str, Any]]:
        """Where the sources of a segment's query stand when it has finished ``epoch``."""
        lags = {self._home.log(log): lag for log, lag in segment.inputs}
        read = streams_read(self._stream(segment))
        headers = {url: EpochLog.open(url).header for url in read if url is not None}
        return [
            log_offset(headers[url], lags[url], len(lags), start=epoch, epoch=epoch)
            for url in read
            if url is not None
        ]

    def _stream(self, segment: SegmentRecord) -> DataFrame:
        return self._segments.stream(self._prepared.cutting.segment(segment.name))

    def _checkpoint(self, segment: str) -> Path:
        return Path(self._home.checkpoint(segment))


# -- what changes


def _transition(prepared: Prepared, home: Home, before: Record) -> Transition:
    cutting = prepared.cutting
    after = replace(before, plan=Plan.to_document(cutting), segments=segment_records(prepared, home))
    traits = {name: found.traits for name, found in prepared.described.items()}
    return Transition(before, after, cutting.topology, traits)


def _epochs(before: Record, segments: tuple[Segment, ...]) -> dict[str, tuple[int, int]]:
    old = {s.name: p["epochs_per_batch"] for s, p in zip(before.segments, before.plan["segments"], strict=True)}
    new = {segment.name: segment.epochs_per_batch for segment in segments}
    return {name: (old[name], now) for name, now in new.items() if old.get(name, now) != now}


# -- whether the home is ready for it


def _check_logs(home: Home, record: Record) -> None:
    for segment in record.segments:
        if segment.log not in (None, home.log(segment.name)):
            where = masked(segment.log)
            raise PipelineError(f"{home.root} has its logs elsewhere, one is {where}: leave --log out")


def _drained_at(home: Home, change: Transition) -> Epoch:
    """The epoch at which all segments stand.

    Raises:
        PlanError: they do not stand at one epoch, or one of those that end has begun the next.
    """
    positions = {s.name: Checkpoint(None, home.checkpoint(s.name)).position() for s in change.before.segments}
    epoch = min(positions.values())
    if max(positions.values()) > epoch:
        where = ", ".join(f"{name} at epoch {at}" for name, at in positions.items())
        raise _not_drained(home, f"its segments stand at different epochs ({where})")
    for segment in change.ended:
        if _has_begun_more(home, change, segment, epoch):
            raise _not_drained(home, f"segment {segment.name} is in the middle of epoch {epoch + 1}")
    return epoch


def _has_begun_more(home: Home, change: Transition, segment: SegmentRecord, epoch: Epoch) -> bool:
    """Whether a segment has done something that the query after it would not repeat in the same way."""
    if not change.sources(segment) and has_half_done(Path(home.checkpoint(segment.name))):
        return True
    goes_on = any(segment.log == other.log for other in change.after.segments)
    return segment.log is not None and goes_on and tail(EpochLog.open(segment.log)) not in (None, epoch)


def _not_drained(home: Home, why: str) -> PlanError:
    return PlanError(
        f"{home.root} is not drained: {why}. To change its segments, run the pipeline with --epochs or stop it "
        "without --now first, so that all of them end at the same epoch"
    )
