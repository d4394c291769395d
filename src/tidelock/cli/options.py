"""What the parsers of all commands share. Nothing heavy is imported here."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

Commands = argparse._SubParsersAction  # argparse has no public name for it


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


def setting(text: str) -> tuple[str, str]:
    """A setting of Spark, as a type for argparse.

    >>> setting("spark.sql.shuffle.partitions=4")
    ('spark.sql.shuffle.partitions', '4')
    """
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not a setting like spark.sql.shuffle.partitions=4")
    return key, value
