"""The commands for the day on which a machine is lost: backup, restore."""

from __future__ import annotations

import argparse
from typing import Any

from tidelock.cli.options import Commands, add, add_home, add_logs


def add_backups(commands: Commands[Any]) -> None:
    """Add the commands to the command line."""
    _add_backup(commands)
    _add_restore(commands)


def _add_backup(commands: Commands[Any]) -> None:
    backup = add(commands, "backup", "copy a home, or tell how far behind its copy is")
    add_home(backup)
    what = backup.add_mutually_exclusive_group(required=True)
    what.add_argument("--to", metavar="URL", help="copy what is new to this place, once")
    what.add_argument("--status", action="store_true", help="tell how far behind the copy is")
    backup.set_defaults(answer=_backup)


def _backup(args: argparse.Namespace) -> int:
    from tidelock.cli.commands.backup import backup

    return backup(args)


def _add_restore(commands: Commands[Any]) -> None:
    restore = add(commands, "restore", "build a home from a backup, so that the pipeline can go on from there")
    restore.add_argument("--backup", required=True, metavar="URL", help="where the copy is")
    add_home(restore)
    add_logs(restore)
    restore.set_defaults(answer=_restore)


def _restore(args: argparse.Namespace) -> int:
    from tidelock.cli.commands.restore import restore

    return restore(args)
