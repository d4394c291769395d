"""`tidelock log verify URL`: read every entry of a log and list what is damaged."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.filesize import decimal
from rich.progress import track
from rich.text import Text

from tidelock.cli.exits import BAD, GOOD
from tidelock.cli.pictures.log_facts import still_there
from tidelock.epochs import EpochRange
from tidelock.errors import LogCorrupt
from tidelock.log import EpochLog, open_store
from tidelock.log.entry import Manifest

Verdict = tuple[EpochRange, Manifest | LogCorrupt]


@dataclass
class Findings:
    """What reading a whole log brought to light."""

    entries: int = 0
    rows: int = 0
    bytes: int = 0
    damaged: list[str] = field(default_factory=list)

    def add(self, verdict: Manifest | LogCorrupt) -> None:
        """Count an entry that is whole, or note what is wrong with it."""
        if isinstance(verdict, LogCorrupt):
            self.damaged.append(str(verdict))
            return
        self.entries += 1
        self.rows += verdict.rows
        self.bytes += verdict.size


def verify(args: argparse.Namespace) -> int:
    """Answer `tidelock log verify`."""
    findings, shown = Findings(), open_store(args.url).shown
    try:
        log = EpochLog.open(args.url)
        for verdict in _shown(_verdicts(log), len(log.store.ranges()), quiet=args.json):
            findings.add(verdict)
        log.ranges()  # is an entry missing altogether?
    except LogCorrupt as damage:
        findings.add(damage)
    if args.json:
        print(json.dumps({"url": shown, "whole": not findings.damaged, **vars(findings)}))
    else:
        _print(shown, findings)
    return BAD if findings.damaged else GOOD


def _verdicts(log: EpochLog) -> Iterator[Manifest | LogCorrupt]:
    for covers, verdict in log.verify():
        if isinstance(verdict, Manifest) or still_there(log, covers):
            yield verdict


def _shown(verdicts: Iterable[Any], total: int, *, quiet: bool) -> Iterable[Any]:
    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        return verdicts
    return track(verdicts, "reading", total=total, console=console, transient=True)


def _print(url: str, findings: Findings) -> None:
    console = Console(highlight=False, soft_wrap=True)
    whole = f"{findings.entries} entries, {findings.rows:,} rows, {decimal(findings.bytes)}"
    if not findings.damaged:
        console.print(Text.assemble(("whole", "bold green"), f"  {url}: {whole}"))
        return
    console.print(Text.assemble(("damaged", "bold red"), f"  {url}: only {whole} can be read"))
    for damage in findings.damaged:
        console.print(Text(f"  {damage}"))
