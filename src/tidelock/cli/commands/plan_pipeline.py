"""`tidelock plan FILE.py`: the segments that a pipeline is cut into, and why; with a budget, the best ones."""

from __future__ import annotations

import argparse
import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from tidelock.cli.commands.plan_topology import more_facts, read_topology, settings_of
from tidelock.cli.commands.profile import keep, measured_aside, topology_file
from tidelock.cli.exits import BAD, GOOD
from tidelock.cli.pictures.plan_tables import compared_table, planned_table, planned_text, reasons_table
from tidelock.cli.sessions import command_session
from tidelock.home.home import Home
from tidelock.pipeline.declaration import Declaration
from tidelock.pipeline.loading import load
from tidelock.planning.answers import Compared, Reason, compare, explain, refusal
from tidelock.planning.choosing import Infeasible
from tidelock.planning.document import read_model, write_model
from tidelock.planning.model import Model
from tidelock.planning.pipelines import Planned, anchors_of
from tidelock.preparing.checks import check_before_spark, check_file
from tidelock.preparing.planner import Planner
from tidelock.preparing.preparation import PlanLike, prepare
from tidelock.replanning.replanning import Replanned, replan
from tidelock.spark.frames import SparkSession
from tidelock.topology import Cutting, Plan, Segment, mermaid, svg, text

_WIDTH_OF_FILES = 100


def plan_pipeline(args: argparse.Namespace) -> int:
    """Answer `tidelock plan FILE.py`.

    Raises:
        PipelineError: the pipeline cannot be.
        PlanError: the plan does not fit, or (for people) no plan fits the budget.
    """
    pipeline = load(args.file)
    home = None if args.home is None else Home(args.home)
    check_before_spark(pipeline, home, plan=args.plan, cache=args.cache, out=args.out, apply=args.apply)
    check_attributes(args, pipeline)
    # A sample needs all the cores that a run would have.
    master = None if args.budget is not None else "local[1]"
    with command_session(pipeline.name, args.conf, master=master, log=Path(os.devnull)) as spark:
        if args.budget is None:
            return _as_asked(args, pipeline, spark)
        return _within_budget(args, pipeline, spark)


# -- a plan that is given


def _as_asked(args: argparse.Namespace, pipeline: Declaration, spark: SparkSession) -> int:
    if args.apply:
        return _apply(args, pipeline, spark, args.plan or "one")
    answer(prepare(pipeline, spark, args.plan).cutting, args)
    return GOOD


def _apply(args: argparse.Namespace, pipeline: Declaration, spark: SparkSession, wanted: PlanLike) -> int:
    changed = replan(pipeline, spark, Home(args.home), wanted)
    if args.json:
        print(json.dumps(asdict(changed)))
    else:
        Console(highlight=False, soft_wrap=True).print(_changes(changed))
    return GOOD


def _changes(changed: Replanned) -> Text:
    sizes = [
        f"{name} takes {after} epochs a batch, not {before}"
        for name, (before, after) in changed.epochs_per_batch.items()
    ]
    parts = [
        f"{what}: {', '.join(names)}"
        for what, names in (
            ("new", changed.added),
            ("changed", changed.changed),
            ("gone", changed.removed),
            ("as before", changed.kept),
        )
        if names
    ]
    return Text("; ".join([*parts, *sizes]) or "nothing changes")


# -- a plan within a budget


def _within_budget(args: argparse.Namespace, pipeline: Declaration, spark: SparkSession) -> int:
    planner = Planner.of(pipeline, spark)
    model = attributes(args, pipeline, spark)
    try:
        planned = planner.plan(
            model, args.budget, max_batch=args.max_batch, method=args.method, settings=settings_of(args)
        )
    except Infeasible as error:
        if not args.json:
            raise
        print(json.dumps(refusal(args.budget, args.method, error)))
        return BAD
    if args.apply:
        wanted = Plan.to_document(planned.cutting)
        changed = _apply(args, pipeline, spark, wanted)
        remember(Home(args.home), planned.model, args.budget, args.max_batch)
        return changed
    reasons = (
        explain(planned.model, args.budget, anchors_of(planned.model, planned.cutting)) if args.explain else []
    )
    rivals = compare(planned.model, args.budget, settings_of(args)) if args.compare else []
    _tell(args, planned, reasons, rivals)
    return GOOD


def check_attributes(args: argparse.Namespace, pipeline: Declaration) -> None:
    """See that the attributes to plan with can be read, or could be kept when they are measured.

    Raises:
        PipelineError: they could not be kept.
        PlanError: the file is wrong.
    """
    if args.topology is not None or args.budget is not None:
        known = _known_attributes(args, pipeline)
        if known is None:
            check_file(topology_file(pipeline))


def attributes(
    args: argparse.Namespace, pipeline: Declaration, spark: SparkSession, *, quiet: bool = False
) -> Model:
    """The attributes in the file given, or where `tidelock profile` puts them; measured now if there are none.

    ``quiet``: the steps of measuring are not told.

    Raises:
        PlanError: the file is wrong.
    """
    known = _known_attributes(args, pipeline)
    if known is not None:
        return known
    document = measured_aside(pipeline, spark, args.cache, quiet=quiet)
    keep(document, topology_file(pipeline))
    return read_model(document)


def _known_attributes(args: argparse.Namespace, pipeline: Declaration) -> Model | None:
    own = topology_file(pipeline)
    return read_topology(args.topology or own) if args.topology is not None or own.exists() else None


def remember(home: Home, model: Model, budget: float, max_batch: int) -> None:
    """Keep in a home what its plan was made from, so that a run can tell when that is no longer so."""
    home.put_document("planned", {"budget": budget, "max_batch": max_batch, "topology": write_model(model)})


def _tell(args: argparse.Namespace, planned: Planned, reasons: list[Reason], rivals: list[Compared]) -> None:
    if args.json:
        found = {**facts(planned.cutting), **_figures(planned, args.budget)}
        print(json.dumps({**found, **more_facts(reasons, rivals, planned.model)}))
        return
    answer(planned.cutting, args)
    console = Console(highlight=False, markup=False)
    console.print("")
    console.print(planned_table(planned))
    console.print(planned_text(planned, args.budget))
    if reasons:
        console.print("")
        console.print(reasons_table(reasons))
    if rivals:
        console.print("")
        console.print(compared_table(planned.model, rivals))


def _figures(planned: Planned, budget: float) -> dict[str, Any]:
    model = planned.model
    anchors = {model.operators[place].name for place in anchors_of(model, planned.cutting)}
    assert model.head_frequency is not None
    return {
        "feasible": True,
        "method": planned.choice.method,
        "budget": budget,
        "overhead": planned.overhead,
        "expected_recovery_time": planned.costs.recovery,
        "gap": planned.choice.gap,
        "segments": [
            {
                **asdict(segment),
                "anchors": [name for name in segment.operators if name in anchors],
                "frequency": model.head_frequency / segment.epochs_per_batch,
            }
            for segment in planned.cutting.segments
        ],
    }


# -- cuttings


def answer(cutting: Cutting, args: argparse.Namespace) -> None:
    """Print what was asked for; a picture that has a file of its own is not printed as well."""
    console = Console(highlight=False, soft_wrap=True)
    if args.out is not None:
        args.out.write_text(_picture(cutting, args.picture, _WIDTH_OF_FILES), encoding="utf-8")
    if args.json:
        print(json.dumps(facts(cutting)))
    elif args.picture != "text" and args.out is None:
        print(_picture(cutting, args.picture, console.width))
    else:
        console.print(Text(_picture(cutting, "text", console.width)))
        for note in cutting.notes:
            console.print(Text.assemble("\n", ("note", "yellow"), f"  {note}"))
        if args.out is not None:
            console.print(Text(f"\nthe picture is in {args.out}", style="dim"))


def facts(cutting: Cutting) -> dict[str, Any]:
    """A cutting as plain values; ``plan`` can be given back with `--plan`."""
    return {
        "pipeline": cutting.topology.name,
        "segments": [asdict(segment) for segment in cutting.segments],
        "cuts": [asdict(cut) for cut in cutting.cuts],
        "notes": list(cutting.notes),
        "plan": Plan.to_document(cutting),
    }


def _picture(cutting: Cutting, kind: str, width: int) -> str:
    if kind == "mermaid":
        return mermaid(cutting)
    if kind == "svg":
        return svg(cutting)
    return text(cutting, width, {segment.name: _mark(segment) for segment in cutting.segments})


def _mark(segment: Segment) -> str:
    if segment.epochs_per_batch == 1:
        return segment.mode
    return f"{segment.mode} · {segment.epochs_per_batch} epochs a batch"
