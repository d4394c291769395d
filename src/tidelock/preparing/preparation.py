"""From a declared pipeline to segments that can be started in a home."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tidelock.caching.caches import Caches, cached_segments
from tidelock.caching.gates import batches_needed
from tidelock.errors import PipelineError, PlanError
from tidelock.home.events import Events
from tidelock.home.home import Home, Record, SegmentRecord
from tidelock.home.identities import announce_recalls, known_identities, remember_identities
from tidelock.log.store import place
from tidelock.pipeline.declaration import Declaration
from tidelock.preparing.changed_code import accepted_changes, encode_prints, node_prints, tell_changes
from tidelock.spark.frames import SparkSession
from tidelock.spark.segments.describing import Described, describe_nodes
from tidelock.spark.segments.segment_queries import Followed, SegmentQueries, cached_operator
from tidelock.spark.sinks.log import make_log
from tidelock.topology import Cutting, Plan, Topology, cut
from tidelock.urls import masked

PlanLike = Plan | Mapping[str, Any] | str | Path | None
"""A plan, its document, `one`, `each`, or the path of a file with its document."""


@dataclass(frozen=True)
class Prepared:
    """A pipeline that was built once, and cut."""

    pipeline: Declaration
    cutting: Cutting
    described: Mapping[str, Described]


def prepare(
    pipeline: Declaration, spark: SparkSession, plan: PlanLike = None, coordinator: str | None = None
) -> Prepared:
    """Check, describe and cut ``pipeline``. Nothing runs and nothing is written.

    ``coordinator``: the URL of the shared tree in which the subjects are looked up that it follows.

    Raises:
        PipelineError: the pipeline cannot be.
        PlanError: the plan does not fit it.
    """
    topology = pipeline.topology()
    described = describe_nodes(spark, topology, pipeline.functions_at(coordinator))
    traits = {name: found.traits for name, found in described.items()}
    dead_letters = pipeline.run_settings.policy.on_poison == "dead-letter"
    return Prepared(pipeline, cut(topology, _plan(plan, topology), traits, dead_letters=dead_letters), described)


def settle(
    prepared: Prepared,
    home: Home,
    spark: SparkSession,
    *,
    asked: bool,
    events: Events | None = None,
    accept_changes: bool = False,
) -> SegmentQueries:
    """Make ``home`` the pipeline's home, or see that it is: its record, its logs.

    ``asked``: the plan was asked for, and is not only the default. ``accept_changes``: operators that keep state
    may have changed. Idempotent.

    Raises:
        PipelineError: its logs are elsewhere, or a place was asked for a log that is not there, or nobody said
            where the state of its operators is to be cached, or the code of one that keeps state has changed.
        PlanError: it was started there under another plan.
        SchemaMismatch: an operator has other columns than its log.
    """
    cutting = prepared.cutting
    home.places.check([n.name for n in cutting.topology.nodes], [s.writes for s in cutting.segments if s.writes])
    events = events or Events(home)
    prints = node_prints(prepared.pipeline, cutting.topology, prepared.described)
    record = replace(_record(prepared, home), prints=encode_prints(prints))
    _check_plan(home, record, asked=asked)
    before = home.record()
    changes = accepted_changes(home, before, prints, accept=accept_changes)
    every = prepared.pipeline.run_settings.snapshot_every
    cached = cached_segments(cutting, prepared.described, home)
    segments = SegmentQueries(
        spark=spark,
        cutting=cutting,
        functions=prepared.pipeline.functions,
        sinks={name: make(spark, home) for name, make in prepared.pipeline.sinks.items()},
        described=prepared.described,
        places=home,
        epoch=prepared.pipeline.epoch,
        turns=threading.Semaphore(max(1, (os.cpu_count() or 1))),
        followed=followed_logs(prepared.pipeline, home),
        caches=Caches(home, cached, every, events),
        kept_batches=batches_needed(every),
    )
    logs = segments.make_logs(prepared.pipeline.retention, known_identities(home))
    for node, known in prepared.pipeline.published.items():
        if known.shared is not None:
            described = prepared.described[node]
            make_log(
                known.shared,
                described.schema,
                event_time=described.event_time,
                name=known.subject,
                retention=known.retention,
            )
    tell_changes(changes, before, prints, cutting.topology, events)
    home.remember(record)
    remember_identities(home, logs)
    announce_recalls(home, logs)
    return segments


def followed_logs(pipeline: Declaration, home: Home) -> dict[str, Followed]:
    """The sources that follow subjects, with the logs that they read.

    Raises:
        PipelineError: nobody publishes one of the subjects.
    """
    return {
        name: Followed(one.subject, one.log(home.coordinator), one.consumer)
        for name, one in pipeline.followed.items()
    }


def stored_plan(home: Home, topology: Topology) -> Mapping[str, Any] | None:
    """The document of the plan under which this pipeline was started in a home; None if nothing has run there.

    Raises:
        PipelineError: another pipeline lives there.
    """
    record = home.record()
    if record is None:
        return None
    _check_pipeline(home, record, topology)
    return record.plan


def check_plan_like(plan: PlanLike, topology: Topology) -> None:
    """See that it is a plan for these operators, as far as that can be said without Spark.

    Raises:
        PlanError: there is no such file, it does not hold a plan, or one for other operators.
    """
    _plan(plan, topology)


def _plan(plan: PlanLike, topology: Topology) -> Plan:
    if plan is None or plan == "one":
        return Plan.one()
    if plan == "each":
        return Plan.each(topology)
    if isinstance(plan, Plan):
        return plan
    if isinstance(plan, Mapping):
        return Plan.from_document(dict(plan), topology)
    return Plan.from_document(_document(Path(plan)), topology)


def _document(path: Path) -> dict[str, Any]:
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise PlanError(f"there is no plan file {path}: give `one`, `each` or the path of a JSON file") from None
    except OSError as error:
        raise PlanError(f"the plan file {path} cannot be read: {error.strerror}") from error
    except ValueError as error:  # not UTF-8, or not JSON
        raise PlanError(f"{path} is not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise PlanError(f"{path}: a plan is a JSON object with a list of segments")
    return fields


def _record(prepared: Prepared, home: Home) -> Record:
    cutting = prepared.cutting
    published = prepared.pipeline.published
    subjects = {known.subject: known.shared or home.log(node) for node, known in published.items()}
    return Record(
        cutting.topology.name,
        cutting.topology.signature(),
        Plan.to_document(cutting),
        segment_records(prepared, home),
        subjects,
        home.cache,
        home.coordinator,
    )


def segment_records(prepared: Prepared, home: Home) -> tuple[SegmentRecord, ...]:
    """The segments of a pipeline, as ``home`` is to remember them."""
    return tuple(
        SegmentRecord(
            s.name,
            s.operators,
            tuple((i.log, i.lag) for i in s.inputs),
            home.log(s.writes) if s.writes else None,
            cached_operator(s, prepared.described),
        )
        for s in prepared.cutting.segments
    )


def _check_pipeline(home: Home, old: Record, topology: Topology) -> None:
    if old.pipeline != topology.name:
        raise PipelineError(
            f"{home.root} is the home of pipeline {old.pipeline}, not of {topology.name}: use another"
        )
    if _plain(old.signature) != _plain(topology.signature()):
        raise PipelineError(
            f"pipeline {topology.name} has other operators than the one whose state is in {home.root}: "
            f"{_difference(old.signature, topology.signature())}. Give it a new home"
        )


def _check_plan(home: Home, new: Record, *, asked: bool) -> None:
    old = home.record()
    if old is None:
        return
    if [s.operators for s in old.segments] != [s.operators for s in new.segments]:
        hint = "leave --plan out to go on with the plan of this home" if asked else "its rules have changed"
        raise PlanError(
            f"{home.root} was started with other segments, and their state is there: {hint}; `tidelock plan "
            "--apply` changes the plan where state allows it, and a new home takes any plan"
        )
    for was, is_now in zip(old.segments, new.segments, strict=True):
        if was.log and is_now.log and place(was.log) != place(is_now.log):
            raise PipelineError(f"{home.root} has its logs elsewhere, one is {masked(was.log)}: leave --log out")


def _difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    before, after = ({node["name"]: node for node in _plain(s)["nodes"]} for s in (old, new))
    gone = [f"{name} is gone" for name in before if name not in after]
    come = [f"{name} is new" for name in after if name not in before]
    changed = [f"{name} has changed" for name in before if name in after and before[name] != after[name]]
    return ", ".join(gone + come + changed) or "its feedback has changed"


def _plain(fields: Mapping[str, Any]) -> dict[str, Any]:
    return dict(json.loads(json.dumps(fields)))
