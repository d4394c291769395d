"""How segments and events look to people, whoever shows them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

STYLES = {
    "waiting": "yellow",
    "starting": "yellow",
    "running": "green",
    "paused": "cyan",
    "restarting": "bold yellow",
    "stopping": "yellow",
    "stopped": "dim",
    "failed": "bold white on red",
    "killed": "bold red",
}
_LOUD = {
    "segment failed": "red",
    "outage": "red",
    "logs lost": "red",
    "subject recalled": "red",
    "gave up": "bold red",
    "segment recovered": "green",
    "backup failed": "red",
    "backup displaced": "bold red",
    "snapshot failed": "red",
    "state lost": "red",
    "set aside": "red",
    "executor lost": "red",
}
_COLUMNS: Sequence[tuple[str, Any, int]] = (  # the widths keep a live table from jumping
    ("segment", "left", 8),
    ("state", "left", 10),
    ("epoch", "right", 5),
    ("behind", "right", 6),
    ("rows/s", "right", 7),
    ("state rows", "right", 10),
    ("log", "right", 8),
    ("restarts", "right", 8),
)


def segment_table(segments: Sequence[Mapping[str, Any]]) -> RenderableType:
    """A row for each segment of a status document; below them what last went wrong, whole."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for name, side, width in _COLUMNS:
        # A name that finds no room goes on in the next line; it is never cut off.
        table.add_column(name, justify=side, min_width=width, overflow="fold")
    for segment in segments:
        table.add_row(*_cells(segment))
    errors = [
        Text.assemble(("last error", "red"), f"  {segment['name']}: {' '.join(segment['last_error'].split())}")
        for segment in segments
        if segment["last_error"]
    ]
    return Group(table, *errors)


def _cells(segment: Mapping[str, Any]) -> Iterator[RenderableType]:
    yield Text(segment["name"])
    yield Text(segment["state"], style=STYLES.get(segment["state"], ""))
    yield epoch_text(segment["epoch"])
    yield str(segment["lag"])
    yield f"{segment['rows_per_second']:,.0f}"
    yield f"{segment['state_rows']:,}"
    yield decimal(segment["log_bytes"]) if segment["log_bytes"] else "-"
    yield Text(str(segment["restarts"]), style="yellow" if segment["restarts"] else "")


def epoch_text(epoch: int) -> str:
    """An epoch for a person; nobody has heard of epoch -1."""
    return "none" if epoch < 0 else str(epoch)


def shortened(text: str, longest: int) -> str:
    """One line of ``text``, cut where it gets too long.

    >>> shortened("no such word: tide", 12)
    'no such wor…'
    """
    line = " ".join(text.split())
    return line if len(line) <= longest else f"{line[: longest - 1]}…"


def is_bad_news(kind: str) -> bool:
    """Whether an event of this kind tells of something that went wrong."""
    return "red" in _LOUD.get(kind, "")


def event_text(event: Mapping[str, Any]) -> Text:
    """An event on one line: when, what, who."""
    moment = datetime.fromtimestamp(event["at"]).strftime("%H:%M:%S")
    who = f"{event['segment']}: " if event["segment"] else ""
    what = (f"{event['kind']:<17}", _LOUD.get(event["kind"], "bold"))
    return Text.assemble((moment, "dim"), "  ", what, f"  {who}{event['text']}")
