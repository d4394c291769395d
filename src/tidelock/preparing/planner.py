"""A plan for a pipeline from its measured attributes."""

from __future__ import annotations

from collections.abc import Mapping

from tidelock.pipeline.declaration import Declaration
from tidelock.planning.choosing import EXACT, PlanSettings
from tidelock.planning.model import Model
from tidelock.planning.pipelines import Planned, constrained, plan_pipeline
from tidelock.planning.rounding import MAX_BATCH
from tidelock.spark.frames import SparkSession
from tidelock.spark.segments.describing import Described, describe_nodes
from tidelock.topology import Cutting, Plan, Topology, cut


class Planner:
    """Plans one pipeline, as often as its attributes change."""

    def __init__(self, pipeline: Declaration, topology: Topology, described: Mapping[str, Described]) -> None:
        self._topology = topology
        self._traits = {name: found.traits for name, found in described.items()}
        self._dead_letters = pipeline.run_settings.policy.on_poison == "dead-letter"
        self._most = max(1, pipeline.run_settings.bound.epochs // 2)

    @classmethod
    def of(cls, pipeline: Declaration, spark: SparkSession, coordinator: str | None = None) -> Planner:
        """The planner of a pipeline that is not running, and looks its subjects up at ``coordinator``.

        Raises:
            PipelineError: the pipeline cannot be.
        """
        topology = pipeline.topology()
        return cls(pipeline, topology, describe_nodes(spark, topology, pipeline.functions_at(coordinator)))

    def cut(self, plan: Plan) -> Cutting:
        """What Spark makes of a plan."""
        return cut(self._topology, plan, self._traits, dead_letters=self._dead_letters)

    def constrained(self, model: Model) -> Model:
        """The attributes with what the pipeline and Spark demand.

        Raises:
            PlanError: they are of another pipeline.
        """
        batchwise = {name for name, one in self._traits.items() if one.batchwise}
        return constrained(model, self.cut(Plan.one()), frozenset(batchwise))

    def plan(
        self,
        model: Model,
        budget: float,
        *,
        max_batch: int = MAX_BATCH,
        method: str = EXACT,
        settings: PlanSettings | None = None,
    ) -> Planned:
        """The plan within ``budget``: the share of time that it may cost more than one plain query.

        No batch takes more than ``max_batch`` epochs: results wait for their batch.

        Raises:
            Infeasible: there is none.
            PlanError: the attributes are of another pipeline, or the method does not fit.
        """
        most = min(max_batch, self._most)
        return plan_pipeline(
            self.constrained(model), budget, self.cut, most=most, method=method, settings=settings
        )
