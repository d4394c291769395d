"""How segments and events look to people, whoever shows them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from rich import box
from rich.console import RenderableType
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
}
_LONGEST_ERROR = 60

_COLUMNS: Sequence[tuple[str, Any, int]] = (  # the widths keep a live table from jumping
    ("segment", "left", 10),
    ("state", "left", 10),
    ("epoch", "right", 6),
    ("behind", "right", 6),
    ("rows/s", "right", 9),
    ("state rows", "right", 10),
    ("log", "right", 8),
    ("restarts", "right", 8),
    ("last error", "left", 10),
)


def segment_table(segments: Iterable[Mapping[str, Any]]) -> Table:
    """A row for each segment of a status document."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name, side, width in _COLUMNS:
        table.add_column(name, justify=side, min_width=width, no_wrap=True)
    for segment in segments:
        table.add_row(*_cells(segment))
    return table


def _cells(segment: Mapping[str, Any]) -> Iterator[RenderableType]:
    yield Text(segment["name"])
    yield Text(segment["state"], style=STYLES.get(segment["state"], ""))
    yield epoch_text(segment["epoch"])
    yield str(segment["lag"])
    yield f"{segment['rows_per_second']:,.0f}"
    yield f"{segment['state_rows']:,}"
    yield decimal(segment["log_bytes"]) if segment["log_bytes"] else "-"
    yield Text(str(segment["restarts"]), style="yellow" if segment["restarts"] else "")
    yield Text(shortened(segment["last_error"] or "", _LONGEST_ERROR), style="red")


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


def event_text(event: Mapping[str, Any]) -> Text:
    """An event on one line: when, what, who."""
    moment = datetime.fromtimestamp(event["at"]).strftime("%H:%M:%S")
    who = f"{event['segment']}: " if event["segment"] else ""
    what = (f"{event['kind']:<17}", _LOUD.get(event["kind"], "bold"))
    return Text.assemble((moment, "dim"), "  ", what, f"  {who}{event['text']}")
