"""How the demo is told: live tables for a terminal, lines for a pipe, nothing for machines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tidelock.cli.demo.progress import Event, QueryView, State, View
from tidelock.cli.demo.story import Screen
from tidelock.epochs import BEFORE_FIRST, EpochRange

_STYLES = {
    State.STARTING: "yellow",
    State.RUNNING: "green",
    State.KILLED: "bold white on red",
    State.RESTARTING: "yellow",
    State.DONE: "bold green",
}
_TOP_WORDS = 5
_MOST_DIFFERENCES = 20
_LINE_EVERY = 5.0

_INTRODUCTION = (
    "Two Spark streaming queries, each in a process of its own. The first splits tweets into words and writes "
    "them to an epoch log, the second counts them. In the middle the second one is killed with SIGKILL, Python "
    "and JVM, and started again on its checkpoint; the first one does not notice. In the end the counts are "
    "compared with a batch over the same tweets."
)


# -- while it happens


@contextmanager
def screen_for(console: Console, *, quiet: bool) -> Iterator[Screen]:
    """The screen that fits: none when ``quiet``, live on a terminal, lines elsewhere."""
    if quiet:
        yield NoScreen()
        return
    console.print(Panel(_INTRODUCTION, title="tidelock demo", title_align="left", box=box.ROUNDED))
    if not console.is_terminal:
        yield LineScreen(console)
        return
    with Live(console=console, auto_refresh=False) as live:
        yield LiveScreen(live)


class NoScreen:
    """Tells nobody."""

    def show(self, view: View) -> None:
        """Do nothing."""

    def tell(self, event: Event) -> None:
        """Do nothing."""


class LineScreen:
    """A line for every event, and one about every five seconds for the progress."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._told = 0.0
        self._epochs: list[int] = []

    def show(self, view: View) -> None:
        """Print how far the queries are, if they have moved and nothing was told for a while."""
        epochs = [query.epochs for query in view.queries]
        if any(epochs) and epochs != self._epochs and view.seconds - self._told >= _LINE_EVERY:
            self._epochs = epochs
            done = ", ".join(f"{query.name} {query.epochs}" for query in view.queries)
            self.tell(Event(view.seconds, f"epochs done: {done}, of {view.goal}"))

    def tell(self, event: Event) -> None:
        """Print the event."""
        self._told = event.seconds
        self._console.print(Text(str(event)), soft_wrap=True)


class LiveScreen:
    """A table that moves, and the events below it."""

    def __init__(self, live: Live) -> None:
        self._live = live

    def show(self, view: View) -> None:
        """Draw everything anew."""
        self._live.update(drawing(view), refresh=True)

    def tell(self, event: Event) -> None:
        """Wait for `show`: the view has all events."""


def drawing(view: View) -> RenderableType:
    """What a terminal shows of the demo at one moment."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name, side, width in _COLUMNS:
        table.add_column(name, justify=side, min_width=width, no_wrap=True)
    for query in view.queries:
        table.add_row(*_cells(query, view.goal))
    events = [Text(f" {event}", style="dim" if event is not view.events[-1] else "") for event in view.events]
    return Group(table, Text(f" {_kept(view)}", style="cyan"), Text(), *events)


_COLUMNS: Sequence[tuple[str, Any, int]] = (  # the widths keep the table from jumping
    (" query", "left", 16),
    ("process", "right", 7),
    ("state", "left", 10),
    ("progress", "left", 20),
    ("epochs", "right", 6),
    ("rows out", "right", 9),
    ("behind", "right", 9),
)


def _cells(query: QueryView, goal: int) -> Iterator[RenderableType]:
    yield f" {query.name}"
    yield str(query.pid)
    yield Text(query.state.value, style=_STYLES[query.state])
    yield ProgressBar(total=goal, completed=min(query.epochs, goal), width=20)
    yield f"{query.epochs}/{goal}"
    yield f"{query.rows:,}"
    yield "" if query.lag is None else "1 epoch" if query.lag == 1 else f"{query.lag} epochs"


def _kept(view: View) -> str:
    if not view.kept:
        return "the log between them is still empty"
    held = EpochRange(view.kept[0].first, view.kept[-1].last)
    done = "no epoch yet" if view.finished == BEFORE_FIRST else f"epoch {view.finished}"
    return f"the log between them holds epochs {held}; its consumer has finished {done}"


# -- in the end


def verdict(result: dict[str, Any]) -> RenderableType:
    """The proof, or the differences."""
    sizes = (
        f"{result['epochs']} epochs, {result['tweets']:,} tweets, {result['total']:,} words counted, "
        f"{len(result['counts'])} different ones, in {result['seconds']:.0f} s"
    )
    if result["equal"]:
        head = Text("exactly once: equal", style="bold green")
        return _framed("green", head, _comparison(_top(result)), Text(_rest(result)), Text(sizes))
    head = Text("NOT exactly once: the counts differ", style="bold red")
    wrong = [(d["word"], d["found"], d["expected"]) for d in result["differences"]]
    more = f"{len(wrong)} words differ" + (", the first are shown" if len(wrong) > _MOST_DIFFERENCES else "")
    return _framed("red", head, _comparison(wrong[:_MOST_DIFFERENCES]), Text(more), Text(sizes))


def _framed(style: str, *rows: RenderableType) -> RenderableType:
    return Padding(Panel(Group(*rows), box=box.ROUNDED, border_style=style, expand=False), (1, 0, 0, 0))


def _top(result: dict[str, Any]) -> list[tuple[str, int, int]]:
    return [(word, found, found) for word, found in list(result["counts"].items())[:_TOP_WORDS]]


def _rest(result: dict[str, Any]) -> str:
    return f"and {max(0, len(result['counts']) - _TOP_WORDS)} more, all equal"


def _comparison(rows: Sequence[tuple[str, int | None, int | None]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("word")
    table.add_column("two queries and a kill", justify="right")
    table.add_column("one batch", justify="right")
    for word, found, expected in rows:
        table.add_row(Text(word), _number(found), _number(expected))
    return table


def _number(count: int | None) -> str:
    return "missing" if count is None else f"{count:,}"
