"""What a terminal shows of the demo at one moment: the pipeline, its progress, what has happened."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tidelock.cli.demo.progress import DemoEvent, DemoSegment, DemoView
from tidelock.cli.pictures.segment_table import STYLES

_EVENTS_SHOWN = 14

_COLUMNS: Sequence[tuple[str, Any, int]] = (  # the widths keep the table from jumping
    (" segment", "left", 10),
    ("state", "left", 10),
    ("progress", "left", 20),
    ("epochs", "right", 6),
    ("behind", "right", 9),
    ("restarts", "right", 8),
)


def drawing(view: DemoView) -> RenderableType:
    """The whole picture."""
    return Group(_pipeline(view.segments), _table(view), *map(_line, view.events[-_EVENTS_SHOWN:]))


def _pipeline(segments: Sequence[DemoSegment]) -> RenderableType:
    """A box for each segment, in the colour of its state, with the logs between them."""
    grid = Table.grid(padding=(0, 1))
    cells: list[RenderableType] = []
    for segment in segments:
        cells += [_log(segment)] * bool(cells) + [_box(segment)]
    grid.add_row(*cells)
    return grid


def _box(segment: DemoSegment) -> Panel:
    style = STYLES.get(segment.state, "")
    names = Text(f"{' → '.join(segment.operators):^12}", no_wrap=True)  # room for the longest state
    return Panel(names, box=box.ROUNDED, border_style=style, subtitle=Text(segment.state, style), expand=False)


def _log(reader: DemoSegment) -> Text:
    """The log before a segment: an arrow, with the number of epochs that wait in it."""
    waiting = f"{reader.lag:>2} wait" if reader.lag else ""
    return Text.assemble((f"{waiting:^7}", "yellow"), "\n", ("──log─▶", "dim"))


def _table(view: DemoView) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name, side, width in _COLUMNS:
        table.add_column(name, justify=side, min_width=width, no_wrap=True)
    for segment in view.segments:
        table.add_row(*_cells(segment, view.goal))
    return table


def _cells(segment: DemoSegment, goal: int) -> Iterator[RenderableType]:
    yield f" {segment.name}"
    yield Text(segment.state, style=STYLES.get(segment.state, ""))
    yield ProgressBar(total=goal, completed=min(segment.epochs, goal), width=20)
    yield f"{segment.epochs}/{goal}"
    yield "1 epoch" if segment.lag == 1 else f"{segment.lag} epochs" if segment.lag else ""
    yield str(segment.restarts or "")


def _line(event: DemoEvent) -> Text:
    return Text(f" {event}", style="bold" if event.loud else "dim", no_wrap=True, overflow="ellipsis")
