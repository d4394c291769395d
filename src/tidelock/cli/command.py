"""The command line: what can be asked, and who answers.

Every command is imported when it is called, so that `tidelock --help` answers at once.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from tidelock.cli.arguments.alignment import add_alignment
from tidelock.cli.arguments.backups import add_backups
from tidelock.cli.arguments.pipelines import add_pipelines
from tidelock.cli.arguments.planning import add_planning
from tidelock.cli.exits import exit_code
from tidelock.cli.options import Commands, add, at_least
from tidelock.credentials import FILE, PASSWORDS, has_password
from tidelock.release import version
from tidelock.urls import masked

_SEEN = (
    "a password on the command line can be seen by everybody on this machine (ps): put it into "
    f"${PASSWORDS}, or into the file that ${FILE} names"
)


def main(argv: Sequence[str] | None = None) -> int:
    """Answer one command line (the process's own, if none is given) and return the exit code.

    Raises:
        SystemExit: from argparse, for `--help`, `--version` and a command line that it refuses.
    """
    words = sys.argv[1:] if argv is None else argv
    args = _parser().parse_args(words)
    if any(map(has_password, words)):
        print(f"tidelock: {_SEEN}", file=sys.stderr)
    return exit_code(lambda: int(args.answer(args)))


class _Parser(argparse.ArgumentParser):
    """A parser, and those of its commands, that tells what it refuses without the passwords in it."""

    def error(self, message: str) -> NoReturn:
        super().error(masked(message))


def _parser() -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = _Parser(
        prog="tidelock",
        description="Epoch logs between PySpark streaming queries: recovery that is fast and exactly once.",
    )
    parser.add_argument("--version", action="version", version=f"tidelock {version()}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    add_pipelines(commands)
    add_planning(commands)
    add_backups(commands)
    add_alignment(commands)
    _add_log(commands)
    _add_demo(commands)
    return parser


# -- tidelock demo


def _add_demo(commands: Commands[argparse.ArgumentParser]) -> None:
    demo = add(
        commands,
        "demo",
        "a pipeline in three segments, of which one and then the whole process are killed, and the proof that "
        "every tweet counted exactly once",
    )
    demo.add_argument("--epochs", type=at_least(5), default=14, metavar="N", help="how long it runs (default: 14)")
    demo.add_argument(
        "--rows", type=at_least(1), default=2000, metavar="N", help="tweets per epoch (default: 2000)"
    )
    demo.add_argument("--seed", type=int, default=42, help="which tweets are made (default: 42)")
    demo.add_argument(
        "--home",
        type=Path,
        metavar="DIR",
        help="the home of the pipeline; kept (default: a temporary directory)",
    )
    demo.add_argument("--keep", action="store_true", help="keep the temporary directory as well")
    demo.set_defaults(answer=_demo)


def _demo(args: argparse.Namespace) -> int:
    from tidelock.cli.demo.run import demo

    return demo(args)


# -- tidelock log


def _add_log(commands: Commands[argparse.ArgumentParser]) -> None:
    log = commands.add_parser("log", help="look at an epoch log", description="Look at an epoch log.")
    questions = log.add_subparsers(required=True, metavar="QUESTION")
    show = add(questions, "show", "what a log holds, who writes it, and how far its consumers are")
    show.add_argument(
        "--last", type=at_least(0), default=10, metavar="N", help="list the last N entries (default: 10)"
    )
    show.set_defaults(answer=_show)
    verify = add(questions, "verify", "read every entry of a log and list what is damaged")
    verify.set_defaults(answer=_verify)
    for question in (show, verify):
        question.add_argument("url", metavar="URL", help="where the log is: file:/path, or a path")


def _show(args: argparse.Namespace) -> int:
    from tidelock.cli.commands.log_show import show

    return show(args)


def _verify(args: argparse.Namespace) -> int:
    from tidelock.cli.commands.log_verify import verify

    return verify(args)
