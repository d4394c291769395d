"""What the parsers of all commands share. Nothing heavy is imported here."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tidelock.errors import PipelineError, PlanError
from tidelock.planning.rounding import MAX_BATCH
from tidelock.topology.names import EVERY

Commands = argparse._SubParsersAction  # argparse has no public name for it
SAMPLE = 6
"""How many epochs a profile looks at one by one, if nothing else is said."""


def add(commands: Commands[Any], name: str, says: str) -> argparse.ArgumentParser:
    """Add a command that answers people or, with `--json`, machines."""
    command: argparse.ArgumentParser = commands.add_parser(
        name, help=says, description=f"{says[0].upper()}{says[1:]}."
    )
    command.add_argument("--json", action="store_true", help="answer with JSON")
    return command


def add_home(command: argparse.ArgumentParser) -> None:
    """Add the option that names the home of a pipeline, which has to be given."""
    command.add_argument("--home", type=Path, required=True, metavar="DIR", help="the home of the pipeline")


def add_file(command: argparse.ArgumentParser, *, optional: bool = False) -> None:
    """Add the argument that names a pipeline."""
    command.add_argument(
        "file",
        nargs="?" if optional else None,
        metavar="FILE.py[:name]",
        help="the file that declares the pipeline, and which one if it has several",
    )


def add_cache(command: argparse.ArgumentParser) -> None:
    """Add the option that says where operators keep their state, if they keep it in a cache."""
    command.add_argument(
        "--cache",
        metavar="URL",
        help="where operators with `tidelock.keyed` keep their state: redis://host:6379/0/name",
    )


def add_coordinator(command: argparse.ArgumentParser, *, again: bool = False) -> None:
    """Add the option that says through which tree jobs find each other; ``again`` below a command that has it."""
    command.add_argument(
        "--coordinator",
        metavar="URL",
        default=argparse.SUPPRESS if again else None,
        help="the shared tree in which jobs find each other: embedded:/path/tree.db or zookeeper://host:2181/path "
        "(default: $TIDELOCK_COORDINATOR, or a file of this user)",
    )


def add_plan_option(command: argparse.ArgumentParser) -> None:
    """Add the option that says where a pipeline is cut."""
    command.add_argument(
        "--plan",
        metavar="PLAN",
        help="one (only the cuts that Spark needs), each (a segment for every operator), or a JSON file",
    )


def add_budget(command: argparse.ArgumentParser) -> None:
    """Add the option that asks for the best plan within a budget."""
    command.add_argument(
        "--budget",
        type=budget,
        metavar="B",
        help="plan it: the share of time that recovery may cost while nothing fails, such as 0.1",
    )


def check_one_plan(args: argparse.Namespace) -> None:
    """See that a plan is given or asked for, and not both.

    Raises:
        PlanError: it is.
    """
    if args.budget is not None and args.plan is not None:
        raise PlanError("--plan says the plan and --budget asks for one: give one of them")


def add_max_batch(command: argparse.ArgumentParser) -> None:
    """Add the option that bounds how many epochs a planned batch takes."""
    command.add_argument(
        "--max-batch",
        type=at_least(1),
        default=MAX_BATCH,
        metavar="K",
        help="plan no batch of more than K epochs, because results wait for their batch (default: %(default)s)",
    )


def add_topology(command: argparse.ArgumentParser) -> None:
    """Add the option that says where measured attributes are."""
    command.add_argument(
        "--topology",
        type=Path,
        metavar="FILE",
        help="the attributes to plan with (default: NAME.topology.json, as `tidelock profile` writes it)",
    )


def add_master(command: argparse.ArgumentParser) -> None:
    """Add the option that says where Spark runs."""
    command.add_argument("--master", metavar="M", help="where Spark runs (default: local[*,4])")


def add_settings(command: argparse.ArgumentParser) -> None:
    """Add the option with settings for Spark."""
    command.add_argument(
        "--conf",
        type=setting,
        action="append",
        default=[],
        metavar="K=V",
        help="a setting for Spark; may be given several times",
    )


def add_logs(command: argparse.ArgumentParser) -> None:
    """Add the option that says where logs are kept; `asked_logs` reads it."""
    command.add_argument(
        "--log",
        type=log_place,
        action="append",
        default=[],
        metavar="[NODE=]URL",
        help="keep its logs below this URL, or the log of one source or operator; may be given several times "
        "(default: in the home)",
    )


def asked_logs(args: argparse.Namespace) -> dict[str, str]:
    """The places that were asked for, by node.

    Raises:
        PipelineError: there are two for one node.
    """
    places: dict[str, str] = {}
    for node, url in args.log:
        if node in places:
            whose = "all logs" if node == EVERY else f"the log of {node}"
            raise PipelineError(f"--log gives two places for {whose}: give one")
        places[node] = url
    return places


def at_least(least: int) -> Callable[[str], int]:
    """The whole numbers from ``least`` on, as a type for argparse."""

    def parse(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least {least}")
        return int(text)

    return parse


def seconds(text: str) -> float:
    """A time in seconds, as a type for argparse."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    return number


def interval(text: str) -> float:
    """A time in seconds that is not nothing, as a type for argparse."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return number


def budget(text: str) -> float:
    """A budget, as a type for argparse.

    >>> budget("0.1"), budget("10%")
    (0.1, 0.1)
    """
    try:
        number = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        number = -1.0
    if not 0 <= number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a share of time, such as 0.1 or 10%")
    return number


def log_place(text: str) -> tuple[str, str]:
    """A node and the URL below which its log is kept, as a type for argparse.

    >>> log_place("words=redis://host/0/job"), log_place("redis://host/0/job?replicas=1")
    (('words', 'redis://host/0/job'), ('*', 'redis://host/0/job?replicas=1'))
    """
    node, equals, url = text.partition("=")
    named = bool(equals) and node.isidentifier()
    if not text or (named and not url):
        raise argparse.ArgumentTypeError(f"{text!r} is not a URL, nor one for a node like words=file:/path")
    return (node, url) if named else (EVERY, text)


def setting(text: str) -> tuple[str, str]:
    """A setting of Spark, as a type for argparse.

    >>> setting("spark.sql.shuffle.partitions=4")
    ('spark.sql.shuffle.partitions', '4')
    """
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not a setting like spark.sql.shuffle.partitions=4")
    return key, value
