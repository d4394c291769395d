"""`tidelock restore --backup URL --home DIR`: a home made from whatever had been copied."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.text import Text

from tidelock.backup.restore import Restored, RestoredSegment
from tidelock.backup.restore import restore as restored_from
from tidelock.cli.commands.backup import table
from tidelock.cli.exits import GOOD
from tidelock.cli.options import asked_logs
from tidelock.cli.pictures.segment_table import epoch_text
from tidelock.credentials import without_credentials
from tidelock.home.events import Events
from tidelock.home.holding import check_place
from tidelock.home.home import Home


def restore(args: argparse.Namespace) -> int:
    """Answer `tidelock restore`.

    Raises:
        PipelineError: the home is not empty, or there is no complete copy.
        BackendUnavailable: the copy cannot be read.
    """
    home = Home(args.home, asked_logs(args))
    check_place(home.root)
    home.places.check_urls()
    report = restored_from(args.backup, home)
    Events(home).add("restored", None, f"from {without_credentials(args.backup)}: {_positions(report)}")
    if args.json:
        print(json.dumps({"home": str(home.root), **facts(report)}))
    else:
        _print(home, report)
    return GOOD


def facts(report: Restored) -> dict[str, Any]:
    """The report as plain values."""
    segments = {name: {**asdict(s), "rolled_back": s.rolled_back} for name, s in report.segments.items()}
    return {**asdict(report), "segments": segments}


def _positions(report: Restored) -> str:
    return ", ".join(f"{name} at epoch {epoch_text(s.restored)}" for name, s in report.segments.items())


def _print(home: Home, report: Restored) -> None:
    console = Console(highlight=False, soft_wrap=True)
    console.print(
        Text.assemble(("restored", "bold green"), f"  in {home.root}; `tidelock run` goes on from there")
    )
    rows = table("segment", "copied epoch", "restored epoch", "to do again", "log")
    for name, segment in report.segments.items():
        again = str(segment.rolled_back) if segment.rolled_back else "-"
        rows.add_row(Text(name), epoch_text(segment.copied), epoch_text(segment.restored), again, _log(segment))
    console.print(rows)
    for sink, epoch in report.sinks.items():
        console.print(Text(f"sink {sink} goes on with epoch {epoch + 1}; what it delivered later comes again"))
    for damage in report.damaged:
        console.print(Text.assemble(("damaged", "yellow"), f"  {damage}"))


def _log(segment: RestoredSegment) -> str:
    if segment.log_restarted:
        return "begins anew"
    return f"{segment.rewound} dropped" if segment.rewound else "-"
