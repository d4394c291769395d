"""The commands for jobs that share epochs: subjects, align."""

from __future__ import annotations

import argparse
from typing import Any

from tidelock.cli.options import Commands, add, add_coordinator, at_least, interval, seconds

_PATIENCE = 60.0


def add_alignment(commands: Commands[Any]) -> None:
    """Add the commands to the command line."""
    _add_subjects(commands)
    _add_align(commands)
    _add_cut(commands)


def _add_subjects(commands: Commands[Any]) -> None:
    subjects = add(commands, "subjects", "what jobs publish for others to follow")
    add_coordinator(subjects)
    subjects.set_defaults(answer=_subjects)
    questions = subjects.add_subparsers(metavar="QUESTION")
    show = add(
        questions, "show", "the epochs of a subject, who produces and who follows it, and who is at which epoch"
    )
    show.add_argument("subject", metavar="NAME", help="the public name of the subject")
    show.add_argument(
        "--last", type=at_least(0), default=10, metavar="N", help="list the last N epochs (default: 10)"
    )
    add_coordinator(show, again=True)
    show.set_defaults(answer=_show)

    forget = add(questions, "forget", "let a job that will not come back be unknown, so that no log waits for it")
    forget.add_argument("job", metavar="JOB", help="the name of the pipeline")
    add_coordinator(forget, again=True)
    forget.set_defaults(answer=_forget)


def _forget(args: argparse.Namespace) -> int:
    from tidelock.cli.commands.subjects import forget

    return forget(args)


def _subjects(args: argparse.Namespace) -> int:
    from tidelock.cli.commands.subjects import subjects

    return subjects(args)


def _show(args: argparse.Namespace) -> int:
    from tidelock.cli.commands.subjects import show

    return show(args)


def _add_align(commands: Commands[Any]) -> None:
    align = add(
        commands, "align", "let a running job take the subjects that it follows epoch by epoch, or stop that"
    )
    align.add_argument("job", metavar="JOB", help="the name of the pipeline")
    what = align.add_mutually_exclusive_group()
    what.add_argument(
        "--with",
        dest="subjects",
        nargs="+",
        metavar="SUBJECT",
        help="align it with these (default: all that it follows)",
    )
    what.add_argument("--abort", action="store_true", help="let it go at its own interval again")
    align.add_argument(
        "--timeout", type=seconds, default=_PATIENCE, metavar="S", help="wait at most S seconds (default: 60)"
    )
    add_coordinator(align)
    align.set_defaults(answer=_align)


def _align(args: argparse.Namespace) -> int:
    from tidelock.cli.commands.align import align

    return align(args)


def _add_cut(commands: Commands[Any]) -> None:
    cut = add(commands, "cut", "cut epochs on a Kafka topic whose producer knows nothing of them, until Ctrl-C")
    cut.add_argument("topic", metavar="kafka://HOST:PORT/TOPIC", help="the topic; its records are JSON")
    cut.add_argument(
        "--schema", required=True, metavar="COLUMNS", help="their columns, like `id long, text string`"
    )
    cut.add_argument(
        "--subject", required=True, metavar="NAME", help="the public name under which jobs follow them"
    )
    cut.add_argument(
        "--log", required=True, metavar="URL", help="where the epochs are kept; the records stay in the topic"
    )
    cut.add_argument(
        "--every", type=interval, default=1.0, metavar="S", help="how long an epoch is, in seconds (default: 1)"
    )
    cut.add_argument(
        "--starting",
        choices=("earliest", "latest"),
        default="earliest",
        help="where a new log begins in the topic",
    )
    cut.add_argument(
        "--keep", type=at_least(1), default=1000, metavar="N", help="epochs that stay (default: 1000)"
    )
    cut.add_argument("--epochs", type=at_least(1), metavar="N", help="stop after N epochs with records")
    add_coordinator(cut)
    cut.set_defaults(answer=_cut)


def _cut(args: argparse.Namespace) -> int:
    from tidelock.cli.commands.cut import cut

    return cut(args)
