"""`tidelock backup --home DIR`: copy a home once, or tell how far behind its copy is."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from typing import Any

from rich import box
from rich.console import Console
from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from tidelock.backup.backup import Backup, release
from tidelock.backup.backup import status as backup_status
from tidelock.cli.exits import BAD, GOOD
from tidelock.cli.pictures.segment_table import epoch_text
from tidelock.credentials import without_credentials
from tidelock.home.home import Home


def backup(args: argparse.Namespace) -> int:
    """Answer `tidelock backup`.

    Raises:
        PipelineError: nothing has run in the home, it has no backup to tell of, or another process copies it.
        Fenced: the place belongs to a home that was restored from this one's copy.
        BackendUnavailable: the target does not work.
    """
    home = Home(args.home)
    home.known()  # before anything is made where nothing has run
    console = Console(highlight=False, soft_wrap=True)
    if args.status:
        return _tell(home, console, as_json=args.json)
    copying = Backup(home, args.to)
    with copying.alone():
        try:
            done = asdict(copying.copy())
        finally:
            release(home)  # one pass: nobody may come back for the next one
    if args.json:
        print(json.dumps({"url": without_credentials(args.to), **done}))
    else:
        _print_pass(console, without_credentials(args.to), done)
    return GOOD


def _print_pass(console: Console, url: str, done: dict[str, Any]) -> None:
    size, seconds = decimal(done["bytes"]), done["seconds"]
    console.print(Text.assemble(("copied", "bold green"), f"  to {url}: {size} were new, in {seconds:.1f} s"))
    rows = table("segment", "copied epoch")
    for name, epoch in done["copied"].items():
        rows.add_row(Text(name), epoch_text(epoch))
    console.print(rows)


# -- how far behind


def _tell(home: Home, console: Console, *, as_json: bool) -> int:
    """Print how far the copy is; the answer is bad if the last pass failed."""
    found = backup_status(home)
    if as_json:
        print(json.dumps(found))
    else:
        console.print(Text.assemble(("backup", "bold"), f"  {found['url']}"))
        console.print(_gaps(found["segments"]))
        if found.get("error"):
            console.print(Text(f"the last pass failed: {found['error']}", style="red"))
    return BAD if found.get("error") else GOOD


def _gaps(segments: dict[str, Any]) -> Table:
    rows = table("segment", "epoch", "copied", "behind", "for")
    for name, gap in segments.items():
        rows.add_row(
            Text(name),
            epoch_text(gap["live"]),
            epoch_text(gap["copied"]),
            "-" if gap["behind"] == 0 else str(gap["behind"]),
            "-" if gap["behind"] == 0 else f"{gap['age']:.1f} s",
        )
    return rows


def table(first: str, *others: str) -> Table:
    """A table of names and numbers."""
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    made.add_column(first, overflow="fold")
    for name in others:
        made.add_column(name, justify="right", overflow="fold")
    return made
