"""`tidelock plan --topology FILE --budget B`: a plan for a topology that is a file, without any code."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from rich.console import Console

from tidelock.cli.exits import BAD, GOOD
from tidelock.cli.pictures.plan_tables import compared_table, reasons_table, segments_table, told
from tidelock.errors import PlanError
from tidelock.planning.answers import Compared, Reason, answer, compare, explain, refusal
from tidelock.planning.choosing import Infeasible, PlanChoice, PlanSettings, choose
from tidelock.planning.document import read_model
from tidelock.planning.model import Model


def plan_topology(args: argparse.Namespace) -> int:
    """Answer the command.

    Raises:
        PlanError: the file or an option is wrong, or (for people) no plan fits the budget.
    """
    model, settings = read_topology(args.topology), settings_of(args)
    begin = time.perf_counter()
    try:
        choice = choose(model, args.budget, args.method, settings)
    except Infeasible as error:
        if not args.json:
            raise
        print(json.dumps(refusal(args.budget, args.method, error)))
        return BAD
    seconds = time.perf_counter() - begin
    reasons = explain(model, args.budget, choice.configuration.anchors) if args.explain else []
    rivals = compare(model, args.budget, settings) if args.compare else []
    if args.json:
        found = {**answer(model, args.budget, choice), "planning_seconds": seconds}
        print(json.dumps({**found, **more_facts(reasons, rivals, model)}))
    else:
        _show(model, args.budget, choice, reasons, rivals)
    return GOOD


def read_topology(path: Path) -> Model:
    """The model in a topology file.

    Raises:
        PlanError: there is none; the message has the field.
    """
    try:
        return read_model(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise PlanError(f"there is no topology file {path}: `tidelock profile` writes one") from None
    except OSError as error:
        raise PlanError(f"the topology file {path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise PlanError(f"{path} is not JSON: {error}") from error
    except PlanError as error:
        raise PlanError(f"{path}: {error}") from error


def settings_of(args: argparse.Namespace) -> PlanSettings:
    """What the options say to the methods of the thesis."""
    given = {
        "steps": args.steps,
        "frequencies": args.frequencies,
        "max_frequency": args.max_frequency,
    }
    return PlanSettings(**{name: value for name, value in given.items() if value is not None})


def more_facts(reasons: list[Reason], rivals: list[Compared], model: Model) -> dict[str, Any]:
    """What `--explain` and `--compare` add, as plain values."""
    found: dict[str, Any] = {}
    if reasons:
        found["reasons"] = [{"operator": r.operator, "anchor": r.anchor, "why": r.why} for r in reasons]
    if rivals:
        found["comparison"] = [_compared(rival, model) for rival in rivals]
    return found


def _compared(rival: Compared, model: Model) -> dict[str, Any]:
    if rival.choice is None:
        return {"method": rival.method, "feasible": False, "reason": rival.why}
    return {
        "method": rival.method,
        "feasible": True,
        "overhead": rival.choice.costs.overhead - model.baseline,
        "expected_recovery_time": rival.choice.costs.recovery,
        "segments": len(model.segments(rival.choice.configuration.anchors)),
    }


def _show(model: Model, budget: float, choice: PlanChoice, reasons: list[Reason], rivals: list[Compared]) -> None:
    console = Console(highlight=False, markup=False)
    console.print(segments_table(model, choice))
    console.print(told(model, budget, choice))
    if reasons:
        console.print(reasons_table(reasons))
    if rivals:
        console.print(compared_table(model, rivals))
