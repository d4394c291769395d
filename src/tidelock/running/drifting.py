"""Comparing what a run does with what its plan was made for."""

from __future__ import annotations

import math
from typing import Any

from tidelock.errors import PlanError
from tidelock.home.home import Home
from tidelock.pipeline.declaration import Declaration
from tidelock.planning.document import read_model
from tidelock.planning.drifting import THRESHOLD, Drifted, Measured, drift
from tidelock.planning.model import Model
from tidelock.preparing.planner import Planner
from tidelock.preparing.preparation import Prepared
from tidelock.running.gauges import RunView
from tidelock.topology import Cutting, Plan


class DriftWatch:
    """Looks at the gauges of a run now and then; a search may take seconds. Owned by the one thread that looks."""

    def __init__(self, prepared: Prepared, model: Model, budget: float, max_batch: int) -> None:
        pipeline: Declaration = prepared.pipeline
        self._cutting: Cutting = prepared.cutting
        self._planner = Planner(pipeline, prepared.cutting.topology, prepared.described)
        self._model = model
        self._budget = budget
        self._max_batch = max_batch
        self._moved: list[tuple[str, str, int]] = []
        self._told: dict[str, Any] = {}

    @classmethod
    def of(cls, prepared: Prepared, home: Home) -> DriftWatch | None:
        """The watch of a home whose plan was made from attributes; None for any other."""
        planned = home.document("planned")
        if planned is None:
            return None
        return cls(prepared, read_model(planned["topology"]), planned["budget"], planned["max_batch"])

    def look(self, view: RunView) -> dict[str, Any] | None:
        """What has changed and what the plan would be now, for the status document; None if nothing has."""
        measured = {
            name: Measured(segment.gauge.rows_in_per_second, segment.gauge.state_bytes)
            for name, segment in view.segments.items()
            if segment.gauge.is_settled
        }
        changes, model = drift(self._model, self._cutting, measured)
        if not changes:
            return None
        return {
            "changes": [
                {"segment": c.segment, "attribute": c.attribute, "planned": c.planned, "measured": c.measured}
                for c in changes
            ],
            "told": [str(change) for change in changes],
            **self._now(changes, model),
        }

    def _now(self, changes: list[Drifted], model: Model) -> dict[str, Any]:
        """The plan as it would be now; searched again only when something has moved by another threshold."""
        moved = [
            (c.segment, c.attribute, round(math.log(max(c.measured, 1.0) / max(c.planned, 1.0), THRESHOLD)))
            for c in changes
        ]
        if moved != self._moved:
            self._moved, self._told = moved, self._search(model)
        return self._told

    def _search(self, model: Model) -> dict[str, Any]:
        try:
            planned = self._planner.plan(model, self._budget, max_batch=self._max_batch)
        except PlanError as error:
            return {"plan": None, "why": str(error)}
        document = Plan.to_document(planned.cutting)
        return {
            "plan": document,
            "same_plan": document == Plan.to_document(self._cutting),
            "overhead": planned.overhead,
            "expected_recovery_time": planned.costs.recovery,
        }
