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
from dataclasses import dataclass, replace
from typing import Any, Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from tidelock.log import EpochLog, Retention, open_store
from tidelock.log.log import lost
from tidelock.spark.batches import Gate
from tidelock.spark.checkpoint import Checkpoint
from tidelock.spark.describing import Described, Functions, build
from tidelock.spark.keyed import StatePlace, building
from tidelock.spark.options import Member
from tidelock.spark.queries import came_too_late, start_query, wait_until_ready
from tidelock.spark.reading import follow_logs, read_members
from tidelock.spark.replay import read_replay
from tidelock.spark.sink import LogSink, make_log
from tidelock.spark.sinks import Deliver, DeliverySink
from tidelock.spark.watermark import unmoved
from tidelock.topology import Cutting, Segment

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

    def open(self, segment: str) -> OpenState | None:
        """Make the cached state of a segment ready for a new run; None if it has none."""

    def close(self) -> None:
        """Nothing more is going to be opened."""


@dataclass(frozen=True)
class Segments:
    """The segments of a pipeline, ready to be started on a session."""

    spark: SparkSession
    cutting: Cutting
    functions: Functions
    sinks: Mapping[str, Deliver]
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

    def start(self, segment: Segment, gate: Gate, trigger: dict[str, Any] | None = None) -> StreamingQuery:
        """Start the query of ``segment``; its logs have to be there. Thread-safe.

        Args:
            segment: one of the cutting's.
            gate: what its batches have to pass.
            trigger: Spark's trigger, if it is not to run for ever.

        Raises:
            PipelineError: one of its functions cannot be built.
            LogCorrupt: one of its logs is gone.
        """
        self._check_logs(segment)
        self.spark.sparkContext.setLocalProperty("spark.scheduler.pool", segment.name)
        state = self.caches.open(segment.name)
        Checkpoint(self.spark, self.places.checkpoint(segment.name)).clear_beginning()
        gate = gate if state is None else state.gate(gate)
        place = None if state is None else state.place
        for _ in range(_PATIENCE):
            with self.turns:
                query = self._start(segment, gate, trigger, place)
                wait_until_ready(query)
            if not came_too_late(query):
                break
        return query

    def _check_logs(self, segment: Segment) -> None:
        """See that the logs of a segment are there: they have been made, so one that is not was lost."""
        nodes = [i.log for i in segment.inputs] + ([segment.writes] if segment.writes else [])
        for url in map(self.places.log, nodes):
            if open_store(url).get("log") is None:
                raise lost(url, "everything")

    def _start(
        self, segment: Segment, gate: Gate, trigger: dict[str, Any] | None, state: StatePlace | None
    ) -> StreamingQuery:
        return start_query(
            self.stream(segment, state),
            self._sink(segment, gate),
            checkpoint=self.places.checkpoint(segment.name),
            mode=segment.mode,
            keep_batches=None if state is None else self.kept_batches,
            name=f"{self.cutting.topology.name}.{segment.name}",
            trigger=trigger or {"processingTime": self._interval(segment)},
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

    def stream(self, segment: Segment, state: StatePlace | None = None) -> DataFrame:
        """What the query of ``segment`` computes; ``state`` is where its cached state is, if it has any."""
        streams = {**self._inputs(segment), **self._follow(segment)}
        for name in segment.operators:
            if name != segment.sink and name not in self.followed:
                with building(state):
                    streams[name] = self._apply(segment, name, streams)
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

    def _follow(self, segment: Segment) -> dict[str, DataFrame]:
        names = [name for name in segment.sources if name in self.followed]
        if not names:
            return {}
        streams = follow_logs(
            self.spark,
            {self.followed[name].log: self.followed[name].consumer for name in names},
            group=f"{self.cutting.topology.name}.{segment.name}",
            instruction=self.places.instruction,
            mixed=len(names) < len(segment.sources) or self._needs_ticks,
        )
        return {name: self._completed(segment, name, one) for name, one in zip(names, streams, strict=True)}

    def _apply(self, segment: Segment, name: str, streams: Mapping[str, DataFrame]) -> DataFrame:
        node = self.cutting.topology.node(name)
        inputs = {given: streams[given] for given in node.inputs}
        return self._completed(segment, name, build(self.spark, node, self.functions[name], inputs))

    def _completed(self, segment: Segment, name: str, stream: DataFrame) -> DataFrame:
        """What a source or operator gives, with what a plan adds to it."""
        if name in segment.sources and self._needs_ticks:
            stream = stream.union(_ticks(self.spark, stream.schema))
        return unmoved(stream) if self.described[name].traits.watermark else stream

    def _fed_by(self, sink: str) -> str:
        return self.cutting.topology.node(sink).inputs[0]

    @property
    def _needs_ticks(self) -> bool:
        heads = [segment for segment in self.cutting.segments if segment.is_head]
        return len(heads) > 1 or bool(self.cutting.topology.back_edges)


def cached_operator(segment: Segment, described: Mapping[str, Described]) -> str | None:
    """The operator of a segment that keeps its state in a cache, if there is one."""
    kept = (name for name in segment.operators if name in described and described[name].state is not None)
    return next(kept, None)


def snapshot_cursor(segment: str) -> str:
    """The consumer of a log that the snapshots of a segment's cached state are."""
    return f"{segment}.snapshot"


def _ticks(spark: SparkSession, schema: StructType) -> DataFrame:
    """A stream of this schema that has news at every trigger, and never a row."""
    ticks = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    columns: list[Any] = [F.lit(None).cast(f.dataType).alias(f.name) for f in schema]
    return ticks.where(F.lit(False)).select(columns)
