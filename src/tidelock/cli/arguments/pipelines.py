"""The commands that run a pipeline and look after it: run, status, stop."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from tidelock.cli.options import (
    Commands,
    add,
    add_budget,
    add_cache,
    add_coordinator,
    add_file,
    add_home,
    add_logs,
    add_master,
    add_max_batch,
    add_plan_option,
    add_settings,
    add_topology,
    at_least,
    seconds,
)


def add_pipelines(commands: Commands[Any]) -> None:
    """Add the commands to the command line."""
    _add_run(commands)
    _add_status(commands)
    _add_stop(commands)


# -- tidelock run


def _add_run(commands: Commands[Any]) -> None:
    run = add(commands, "run", "run a pipeline under supervision, or go on where it was")
    add_file(run)
    run.add_argument(
        "--home",
        type=Path,
        metavar="DIR",
        help="the directory that keeps its state (default: the pipeline's name and .tidelock, here)",
    )
    add_logs(run)
    add_cache(run)
    add_coordinator(run)
    add_plan_option(run)
    add_budget(run)
    add_max_batch(run)
    add_topology(run)
    run.add_argument("--backup", metavar="URL", help="copy checkpoints and logs there while it runs")
    run.add_argument("--epochs", type=at_least(1), metavar="N", help="stop when N epochs have gone through")
    run.add_argument(
        "--accept-changes",
        action="store_true",
        help="go on although operators that keep state have changed: you know that the old state fits",
    )
    run.add_argument(
        "--drain",
        action="store_true",
        help="take what is there now, let it go through everywhere with all that it closes, and end",
    )
    how_much = run.add_mutually_exclusive_group()
    how_much.add_argument(
        "-v", "--verbose", action="store_true", help="a line every second, with all segments, instead of a table"
    )
    how_much.add_argument(
        "-q", "--quiet", action="store_true", help="nothing but what goes wrong, and the last line"
    )
    add_master(run)
    add_settings(run)
    run.set_defaults(answer=_run)


def _run(args: argparse.Namespace) -> int:
    from tidelock.cli.commands.run import run

    return run(args)


# -- tidelock status


def _add_status(commands: Commands[Any]) -> None:
    status = add(commands, "status", "how a pipeline is doing, running or not")
    add_home(status)
    status.add_argument("--watch", action="store_true", help="look again every second, until Ctrl-C")
    status.set_defaults(answer=_status)


def _status(args: argparse.Namespace) -> int:
    from tidelock.cli.commands.status import status

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
    from tidelock.cli.commands.stop import stop

    return stop(args)
