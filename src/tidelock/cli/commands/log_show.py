"""`tidelock log show URL`: what a log holds, who writes it, and how far its consumers are."""

from __future__ import annotations

import argparse
import json
from datetime import UTC, datetime

from rich import box
from rich.console import Console, RenderableType
from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from tidelock.cli.exits import GOOD
from tidelock.cli.pictures.log_facts import Facts, log_facts
from tidelock.log import EpochLog


def show(args: argparse.Namespace) -> int:
    """Answer `tidelock log show`."""
    facts = log_facts(EpochLog.open(args.url), args.last)
    if args.json:
        print(json.dumps(facts))
        return GOOD
    console = Console(highlight=False)
    for page in (_summary(facts), _cursors(facts), _entries(facts)):
        if page is not None:
            console.print(page, "")
    return GOOD


def _summary(facts: Facts) -> RenderableType:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold")
    for name, value in (
        ("log", f"{facts['name']}  ({facts['url']})"),
        ("columns", ", ".join(f"{c['name']} {c['type']}" for c in facts["columns"])),
        ("epochs", _held(facts)),
        ("rows", f"{facts['rows']:,} in {decimal(facts['bytes'])}"),
        ("keeps", _kept(facts)),
        ("writer", _writer(facts)),
    ):
        grid.add_row(name, Text(value))
    return grid


def _held(facts: Facts) -> str:
    if facts["newest"] is None:
        return "none yet"
    entries = "1 entry" if facts["entries"] == 1 else f"{facts['entries']} entries"
    return f"{facts['oldest']} to {facts['newest']}, in {entries}"


def _kept(facts: Facts) -> str:
    keep = facts["retention"]
    rules = ["what its consumers have not finished" if facts["cursors"] else "everything"]
    if keep["epochs"] is not None or keep["seconds"] is not None:
        rules[0] = "what its consumers have not finished"
    if keep["epochs"] is not None:
        rules.append(f"the last {keep['epochs']} epochs")
    if keep["seconds"] is not None:
        rules.append(f"the last {keep['seconds']:g} seconds")
    if keep["wait_for"]:
        rules.append(f"everything until {', '.join(keep['wait_for'])} has come")
    return "; ".join(rules)


def _writer(facts: Facts) -> str:
    writer = facts["writer"]
    return "nobody yet" if writer is None else f"{writer['owner']} (token {writer['token']})"


def _cursors(facts: Facts) -> RenderableType | None:
    if not facts["cursors"]:
        return None
    table = plain_table("consumer", "finished epoch", "lag")
    for cursor in facts["cursors"]:
        done = "none yet" if cursor["epoch"] < 0 else str(cursor["epoch"])
        table.add_row(Text(cursor["consumer"]), done, _lag(cursor["lag"]))
    return table


def _lag(epochs: int) -> str:
    return "none" if epochs == 0 else "1 epoch" if epochs == 1 else f"{epochs} epochs"


def _entries(facts: Facts) -> RenderableType | None:
    if not facts["last"]:
        return None
    rows = [_cells(entry) for entry in facts["last"]]
    filled = [name for name in rows[0] if any(row[name] for row in rows)]
    table = plain_table(*filled)
    for row in rows:
        table.add_row(*(Text(row[name]) for name in filled))
    return table


def _cells(entry: Facts) -> dict[str, str]:
    watermark = entry["watermark"]
    return {
        "epoch": epochs_text(entry["epochs"]),
        "rows": f"{entry['rows']:,}",
        "bytes": decimal(entry["bytes"]),
        "watermark": "" if watermark is None else moment_text(watermark / 1000),
        "published (UTC)": moment_text(entry["published_at"]),
        "made from": ", ".join(f"{i['log']} {epochs_text(i['epochs'])}" for i in entry["inputs"]),
    }


def plain_table(first: str, *others: str) -> Table:
    """A table without lines, whose first column is text."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column(first, overflow="fold")
    for name in others:
        table.add_column(name, justify="right", overflow="fold")
    return table


def epochs_text(pair: list[int]) -> str:
    """A range of epochs for people."""
    first, last = pair
    return str(first) if first == last else f"{first}-{last}"


def moment_text(seconds: float) -> str:
    """A moment for people, in UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")
