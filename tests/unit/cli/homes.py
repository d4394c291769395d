"""A home as a run would have left it, without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.unit.cli.conftest import COLUMNS

from tidelock import EpochLog
from tidelock.home.home import Home, Record, SegmentRecord
from tidelock.topology import Cutting, Kind, Plan, Topology, TopologyNode, connect, cut


def topology() -> Topology:
    """From numbers to named numbers to their counts to a sink."""
    nodes = [
        TopologyNode("numbers", Kind.SOURCE),
        TopologyNode("named", Kind.OPERATOR, ("numbers",)),
        TopologyNode("counts", Kind.OPERATOR, ("named",), mode="update"),
        TopologyNode("store", Kind.SINK, ("counts",)),
    ]
    return connect("trending", nodes, {})


def cutting(anchors: str = "counts") -> Cutting:
    """The pipeline in two segments, or however the anchors have it."""
    return cut(topology(), Plan(anchors=frozenset(anchors.split())), {})


def make_home(root: Path, logs: str | None = None) -> Home:
    """A home that has a record and its log, and no status yet."""
    home, segments = Home(root, logs), cutting()
    records = tuple(
        SegmentRecord(
            s.name,
            s.operators,
            tuple((i.log, i.lag) for i in s.inputs),
            home.log(s.name) if s.writes else None,
        )
        for s in segments.segments
    )
    subjects = {"numbers.named": home.log("named")}
    home.remember(Record("trending", topology().signature(), Plan.to_document(segments), records, subjects))
    EpochLog.create(home.log("named"), COLUMNS, name="named")
    return home


def segment(name: str, epoch: int, **changed: Any) -> dict[str, Any]:
    """A segment as a status document has it."""
    facts = {"name": name, "operators": [name], "inputs": [], "epoch": epoch, "lag": 0, "log_bytes": 0}
    gauges = {"pending_epochs": 0, "pending_bytes": 0, "state_rows": 0, "state_bytes": 0, "batch_seconds": 0.1}
    life = {
        "state": "running",
        "rows_per_second": 0.0,
        "rows_in_per_second": 0.0,
        "restarts": 0,
        "last_error": None,
    }
    return {**facts, **gauges, **life, **changed}


def status(state: str = "running", **changed: Any) -> dict[str, Any]:
    """A status document of a pipeline in which one segment has failed before."""
    segments = [
        segment("named", 9, rows_per_second=1234.5, log_bytes=20_000),
        segment("store", 7, lag=2, state="restarting", restarts=1, last_error="ValueError: " + "no " * 100),
    ]
    told = event("run started")
    del told["epoch"]
    fields = {
        "pipeline": "trending",
        "at": 2.0,
        "began": 1.0,
        "epoch": 7,
        "subjects": {},
        "events": [told],
        "drift": None,
    }
    return {**fields, "state": state, "segments": segments, **changed}


def event(kind: str, segment: str | None = None, text: str = "it happened") -> dict[str, Any]:
    """An event as a home keeps it."""
    return {"at": 1_700_000_000.0, "kind": kind, "segment": segment, "text": text, "epoch": None}
