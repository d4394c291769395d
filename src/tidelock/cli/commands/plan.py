"""`tidelock plan`: of a pipeline, of a topology that is a file, or of Segment Backup's model."""

from __future__ import annotations

import argparse

from tidelock.cli.options import check_one_plan
from tidelock.errors import PlanError


def plan(args: argparse.Namespace) -> int:
    """Answer `tidelock plan`; Spark is imported only where there is a pipeline.

    Raises:
        PipelineError: the pipeline cannot be.
        PlanError: an option is wrong, the plan does not fit, or (for people) no plan fits the budget.
    """
    if args.segment_backup is not None:
        from tidelock.cli.commands.plan_segment_backup import answer_segment_backup

        return answer_segment_backup(args.segment_backup, args.max_recovery_delay, args.json)
    _check(args)
    if args.file is None:
        from tidelock.cli.commands.plan_topology import plan_topology

        return plan_topology(args)
    from tidelock.cli.commands.plan_pipeline import plan_pipeline

    return plan_pipeline(args)


def _check(args: argparse.Namespace) -> None:
    if args.file is None and (args.topology is None or args.budget is None):
        raise PlanError("name a pipeline (FILE.py), or a topology and a budget (--topology FILE --budget 0.1)")
    if args.budget is None and (args.explain or args.compare or args.method != "exact"):
        raise PlanError("--explain, --compare and --method are about a budget: add --budget 0.1, for example")
    check_one_plan(args)
    if args.apply and (args.file is None or args.home is None):
        raise PlanError("--apply changes the plan of a home: name the pipeline and give --home DIR")
