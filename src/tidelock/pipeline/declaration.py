"""Declaring a pipeline: sources, operators and sinks, wired by the names of their parameters.

A declaration does nothing but remember. The graph is checked when it is asked for, the functions are called when
the pipeline is prepared for a Spark session.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self, TypeVar, cast, get_args, overload

from tidelock.alignment.combining import combiner_cursor
from tidelock.credentials import taken
from tidelock.errors import PipelineError
from tidelock.extras import check_url, need
from tidelock.home.home import Home
from tidelock.intervals import interval_seconds
from tidelock.kafka.location import KafkaLocation, parse_servers
from tidelock.log import Retention
from tidelock.log.log import check_name
from tidelock.pipeline.subscriptions import Publication, Subscription
from tidelock.recovery import Bound, Policy
from tidelock.spark.connector.reading import read_log
from tidelock.spark.frames import SparkSession
from tidelock.spark.sinks.files import FileSink
from tidelock.spark.sinks.functions import ConsoleSink, FunctionSink, Nowhere
from tidelock.spark.sinks.sink import Sink
from tidelock.spark.topics.avro import AvroRecords, AvroSchema
from tidelock.topology import Kind, Mode, Topology, TopologyNode, connect

Function = TypeVar("Function", bound=Callable[..., Any])
SinkMaker = Callable[[SparkSession, Home], Sink]

_ALL_EPOCHS = 1 << 30
_KEPT_EPOCHS = 1000
"""How much of its past a subject keeps for followers that come later."""


@dataclass(frozen=True)
class RunSettings:
    """How a pipeline is looked after while it runs."""

    policy: Policy
    bound: Bound
    hang_after: float
    snapshot_every: int
    alignment_patience: float


class Declaration:
    """What a pipeline is made of, and how it is looked after. The arguments are those of `tidelock.Pipeline`."""

    def __init__(
        self,
        name: str,
        *,
        epoch: str = "1 second",
        attempts: int | None = None,
        on_poison: str | None = None,
        hang_after: float = 600.0,
        outage_patience: float | None = None,
        max_pending_epochs: int = 100,
        max_pending_bytes: int = 1 << 30,
        snapshot_every: int = 20,
        alignment_patience: float = 10.0,
        policy: Policy | None = None,
    ) -> None:
        for what, number in (
            ("max_pending_epochs", max_pending_epochs),
            ("max_pending_bytes", max_pending_bytes),
            ("snapshot_every", snapshot_every),
        ):
            if number < 1:
                raise PipelineError(f"{what} is {number}: it must be at least 1")
        for what, seconds in (
            ("hang_after", hang_after),
            ("alignment_patience", alignment_patience),
        ):
            if not seconds >= 0:
                raise PipelineError(f"{what} is {seconds}: it must be a number of seconds, at least 0")
        self.name = check_name(name, "pipeline")
        interval_seconds(epoch)  # a wrong one is told here, before anything starts
        self.epoch = epoch
        self.run_settings = RunSettings(
            _policy(policy, {"attempts": attempts, "on_poison": on_poison, "outage_patience": outage_patience}),
            Bound(max_pending_epochs, max_pending_bytes),
            hang_after,
            snapshot_every,
            alignment_patience,
        )
        self._nodes: list[TopologyNode] = []
        self._feedback: dict[str, str] = {}
        self.published: dict[str, Publication] = {}
        """The nodes that have public names."""
        self._kept = Retention()
        self.functions: dict[str, Callable[..., Any]] = {}
        self.sinks: dict[str, SinkMaker] = {}
        self.storing: set[str] = set()
        """The sinks that get the rows of a batch together, and with their epoch."""
        self.followed: dict[str, Subscription] = {}
        """The sources that follow subjects, by their names."""

    def __repr__(self) -> str:
        return f"Pipeline({self.name!r})"

    # -- declaring

    def source(self, function: Function) -> Function:
        """Declare a source: a function of the Spark session that returns a streaming DataFrame.

        Raises:
            PipelineError: it does not take exactly the session.
        """
        if list(inspect.signature(function).parameters) != ["spark"]:
            raise PipelineError(
                f"source {function.__name__} has to take the Spark session and nothing else: "
                f"def {function.__name__}(spark)"
            )
        return self._declare(function, TopologyNode(function.__name__, Kind.SOURCE))

    @overload
    def operator(self, function: Function) -> Function: ...

    @overload
    def operator(
        self,
        *,
        mode: Mode | None = None,
        anchor: bool | None = None,
        failure_rate: float | None = None,
        outputMode: Mode | None = None,
    ) -> Callable[[Function], Function]: ...

    def operator(
        self,
        function: Function | None = None,
        *,
        mode: Mode | None = None,
        anchor: bool | None = None,
        failure_rate: float | None = None,
        outputMode: Mode | None = None,
    ) -> Function | Callable[[Function], Function]:
        """Declare an operator: a function of streaming DataFrames that returns one.

        The names of its parameters say whose output it takes; a parameter named ``spark`` gets the session.

        Args:
            function: the function, when the decorator stands without brackets.
            mode: Spark's output mode: `append` (if nothing is said), `update` (a row replaces an earlier one of
                its key) or `complete`.
            anchor: True: its input is always kept in logs, so that it starts a segment; False: no cut is wanted
                before it; None: the plan decides.
            failure_rate: how often a day it is expected to fail, for the planner.
            outputMode: the same as ``mode``, as Spark spells it.
        """
        asked = _mode(mode, outputMode)
        if function is None:
            return partial(self._operator, mode=asked, anchor=anchor, failure_rate=failure_rate)
        return self._operator(function, mode=asked, anchor=anchor, failure_rate=failure_rate)

    def _operator(
        self, function: Function, *, mode: Mode, anchor: bool | None, failure_rate: float | None
    ) -> Function:
        inputs = tuple(name for name in inspect.signature(function).parameters if name != "spark")
        node = TopologyNode(function.__name__, Kind.OPERATOR, inputs, mode, anchor, failure_rate)
        return self._declare(function, node)

    @overload
    def sink(self, function: Function) -> Function: ...

    @overload
    def sink(self, *, anchor: bool | None = None) -> Callable[[Function], Function]: ...

    def sink(
        self, function: Function | None = None, *, anchor: bool | None = None
    ) -> Function | Callable[[Function], Function]:
        """Declare a sink: a function of a (batch) DataFrame and of its epoch, called once per epoch.

        A plan with several epochs per batch calls it once for these, with the last of them. After a failure it is
        called again with the same rows for the same epoch. If its effect is idempotent, or stored together with
        the epoch, it happens exactly once.
        """
        if function is None:
            return partial(self._sink, anchor=anchor)
        return self._sink(function, anchor=anchor)

    def _sink(self, function: Function, *, anchor: bool | None) -> Function:
        inputs = tuple(name for name in inspect.signature(function).parameters if name != "epoch")
        self.sinks[function.__name__] = lambda spark, home: FunctionSink(function)
        self.storing.add(function.__name__)
        return self._declare(function, TopologyNode(function.__name__, Kind.SINK, inputs, anchor=anchor))

    def deliver(
        self, node: str, sink: Sink, *, name: str | None = None, epochs: int = 1, anchor: bool | None = None
    ) -> None:
        """Hand what ``node`` gives to a sink that is an object: of yours, or of another package.

        Args:
            node: a source or an operator.
            sink: what takes the rows; see `tidelock.Sink` for what it is promised.
            name: the sink's name; ``<node>_`` and its class, in small letters, if nothing is said.
            epochs: how many epochs it gets at a time.
            anchor: as for operators.

        Raises:
            PipelineError: it is no `tidelock.Sink`.
        """
        if not isinstance(sink, Sink):
            raise PipelineError(
                f"{sink!r} cannot take the rows of {node}: derive its class from tidelock.Sink, or declare a "
                "function with @pipeline.sink"
            )
        name = name or f"{node}_{type(sink).__name__.lower()}"
        self.sinks[name] = lambda spark, home: sink
        self.storing.add(name)
        self._nodes.append(TopologyNode(name, Kind.SINK, (node,), anchor=anchor, epochs_per_batch=epochs))

    def files(self, node: str, path: str | None = None, *, epochs: int = 1, name: str | None = None) -> None:
        """Write what ``node`` gives as Parquet files, exactly once: one directory for every ``epochs`` epochs.

        Args:
            node: a source or an operator.
            path: where to; the directory ``out/<name>`` of the home, if nothing is said.
            epochs: how many epochs one directory holds.
            name: the sink's name; ``<node>_files`` if nothing is said.
        """
        name = name or f"{node}_files"
        self.sinks[name] = lambda spark, home: FileSink(spark, path or home.out(name))
        self.storing.add(name)
        self._nodes.append(TopologyNode(name, Kind.SINK, (node,), epochs_per_batch=epochs))

    def write_topic(
        self,
        node: str,
        topic: str,
        *,
        servers: str,
        key: str | None = None,
        avro: AvroSchema | None = None,
        name: str | None = None,
    ) -> None:
        """Write what ``node`` gives to a Kafka topic, exactly once for who reads committed records.

        Its other end is `tidelock.read_topic`: what both take has the same name and is written the same way.
        The driver writes every epoch in one transaction. After logs were lost, or a backup was restored, epochs
        that are computed anew are written anew.

        Args:
            node: a source or an operator.
            topic: the topic; it is made as the brokers make topics if it is missing.
            servers: the brokers: `host:9092,host:9092`, or a URL with user, password and options.
            key: the column that is the key of records, as text; none if nothing is said.
            avro: the Avro schema of the records, as JSON text, as a dictionary, or as the path of a file with it;
                JSON records if nothing is said.
            name: the sink's name; ``<node>_topic`` if nothing is said.

        Raises:
            PipelineError: the brokers are not named as they should be, the package for Kafka is missing, or the
                Avro schema is none of records that rows can become.
        """
        need("kafka", "a Kafka topic")
        name, location = name or f"{node}_topic", parse_servers(servers)
        records, writer = None if avro is None else AvroRecords(avro), f"{self.name}.{name}"
        self.sinks[name] = lambda spark, home: _topic_sink(name, location, topic, writer, key, records)
        self._nodes.append(TopologyNode(name, Kind.SINK, (node,)))

    def topic(
        self,
        node: str,
        topic: str,
        *,
        servers: str,
        key: str | None = None,
        avro: AvroSchema | None = None,
        name: str | None = None,
    ) -> None:
        """The same as `write_topic`, as 0.1.0 called it."""
        self.write_topic(node, topic, servers=servers, key=key, avro=avro, name=name)

    def console(self, node: str, *, rows: int = 20, name: str | None = None) -> None:
        """Print the first ``rows`` rows of every epoch of ``node``."""
        name = name or f"{node}_console"
        self.sinks[name] = lambda spark, home: ConsoleSink(name, rows)
        self._nodes.append(TopologyNode(name, Kind.SINK, (node,)))

    def feedback(self, operator: str, *, schema: str) -> None:
        """Make the edges from ``operator`` to what it depends on back edges.

        What it gives in epoch N is input of epoch N+1. ``schema`` has its columns, as in `id long, score double`.
        """
        if operator in self._feedback:
            raise PipelineError(f"the feedback of {operator} is declared twice")
        self._feedback[operator] = schema

    def publish(
        self,
        node: str,
        *,
        subject: str,
        keep_epochs: int = _KEPT_EPOCHS,
        shared: str | None = None,
        producers: int = 1,
    ) -> None:
        """Give the log of ``node`` a public name, under which other jobs can follow it.

        Args:
            node: a source or an operator.
            subject: the name.
            keep_epochs: how many of its last epochs stay, although nobody may have read them yet.
            shared: the URL of the subject's own log, when several jobs produce it: all of them give the same. An
                epoch of the subject is there when every producer's part of it is.
            producers: how many jobs have to produce a shared subject before its first epoch; more may join later.
        """
        if node in self.published:
            raise PipelineError(f"{node} is published twice")
        if subject in {known.subject for known in self.published.values()}:
            raise PipelineError(f"the subject {subject} is published twice by this pipeline")
        check_url(shared)
        keep = Retention(epochs=keep_epochs)
        place = shared and taken(shared)
        self.published[node] = Publication(check_name(subject, "subject"), keep, place, producers)

    def subscribe(
        self, subject: str, *, home: str | None = None, name: str | None = None, aligned: bool = False
    ) -> None:
        """Follow a subject of another job as a source, from its oldest kept epoch.

        Args:
            subject: the public name.
            home: the home of the job that publishes it; if nothing is said, the subject is looked up in the shared
                tree, where every job that publishes makes itself known.
            name: the source's name for the parameters of operators; the last part of the subject if nothing is
                said.
            aligned: take the subject epoch by epoch, as soon as each is there, instead of at the interval of this
                pipeline. `tidelock align` changes that while the job runs.
        """
        name = name or subject.rpartition(".")[2]
        if subject in {known.subject for known in self.followed.values()}:
            raise PipelineError(f"{subject} is followed twice: subscribe once and use the source twice")
        consumer = check_name(f"{self.name}.{name}", "consumer")
        subscription = self.followed[name] = Subscription(subject, home, consumer, aligned)
        self.functions[name] = lambda spark, coordinator=None: read_log(spark, subscription.log(coordinator))
        self._nodes.append(TopologyNode(name, Kind.SOURCE))

    def _declare(self, function: Function, node: TopologyNode) -> Function:
        self.functions[node.name] = function
        self._nodes.append(node)
        return function

    def rehearsal(self) -> Self:
        """The same pipeline without effects outside of its home, to be measured.

        Its sinks take nothing anywhere, nothing is published, whom it follows does not wait for it, its logs keep
        everything, and every operator may be cut off.
        """
        copy = type(self)(self.name, epoch=self.epoch)
        copy._nodes = [replace(node, anchor=None, epochs_per_batch=1) for node in self._nodes]
        copy._feedback = self._feedback
        copy.functions = self.functions
        copy.sinks = dict.fromkeys(self.sinks, lambda spark, home: Nowhere())
        copy._kept = Retention(epochs=_ALL_EPOCHS)
        return copy

    # -- asking

    def topology(self) -> Topology:
        """The graph of the pipeline, checked.

        Raises:
            PipelineError: it cannot be; the message says why and what to do.
        """
        subjects = {node: known.subject for node, known in self.published.items()}
        unknown = sorted(subjects.keys() - {node.name for node in self._nodes})
        if unknown:
            raise PipelineError(
                f"{', '.join(unknown)} is published, but there is no source or operator of that name"
            )
        nodes = [_with_subject(node, subjects.get(node.name)) for node in self._nodes]
        return connect(self.name, nodes, self._feedback)

    def functions_at(self, coordinator: str | None) -> dict[str, Callable[..., Any]]:
        """The functions of all nodes, by name; the subjects that are followed are looked up at ``coordinator``."""
        following = {name: partial(self.functions[name], coordinator=coordinator) for name in self.followed}
        return {**self.functions, **following}

    def retention(self, node: str) -> Retention:
        """What the log of ``node`` keeps although all have read it."""
        known = self.published.get(node)
        if known is None:
            return self._kept
        if known.shared is None:
            return known.retention
        # The subject's own log keeps what followers may want; this one keeps what that one names.
        return Retention(wait_for=frozenset({combiner_cursor(known.subject)}))


def _policy(policy: Policy | None, single: Mapping[str, Any]) -> Policy:
    given = {name: value for name, value in single.items() if value is not None}
    if policy is None:
        names = {"outage_patience": "patience"}
        return Policy(**{names.get(name, name): value for name, value in given.items()})
    if given:
        raise PipelineError(f"policy says it all: leave {' and '.join(given)} out, or the policy")
    return policy


def _mode(mode: str | None, output_mode: str | None) -> Mode:
    """The output mode, by our name or by Spark's."""
    if mode is not None and output_mode is not None and mode != output_mode:
        raise PipelineError(f"mode is {mode!r} and outputMode is {output_mode!r}: they are the same, so give one")
    asked = mode or output_mode or "append"
    for known in get_args(Mode):
        if known == asked:
            return cast(Mode, known)
    raise PipelineError(f"mode is {asked!r}: it must be one of {', '.join(map(repr, get_args(Mode)))}")


def _topic_sink(
    name: str, location: KafkaLocation, topic: str, writer: str, key: str | None, avro: AvroRecords | None
) -> Sink:
    from tidelock.spark.sinks.topic import TopicSink

    return TopicSink(name, location, topic, writer, key=key, avro=avro)


def _with_subject(node: TopologyNode, subject: str | None) -> TopologyNode:
    return replace(node, subject=subject)
