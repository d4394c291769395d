"""Segments as streaming queries: from the functions of a pipeline to what Spark runs.

A segment reads the logs of its inputs (or its sources), applies its operators and ends in a log or a sink. Two
things are added so that a plan never changes results:

* above every watermark stands a condition that Spark moves nothing past. Otherwise a filter of a later operator
  would, in one query, slip below the watermark and decide what drives it, and would not if a cut is between;
* when several segments read sources, every source is united with a stream of ticks that has no rows but always
  news. So each of them makes an epoch at every trigger, also when its source is silent, and nobody who merges
  them waits for data that does not come. A loop goes on in the same way.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tidelock.log import EpochLog, Retention, open_store
from tidelock.log.documents import HEADER
from tidelock.log.log import lost
from tidelock.spark.checkpoint.checkpoint import Checkpoint
from tidelock.spark.checkpoint.replay import read_replay
from tidelock.spark.connector.options import Member
from tidelock.spark.connector.reading import follow_logs, read_members
from tidelock.spark.connector.ticks import ticks
from tidelock.spark.connector.watermark import unmoved
from tidelock.spark.query.batches import Gate
from tidelock.spark.query.queries import came_too_late, start_query, wait_until_ready
from tidelock.spark.segments.describing import Described, Functions, build
from tidelock.spark.segments.keyed import StatePlace, building
from tidelock.spark.sinks.log import LogSink, make_log
from tidelock.spark.sinks.sink import DeliverySink, Sink
from tidelock.topology import Cutting, Segment

_WHAT_IS_THERE = {"availableNow": True}
_PATIENCE = 5
"""How often a query is started whose Python processes come too late, before that counts as its failure."""


class Places(Protocol):
    """Where things are kept."""

    def log(self, node: str) -> str:
        """The URL of the log of a source or an operator."""

    def checkpoint(self, segment: str) -> str:
        """The checkpoint directory of a segment."""

    @property
    def draining(self) -> str:
        """The file that is there while nothing more comes from the sources."""

    def replay(self, segment: str) -> str:
        """The document that says which batches a segment does again."""

    @property
    def instruction(self) -> str:
        """The file that says how followed subjects are read."""


@dataclass(frozen=True)
class Followed:
    """A source that follows a subject: the URL of the log, and the name of the cursor on it."""

    subject: str
    log: str
    consumer: str


class OpenState(Protocol):
    """The state in a cache of one operator, taken over for one run of its segment."""

    @property
    def place(self) -> StatePlace:
        """Where its tasks find it."""

    def gate(self, gate: Gate) -> Gate:
        """The gate for batches that change it, around the one that they would pass otherwise."""


class Caches(Protocol):
    """What keeps state in caches."""

    def open(self, segment: str, check: Callable[[], None]) -> OpenState | None:
        """Make the cached state of a segment ready for a new run; None if it has none.

        ``check`` is called before whatever changes something, and raises if the run is not wanted any more.
        """

    def close(self, timeout: float) -> bool:
        """Nothing more is going to be opened; whether what was under way ended within ``timeout`` seconds."""


class Starting(Protocol):
    """Who waits for a query to be up, and may lose patience."""

    def turn(self, turns: threading.Semaphore) -> AbstractContextManager[object]:
        """Have a turn inside; raises if the query is not wanted any more."""

    def check(self) -> None:
        """Raise if the query is not wanted any more."""

    def begun(self, query: StreamingQuery) -> None:
        """The query is there, and its sources are being brought up; raises if it is not wanted any more."""


class PatientStart:
    """Waits for a query however long it takes."""

    def turn(self, turns: threading.Semaphore) -> AbstractContextManager[object]:
        """Have a turn inside."""
        return turns

    def check(self) -> None:
        """It is wanted."""

    def begun(self, query: StreamingQuery) -> None:
        """Nothing to do."""


@dataclass(frozen=True)
class SegmentQueries:
    """The segments of a pipeline, ready to be started on a session. Immutable; every thread may start some."""

    spark: SparkSession
    cutting: Cutting
    functions: Functions
    sinks: Mapping[str, Sink]
    described: Mapping[str, Described]
    places: Places
    epoch: str
    """How often a segment that reads sources makes an epoch, as Spark says it: `1 second`."""
    turns: threading.Semaphore
    """How many may start at the same time. Every log that is read costs a new Python process, and Spark gives up
    on one that is not there within ten seconds, so starting all at once would start none."""
    followed: Mapping[str, Followed]
    """The sources that follow subjects, by their names."""
    caches: Caches
    kept_batches: int
    """How many batches Spark remembers of a segment with cached state, which may have to go back to a snapshot."""

    def make_logs(
        self, retention: Callable[[str], Retention], identities: Mapping[str, str]
    ) -> dict[str, EpochLog]:
        """Make the logs that are not there yet; all of them, by the names of their nodes.

        ``identities`` has those of logs that were there before.

        Raises:
            SchemaMismatch: a log exists and has other columns.
        """
        nodes = [segment.writes for segment in self.cutting.segments if segment.writes]
        return {node: self._make_log(node, retention(node), identities.get(node)) for node in nodes}

    def _make_log(self, node: str, retention: Retention, identity: str | None) -> EpochLog:
        # Readers that start late are waited for: nothing goes before all of them have come.
        segments = self.cutting.readers(node)
        readers = {segment.name for segment in segments}
        # What a snapshot of cached state has not seen yet is needed to rebuild that state.
        snapshots = {
            snapshot_cursor(segment.name) for segment in segments if cached_operator(segment, self.described)
        }
        retention = replace(retention, wait_for=retention.wait_for | readers | snapshots)
        described = self.described[node]
        return make_log(
            self.places.log(node),
            described.schema,
            event_time=described.event_time,
            name=node,
            retention=retention,
            identity=identity,
        )

    def start(
        self,
        segment: Segment,
        gate: Gate,
        trigger: dict[str, Any] | None = None,
        starting: Starting | None = None,
        *,
        draining: bool = False,
    ) -> StreamingQuery:
        """Start the query of ``segment``; its logs have to be there. Thread-safe.

        Each step may hang, and whoever waits for it may lose patience meanwhile: ``starting`` is asked before
        every one that changes something.

        Args:
            segment: one of the cutting's.
            gate: what its batches have to pass.
            trigger: Spark's trigger, if it is not to run for ever.
            starting: who waits for it; whatever that raises ends the start.
            draining: its sources, if it has any, give what is there now and no more. Then its query ends, unless
                it makes epochs without data too: it makes these for as long as the gate lets it.

        Raises:
            PipelineError: one of its functions cannot be built.
            LogCorrupt: one of its logs is gone.
        """
        starting = starting or PatientStart()
        self._check_logs(segment)
        self.spark.sparkContext.setLocalProperty("spark.scheduler.pool", segment.name)
        _make_active(self.spark)
        state = self.caches.open(segment.name, starting.check)
        starting.check()
        Checkpoint(self.spark, self.places.checkpoint(segment.name)).clear_beginning()
        gate = gate if state is None else state.gate(gate)
        place = None if state is None else state.place
        for _ in range(_PATIENCE):
            with starting.turn(self.turns):
                query = self._start(segment, gate, trigger, place, starting, draining and segment.is_head)
                starting.begun(query)
                wait_until_ready(query)
            if not came_too_late(query):
                break
        return query

    def _check_logs(self, segment: Segment) -> None:
        """See that the logs of a segment are there: they have been made, so one that is not was lost."""
        nodes = [i.log for i in segment.inputs] + ([segment.writes] if segment.writes else [])
        for store in map(open_store, map(self.places.log, nodes)):
            if store.get(HEADER) is None:
                raise lost(store.shown, "everything")

    def _start(
        self,
        segment: Segment,
        gate: Gate,
        trigger: dict[str, Any] | None,
        state: StatePlace | None,
        starting: Starting,
        draining: bool,
    ) -> StreamingQuery:
        usual = _WHAT_IS_THERE if draining else {"processingTime": self._interval(segment)}
        stream = self.stream(segment, state, draining=draining)
        starting.check()  # the user's code may have hung, and whoever makes the sink becomes the log's only writer
        return start_query(
            stream,
            self._sink(segment, gate),
            checkpoint=self.places.checkpoint(segment.name),
            mode=segment.mode,
            keep_batches=None if state is None else self.kept_batches,
            name=f"{self.cutting.topology.name}.{segment.name}",
            trigger=trigger or usual,
        )

    def _interval(self, segment: Segment) -> str:
        """How often Spark looks for news; a source that follows a subject knows itself when a batch is due."""
        own = segment.is_head and not any(name in self.followed for name in segment.sources)
        return self.epoch if own else "0 seconds"

    def _sink(self, segment: Segment, gate: Gate) -> Callable[[DataFrame, int], None]:
        checkpoint = self.places.checkpoint(segment.name)
        if segment.sink is not None:
            replay = read_replay(self.places.replay(segment.name))
            return DeliverySink(self.spark, segment.sink, self.sinks[segment.sink], checkpoint, gate, replay)
        return LogSink(self.spark, EpochLog.open(self.places.log(segment.name)), checkpoint, gate)

    # -- the DataFrames

    def stream(self, segment: Segment, state: StatePlace | None = None, *, draining: bool = False) -> DataFrame:
        """What the query of ``segment`` computes; ``state`` is where its cached state is, if it has any."""
        streams = {**self._inputs(segment), **self._follow(segment, draining)}
        for name in segment.operators:
            if name != segment.sink and name not in self.followed:
                with building(state):
                    streams[name] = self._apply(segment, name, streams, draining)
        return streams[segment.operators[-1] if segment.sink is None else self._fed_by(segment.sink)]

    def _inputs(self, segment: Segment) -> dict[str, DataFrame]:
        members = [Member(self.places.log(i.log), i.lag) for i in segment.inputs]
        if not members:
            return {}
        read = read_members(
            self.spark,
            members,
            consumer=segment.name,
            epochs_per_batch=segment.epochs_per_batch,
            take_rest=self.places.draining,
            replay=self.places.replay(segment.name),
        )
        return {i.log: stream for i, stream in zip(segment.inputs, read, strict=True)}

    def _follow(self, segment: Segment, draining: bool) -> dict[str, DataFrame]:
        names = [name for name in segment.sources if name in self.followed]
        if not names:
            return {}
        streams = follow_logs(
            self.spark,
            {self.followed[name].log: self.followed[name].consumer for name in names},
            group=f"{self.cutting.topology.name}.{segment.name}",
            instruction=self.places.instruction,
            mixed=len(names) < len(segment.sources) or self.needs_ticks,
        )
        named = zip(names, streams, strict=True)
        return {name: self._completed(segment, name, one, draining) for name, one in named}

    def _apply(self, segment: Segment, name: str, streams: Mapping[str, DataFrame], draining: bool) -> DataFrame:
        node = self.cutting.topology.node(name)
        inputs = {given: streams[given] for given in node.inputs}
        return self._completed(segment, name, build(self.spark, node, self.functions[name], inputs), draining)

    def _completed(self, segment: Segment, name: str, stream: DataFrame, draining: bool) -> DataFrame:
        """What a source or operator gives, with what a plan adds to it."""
        if name in segment.sources and self.needs_ticks:
            stream = stream.union(ticks(self.spark, stream.schema, endless=draining))
        return unmoved(stream) if self.described[name].traits.watermark else stream

    def _fed_by(self, sink: str) -> str:
        return self.cutting.topology.node(sink).inputs[0]

    @property
    def needs_ticks(self) -> bool:
        """Whether heads make epochs also when there is no new data."""
        heads = [segment for segment in self.cutting.segments if segment.is_head]
        return len(heads) > 1 or bool(self.cutting.topology.back_edges)


def cached_operator(segment: Segment, described: Mapping[str, Described]) -> str | None:
    """The operator of a segment that keeps its state in a cache, if there is one."""
    kept = (name for name in segment.operators if name in described and described[name].state is not None)
    return next(kept, None)


def snapshot_cursor(segment: str) -> str:
    """The consumer of a log that the snapshots of a segment's cached state are."""
    return f"{segment}.snapshot"


def _make_active(spark: SparkSession) -> None:
    """Let this thread's DataFrames remember which lines made them: PySpark asks the active session of a thread."""
    jvm: Any = spark.sparkContext._jvm
    jvm.SparkSession.setActiveSession(spark._jsparkSession)
