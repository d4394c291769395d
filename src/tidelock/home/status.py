"""How a pipeline is doing: values for programs, and the JSON that they are in files and for other languages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from tidelock.home.events import RunEvent

_OF_EVENTS = ("at", "kind", "segment", "text")


@dataclass(frozen=True)
class SegmentStatus:
    """How a segment of a pipeline is doing at one moment. Immutable.

    Attributes:
        name: The operator that it ends with.
        operators: All operators in it.
        inputs: The operators whose logs it reads.
        epoch: The newest epoch that it has committed; -1 if there is none.
        lag: How many epochs it has still to read.
        log_bytes: What the log that it writes holds.
        pending_epochs: How many of its epochs somebody in this pipeline has still to read.
        pending_bytes: The same in bytes.
        state: `waiting`, `starting`, `running`, `paused` (its log is full), `restarting`, `stopping`, `stopped` or
            `failed`.
        state_rows: The rows that its operators keep.
        state_bytes: The same in bytes.
        rows_per_second: What its newest batch took.
        rows_in_per_second: What comes in, over the newest batches.
        batch_seconds: How long its newest batch took.
        restarts: How often it was started again since the run began.
        last_error: What last went wrong, if anything has.
    """

    name: str
    operators: tuple[str, ...]
    inputs: tuple[str, ...]
    epoch: int
    lag: int
    log_bytes: int
    pending_epochs: int
    pending_bytes: int
    state: str
    state_rows: int
    state_bytes: int
    rows_per_second: float
    rows_in_per_second: float
    batch_seconds: float
    restarts: int
    last_error: str | None

    def to_json(self) -> dict[str, Any]:
        """All of it, as `json.dumps` takes it."""
        document = {field.name: getattr(self, field.name) for field in fields(self)}
        return {**document, "operators": list(self.operators), "inputs": list(self.inputs)}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> SegmentStatus:
        """What `to_json` of this release or an earlier one has made."""
        known = {field.name: document[field.name] for field in fields(cls) if field.name in document}
        places = {"operators": tuple(document["operators"]), "inputs": tuple(document["inputs"])}
        return cls(**{"rows_in_per_second": 0.0, **known, **places})


@dataclass(frozen=True)
class Status:
    """How a pipeline is doing at one moment. Immutable.

    Attributes:
        pipeline: Its name.
        state: `starting`, `running`, `stopped`, `failed` (it was given up) or `killed` (its process is gone).
        at: When it was like this, in seconds since 1970.
        began: When its run began; None if that is not known.
        epoch: The newest epoch that has gone through everywhere; -1 if there is none.
        segments: Its segments, upstream first.
        subjects: The subjects that it publishes, with the URLs of their logs.
        events: The newest events, the oldest first.
        drift: What no longer fits the plan, and what the plan would be now, as JSON; None if all fits, or if the
            plan was not made from attributes.
    """

    pipeline: str
    state: str
    at: float
    began: float | None
    epoch: int
    segments: tuple[SegmentStatus, ...]
    subjects: Mapping[str, str]
    events: tuple[RunEvent, ...]
    drift: Mapping[str, Any] | None = None

    def segment(self, name: str) -> SegmentStatus:
        """The segment of that name.

        Raises:
            KeyError: there is none.
        """
        for segment in self.segments:
            if segment.name == name:
                return segment
        raise KeyError(name)

    def to_json(self) -> dict[str, Any]:
        """All of it, as `json.dumps` takes it: what `tidelock status --json` prints."""
        return {
            "pipeline": self.pipeline,
            "state": self.state,
            "at": self.at,
            "began": self.began,
            "epoch": self.epoch,
            "segments": [segment.to_json() for segment in self.segments],
            "subjects": dict(self.subjects),
            "events": [{name: getattr(event, name) for name in _OF_EVENTS} for event in self.events],
            "drift": None if self.drift is None else dict(self.drift),
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Status:
        """What `to_json` of this release or an earlier one has made."""
        return cls(
            document["pipeline"],
            document["state"],
            document["at"],
            document["began"],
            document["epoch"],
            tuple(map(SegmentStatus.from_json, document["segments"])),
            document["subjects"],
            tuple(map(RunEvent.from_json, document["events"])),
            document.get("drift"),
        )
