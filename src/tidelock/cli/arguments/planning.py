"""The commands that plan a pipeline: plan, profile."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from tidelock.cli.options import (
    SAMPLE,
    Commands,
    add,
    add_budget,
    add_cache,
    add_file,
    add_master,
    add_max_batch,
    add_plan_option,
    add_settings,
    add_topology,
    at_least,
    seconds,
)

METHODS = ("exact", "chain-dp", "chain-dp-refined", "tree-dp", "one-segment", "each-segment")


def add_planning(commands: Commands[Any]) -> None:
    """Add the commands to the command line."""
    _add_plan(commands)
    _add_profile(commands)


# -- tidelock plan


def _add_plan(commands: Commands[Any]) -> None:
    plan = add(commands, "plan", "the segments that a pipeline is cut into, and why; with a budget, the best ones")
    add_file(plan, optional=True)
    add_plan_option(plan)
    add_topology(plan)
    add_budget(plan)
    add_max_batch(plan)
    add_cache(plan)
    plan.add_argument("--method", choices=METHODS, default="exact", help="how to look for it (default: exact)")
    plan.add_argument("--explain", action="store_true", help="say of every operator why it is an anchor or not")
    plan.add_argument("--compare", action="store_true", help="ask every method that fits, too")
    plan.add_argument(
        "--apply", action="store_true", help="give this plan to the home, whose pipeline has stopped"
    )
    plan.add_argument("--home", type=Path, metavar="DIR", help="the home for --apply")
    plan.add_argument(
        "--picture", choices=("text", "mermaid", "svg"), default="text", help="how to draw it (default: text)"
    )
    plan.add_argument("--out", type=Path, metavar="FILE", help="put the picture into a file")
    add_settings(plan)
    _add_thesis(plan)
    _add_segment_backup(plan)
    plan.set_defaults(answer=_plan)


def _add_thesis(plan: argparse.ArgumentParser) -> None:
    thesis = plan.add_argument_group("the methods chain-dp, chain-dp-refined and tree-dp")
    thesis.add_argument("--steps", type=at_least(1), metavar="Z", help="steps of the budget (default: 60)")
    thesis.add_argument(
        "--frequencies", type=at_least(1), metavar="F", help="steps of the frequency (tree-dp; default: 100)"
    )
    thesis.add_argument(
        "--max-frequency", type=float, metavar="F_MAX", help="the largest frequency (tree-dp; default: 200)"
    )


def _add_segment_backup(plan: argparse.ArgumentParser) -> None:
    costs = plan.add_argument_group("the cost model of Segment Backup")
    costs.add_argument(
        "--segment-backup",
        type=Path,
        metavar="FILE",
        help="the cheapest connectors and barrier interval for the application in FILE",
    )
    costs.add_argument("--max-recovery-delay", type=seconds, metavar="S", help="how long a recovery may take")


def _plan(args: argparse.Namespace) -> int:
    from tidelock.cli.commands.plan import plan

    return plan(args)


# -- tidelock profile


def _add_profile(commands: Commands[Any]) -> None:
    profile = add(commands, "profile", "measure the operators of a pipeline, and this machine, on a sample")
    add_file(profile)
    profile.add_argument(
        "--out", type=Path, metavar="FILE", help="where to write it (default: NAME.topology.json, here)"
    )
    profile.add_argument(
        "--epochs",
        type=at_least(2),
        default=SAMPLE,
        metavar="N",
        help="epochs to look at one by one (default: %(default)s)",
    )
    profile.add_argument(
        "--history", type=Path, metavar="HOME", help="take failure rates from what happened in this home"
    )
    add_cache(profile)
    add_master(profile)
    add_settings(profile)
    profile.set_defaults(answer=_profile)


def _profile(args: argparse.Namespace) -> int:
    from tidelock.cli.commands.profile import answer_profile

    return answer_profile(args)
