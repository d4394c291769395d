"""The commands that run a pipeline and look after it: run, status, stop, plan."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from tidelock.cli.options import Commands, add, add_home, at_least, seconds, setting


def add_pipelines(commands: Commands[Any]) -> None:
    """Add the commands to the command line."""
    _add_run(commands)
    _add_status(commands)
    _add_stop(commands)
    _add_plan(commands)


# -- tidelock run


def _add_run(commands: Commands[Any]) -> None:
    run = add(commands, "run", "run a pipeline under supervision, or go on where it was")
    _add_file(run)
    run.add_argument(
        "--home",
        type=Path,
        metavar="DIR",
        help="the directory that keeps its state (default: the pipeline's name and .tidelock, here)",
    )
    run.add_argument("--log", metavar="URL", help="where its logs are kept (default: in the home)")
    _add_plan_option(run)
    run.add_argument("--backup", metavar="URL", help="copy checkpoints and logs there while it runs")
    run.add_argument("--epochs", type=at_least(1), metavar="N", help="stop when N epochs have gone through")
    run.add_argument("--master", metavar="M", help="where Spark runs (default: local[*,4])")
    _add_settings(run)
    run.set_defaults(answer=_run)


def _run(args: argparse.Namespace) -> int:
    from tidelock.cli.run import run

    return run(args)


# -- tidelock status


def _add_status(commands: Commands[Any]) -> None:
    status = add(commands, "status", "how a pipeline is doing, running or not")
    add_home(status)
    status.add_argument("--watch", action="store_true", help="look again every second, until Ctrl-C")
    status.set_defaults(answer=_status)


def _status(args: argparse.Namespace) -> int:
    from tidelock.cli.status import status

    return status(args)


# -- tidelock stop


def _add_stop(commands: Commands[Any]) -> None:
    stop = add(commands, "stop", "stop a pipeline at the boundary of an epoch")
    add_home(stop)
    stop.add_argument("--now", action="store_true", help="do not wait until all logs are read empty")
    stop.add_argument(
        "--timeout", type=seconds, metavar="S", help="wait at most S seconds (default: as long as it takes)"
    )
    stop.set_defaults(answer=_stop)


def _stop(args: argparse.Namespace) -> int:
    from tidelock.cli.stop import stop

    return stop(args)


# -- tidelock plan


def _add_plan(commands: Commands[Any]) -> None:
    plan = add(commands, "plan", "the segments that a pipeline is cut into, and why; nothing is run")
    _add_file(plan)
    _add_plan_option(plan)
    plan.add_argument(
        "--picture", choices=("text", "mermaid", "svg"), default="text", help="how to draw it (default: text)"
    )
    plan.add_argument("--out", type=Path, metavar="FILE", help="put the picture into a file")
    _add_settings(plan)
    plan.set_defaults(answer=_plan)


def _plan(args: argparse.Namespace) -> int:
    from tidelock.cli.plan import plan

    return plan(args)


# -- what several of them take


def _add_file(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "file",
        metavar="FILE.py[:name]",
        help="the file that declares the pipeline, and which one if it has several",
    )


def _add_plan_option(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--plan",
        metavar="PLAN",
        help="one (only the cuts that Spark needs), each (a segment for every operator), or a JSON file",
    )


def _add_settings(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--conf",
        type=setting,
        action="append",
        default=[],
        metavar="K=V",
        help="a setting for Spark; may be given several times",
    )
