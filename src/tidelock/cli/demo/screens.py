"""How the demo is told while it happens: a live picture for a terminal, lines for a pipe, nothing for machines."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich import box
from rich.console import Console
from rich.live import Live
from rich.panel import Panel
from rich.text import Text

from tidelock.cli.demo.drawing import drawing
from tidelock.cli.demo.progress import DemoEvent, DemoView
from tidelock.cli.demo.story import DemoScreen

_LINE_EVERY = 5.0

_INTRODUCTION = (
    "Trending keywords: tweets are split into words, stop words dropped, the rest counted, the five most frequent "
    "stored for every epoch. Three segments, with epoch logs between them. First the segment that counts is "
    "killed: it alone restarts. Then the whole process is killed with SIGKILL, Python and JVM, and started again. "
    "In the end everything is compared with a computation without Spark."
)


@contextmanager
def screen_for(console: Console, *, quiet: bool) -> Iterator[DemoScreen]:
    """The screen that fits: none when ``quiet``, live on a terminal, lines elsewhere."""
    if quiet:
        yield NoScreen()
        return
    console.print(Panel(_INTRODUCTION, title="tidelock demo", title_align="left", box=box.ROUNDED))
    if not console.is_terminal:
        yield DemoLineScreen(console)
        return
    with Live(console=console, auto_refresh=False) as live:
        yield DemoLiveScreen(live)


class NoScreen:
    """Tells nobody."""

    def show(self, view: DemoView) -> None:
        """Do nothing."""

    def tell(self, event: DemoEvent) -> None:
        """Do nothing."""


class DemoLineScreen:
    """A line for every event, and one about every five seconds for the progress."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._told = 0.0
        self._epochs: dict[str, int] = {}

    def show(self, view: DemoView) -> None:
        """Print how far the segments are, if they have moved and nothing was told for a while."""
        epochs = view.epochs()
        if any(epochs.values()) and epochs != self._epochs and view.seconds - self._told >= _LINE_EVERY:
            self._epochs = epochs
            done = ", ".join(f"{name} {count}" for name, count in epochs.items())
            self.tell(DemoEvent(view.seconds, f"epochs done: {done}, of {view.goal}"))

    def tell(self, event: DemoEvent) -> None:
        """Print the event."""
        self._told = event.seconds
        self._console.print(Text(str(event)), soft_wrap=True)


class DemoLiveScreen:
    """A picture that moves."""

    def __init__(self, live: Live) -> None:
        self._live = live

    def show(self, view: DemoView) -> None:
        """Draw everything anew."""
        self._live.update(drawing(view), refresh=True)

    def tell(self, event: DemoEvent) -> None:
        """Wait for `show`: the view has all events."""
