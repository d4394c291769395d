"""From a sample of a pipeline to its topology file: what each operator does, measured on Spark.

Every operator is a segment of its own in the sample, and has the machine for itself. So its batches, and the rows
and bytes in the logs around it, are about that operator. What a batch takes beside its rows was measured before
(`calibrating`) and is taken off.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import mean, median
from typing import Any

from tidelock.cache.store import open_cells
from tidelock.caching.caches import forget
from tidelock.errors import PipelineError
from tidelock.home.home import Home
from tidelock.intervals import interval_seconds
from tidelock.log import EpochLog
from tidelock.measuring.calibrating import MachineTimes, calibrate
from tidelock.measuring.rehearsing import Played, Stage
from tidelock.pipeline.declaration import Declaration
from tidelock.planning.document import write_model
from tidelock.planning.model import Model, Operator, Rates
from tidelock.spark.frames import SparkSession
from tidelock.topology import TopologyNode

WARM_UP = 2
"""So many epochs are not looked at: Spark compiles."""
LARGE = 4
"""So many epochs make the large batch that is compared with batches of one."""
ASSUMED_FAILURES = 1.0
"""Failures per day of an operator of which nothing is known."""
_DAY = 86_400.0
_SHORTEST = 1e-3
_CAPACITY = 1.0
"""Batches are timed alone, and a batch keeps the machine busy: together they take no more than all the time."""


@dataclass(frozen=True)
class Number:
    """A value and where it comes from."""

    value: float
    source: str


@dataclass(frozen=True)
class Flow:
    """What goes into a log in an epoch, on average of those that are counted, and how long an epoch takes."""

    rows: float
    bytes: float
    seconds: float
    counted: int


def profile(
    pipeline: Declaration,
    spark: SparkSession,
    folder: Path,
    *,
    epochs: int,
    failures: Mapping[str, Number],
    tell: Callable[[str], None],
    cache: str | None = None,
) -> dict[str, Any]:
    """The topology file of ``pipeline``, in seconds and bytes, with a source for every number.

    Args:
        pipeline: what is measured. Its sinks are not called; its sources are read.
        spark: the session.
        folder: where there is room for logs and checkpoints; nothing is removed.
        epochs: how many epochs are looked at one by one; `LARGE` more make one batch.
        failures: failures per second of the operators for which more is known than what is declared.
        tell: is told what is being done.
        cache: the URL of a cache for operators that keep their state in one; nothing is left there.

    Raises:
        PipelineError: the pipeline cannot be.
        BatchFailed: the sample fails; the message has the story.
    """
    tell("this machine")
    machine = calibrate(spark, folder / "machine", lambda what: tell(f"this machine: {what}"))
    stage = Stage(pipeline.rehearsal(), spark, Home(folder / "sample", cache=_apart(cache)), "each")
    try:
        played = _play(stage, WARM_UP + epochs, tell)
    finally:
        forget(stage.home)
    flows = {cut.log: _flow(stage.home.log(cut.log), cut.log) for cut in stage.prepared.cutting.cuts}
    measured = [
        _measure(node, stage.prepared.cutting.topology.forward_inputs(node.name), played, flows, machine)
        for node in stage.prepared.cutting.topology.nodes
    ]
    failing = {node.name: _failures(node, failures) for node in stage.prepared.cutting.topology.nodes}
    document = _document(pipeline, interval_seconds(pipeline.epoch), machine, measured, failing)
    follows = [name for name, found in stage.prepared.described.items() if found.traits.event_time_state]
    warnings = silent_operators({name: flows[name] for name in follows if name in flows})
    return {**document, "warnings": warnings} if warnings else document


def silent_operators(flows: Mapping[str, Flow]) -> list[str]:
    """What to say of operators with event time that passed on no row: their flows, by their names."""
    return [
        f"{name} follows event time and passed on no row in the {flow.counted} epochs that were counted (those "
        f"after the first {WARM_UP} that were batches of their own): no window of it has closed in them, so "
        "nothing was measured of what comes behind it. Give the sample more epochs (--epochs), or input that "
        "covers more event time"
        for name, flow in flows.items()
        if not flow.rows
    ]


def _apart(cache: str | None) -> str | None:
    """A place in the cache that nobody else uses."""
    return None if cache is None else open_cells(cache).under(f"profile-{uuid.uuid4().hex}").url


@dataclass(frozen=True)
class SegmentSample:
    """What was seen of a segment: batches of one epoch, and one of several, if it can take several."""

    ones: Played
    large: Played | None

    @property
    def seconds(self) -> float:
        """A batch of one epoch."""
        return median(one.seconds for one in self.ones.batches[-max(1, len(self.ones.batches) - WARM_UP) :])

    @property
    def state_bytes(self) -> float:
        """The state at the end."""
        return float((self.large or self.ones).batches[-1].state_bytes)

    def parts(self) -> tuple[float, float] | None:
        """What a batch takes whatever is in it, and what an epoch in it takes; None if that was not seen."""
        if self.large is None:
            return None
        more = (self.large.batches[-1].seconds - self.seconds) / (LARGE - 1)
        work = min(self.seconds, max(0.0, more))
        return self.seconds - work, work


def _play(stage: Stage, ones: int, tell: Callable[[str], None]) -> dict[str, SegmentSample]:
    """Run the heads at their pace, and then everybody else in turn; loops turn together, one epoch at a time."""
    cutting = stage.prepared.cutting
    heads = [segment.name for segment in cutting.segments if segment.is_head]
    others = [segment.name for segment in cutting.segments if not segment.is_head]
    last = ones + LARGE - 1
    if cutting.topology.back_edges:
        tell(f"{last + 1} epochs of {', '.join(cutting.order)}")
        return {name: SegmentSample(one, None) for name, one in stage.play(cutting.order, last).items()}
    played = {}
    for name, group in {", ".join(heads): heads, **{name: [name] for name in others}}.items():
        tell(f"{ones} epochs of {name}")
        played.update(stage.play(group, ones - 1))
    tell(f"{LARGE} more epochs of {', '.join(heads)}")
    stage.play(heads, last)
    found = {name: SegmentSample(played[name], None) for name in heads}
    for name in others:
        tell(f"{LARGE} epochs of {name} at once")
        found[name] = SegmentSample(played[name], stage.play([name], last, at_once=LARGE)[name])
    return found


def _flow(url: str, name: str) -> Flow:
    log = EpochLog.open(url)
    # An operator in update mode gives fewer rows when several epochs are one batch.
    single = [covers for covers in log.ranges() if covers.first == covers.last and covers.first >= WARM_UP]
    counted = [log.manifest(covers) for covers in single]
    if not counted:
        raise PipelineError(f"the sample of {name} has too few epochs: is there input?")
    times = [manifest.published_at for manifest in counted]
    return Flow(
        rows=mean(manifest.rows for manifest in counted),
        bytes=mean(manifest.size for manifest in counted),
        seconds=median(b - a for a, b in pairwise(times)) if len(times) > 1 else 0.0,
        counted=len(counted),
    )


def _measure(
    node: TopologyNode,
    inputs: tuple[str, ...],
    played: Mapping[str, SegmentSample],
    flows: Mapping[str, Flow],
    machine: MachineTimes,
) -> Operator:
    """The attributes of a node; its failure rate is told elsewhere."""
    seen, out = played[node.name], flows.get(node.name, Flow(0.0, 0.0, 0.0, 0))
    rows = sum(flows[name].rows for name in inputs) if inputs else out.rows
    size = sum(flows[name].bytes for name in inputs) if inputs else out.bytes
    logs = out.bytes * machine.log_write + (size * machine.log_read if inputs else 0.0)
    fixed, work = seen.parts() or (machine.commit, seen.seconds - machine.commit)
    return Operator(
        name=node.name,
        inputs=inputs,
        selectivity=1.0 if not inputs else out.rows / rows if rows else 0.0,
        processing_cost=max(0.0, work - logs) / rows if rows else 0.0,
        state_size=seen.state_bytes,
        tuple_size=size / rows if rows else 0.0,
        failure_rate=0.0,
        input_rate=None if inputs else out.rows / max(out.seconds, _SHORTEST),
        stored_size=None if inputs else 0.0,
        commit_cost=max(0.0, fixed - machine.commit) if seen.state_bytes else 0.0,
    )


def _failures(node: TopologyNode, known: Mapping[str, Number]) -> Number:
    if node.name in known:
        return known[node.name]
    if node.failure_rate is not None:
        return Number(node.failure_rate / _DAY, "declared: failure_rate, per day")
    return Number(ASSUMED_FAILURES / _DAY, f"assumed: {ASSUMED_FAILURES:g} per day")


def history(home: Home) -> dict[str, Number]:
    """The failures of each operator that a home remembers, per second that it ran."""
    events = home.events()
    ran, began = 0.0, None
    for event in events:
        if event["kind"] in ("run started", "run resumed"):
            began = event["at"]
        elif began is not None:
            ran, began = ran + event["at"] - began, event["at"]
    if ran <= 0:
        return {}
    found = {}
    for segment in home.known().segments:
        failed = [
            event for event in events if event["kind"] == "segment failed" and event["segment"] == segment.name
        ]
        for name in segment.operators:
            own = sum(f"in operator {name}:" in event["text"] for event in failed)
            untold = sum("in operator " not in event["text"] for event in failed)
            count = own + untold / len(segment.operators)
            found[name] = Number(count / ran, f"history: {count:g} failures in {ran / 3600:.2f} h")
    return found


def _document(
    pipeline: Declaration,
    epoch: float,
    machine: MachineTimes,
    measured: list[Operator],
    failing: Mapping[str, Number],
) -> dict[str, Any]:
    frequency = 1.0 / max(epoch, machine.commit)
    operators = tuple(replace(operator, failure_rate=failing[operator.name].value) for operator in measured)
    model = Model(
        operators=operators,
        input_rate=sum(operator.input_rate or 0.0 for operator in operators),
        storage_cost=machine.log_write,
        segment_cost=machine.commit,
        restart_cost=machine.restart,
        scope="segment",
        max_frequency=frequency,
        head_frequency=frequency,
        capacity=_CAPACITY,
        baseline=frequency * (machine.plain_commit + sum(operator.commit_cost or 0.0 for operator in operators)),
        rates_of_storage=Rates(machine.log_read, machine.state_load),
    )
    document = write_model(model)
    for fields in document["operators"]:
        fields["provenance"] = {
            "failure_rate": failing[fields["name"]].source,
            "state_size": "measured: at the end of the sample",
            **dict.fromkeys(("selectivity", "tuple_size"), "measured: rows and bytes of its logs in the sample"),
            **dict.fromkeys(("processing_cost", "commit_cost"), "measured: batches of one epoch and of several"),
        }
    return {
        "pipeline": pipeline.name,
        "units": {"time": "seconds", "size": "bytes"},
        **document,
        "provenance": {
            "storage_cost": "measured: writing a byte into a log",
            "log_read_cost": "measured: reading a byte from a log",
            "state_load_cost": "measured: restart with a state made for it",
            "segment_cost": "measured: a batch of a segment with ten rows",
            "restart_cost": "measured: from the first failure of ten rows to their commit",
            "head_frequency": f"declared: an epoch every {pipeline.epoch}",
            "max_frequency": f"declared: an epoch every {pipeline.epoch}",
            "capacity": "assumed: batches that are timed alone share one machine",
            "baseline": "measured: what a plain query spends on its batches and its state",
            "input_rate": "measured: rows of all sources per second",
        },
    }
