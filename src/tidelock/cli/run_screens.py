"""How a running pipeline is shown: a live table on a terminal, lines in a pipe, JSON for machines."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import asdict
from typing import Any, Protocol, TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from tidelock.cli.segment_table import STYLES, epoch_text, event_text, segment_table
from tidelock.runtime.events import Event

_EVENTS_SHOWN = 10


class Screen(Protocol):
    """Where a run is told. One thread at a time."""

    moves: bool
    """Whether it has use for the status while the pipeline runs."""

    def show(self, status: Mapping[str, Any]) -> None:
        """Show how the pipeline is doing now."""

    def tell(self, event: Event) -> None:
        """Tell that something happened."""

    def end(self, status: Mapping[str, Any]) -> None:
        """Tell how it ended."""


@contextmanager
def screen_for(*, as_json: bool) -> Iterator[Screen]:
    """The screen that fits to standard output.

    What the user's own code prints appears above a live table, among lines, or, where a machine reads standard
    output, on standard error.
    """
    if as_json:
        output = sys.stdout
        with redirect_stdout(sys.stderr):
            yield JsonScreen(output)
        return
    console = Console(highlight=False)
    if not console.is_terminal:
        yield LineScreen(console)
        return
    with Live(console=console, auto_refresh=False) as live:
        yield LiveScreen(live)


class JsonScreen:
    """A JSON object on a line of its own for each event, and one for the last status."""

    moves = False

    def __init__(self, output: TextIO) -> None:
        self._output = output

    def show(self, status: Mapping[str, Any]) -> None:
        """Do nothing: machines ask for the status when they want it."""

    def tell(self, event: Event) -> None:
        """Print the event."""
        self._print({"event": asdict(event)})

    def end(self, status: Mapping[str, Any]) -> None:
        """Print the status."""
        self._print({"status": status})

    def _print(self, fields: Mapping[str, Any]) -> None:
        print(json.dumps(fields), file=self._output, flush=True)


class LineScreen:
    """A line for each event."""

    moves = False

    def __init__(self, console: Console) -> None:
        self._console = console

    def show(self, status: Mapping[str, Any]) -> None:
        """Do nothing: `tidelock status` tells it to those who want to know."""

    def tell(self, event: Event) -> None:
        """Print the event."""
        self._console.print(event_text(asdict(event)), soft_wrap=True)

    def end(self, status: Mapping[str, Any]) -> None:
        """Print where it ended."""
        self._console.print(ending(status), soft_wrap=True)


class LiveScreen:
    """A table that moves, and the newest events below it."""

    moves = True

    def __init__(self, live: Live) -> None:
        self._live = live

    def show(self, status: Mapping[str, Any]) -> None:
        """Draw everything anew."""
        self._live.update(drawing(status), refresh=True)

    def tell(self, event: Event) -> None:
        """Wait for `show`: the status has the events."""

    def end(self, status: Mapping[str, Any]) -> None:
        """Draw it for the last time, and leave it there."""
        self._live.update(Group(drawing(status), Text(), ending(status)), refresh=True)


def drawing(status: Mapping[str, Any]) -> RenderableType:
    """What a terminal shows of a pipeline at one moment."""
    head = Text.assemble(
        (status["pipeline"], "bold"), "  ", (status["state"], STYLES.get(status["state"], "")),
        f"  epoch {epoch_text(status['epoch'])} has gone through everywhere" if status["epoch"] >= 0 else "",
    )  # fmt: skip
    hint = Text("Ctrl-C stops it when all logs are read, twice at the next epoch", style="dim")
    events = [event_text(event) for event in status["events"][-_EVENTS_SHOWN:]]
    for event in events:
        event.no_wrap, event.overflow = True, "ellipsis"
    hints = [Text(), hint] if status["state"] == "running" else []
    return Group(head, segment_table(status["segments"]), *events, *hints)


def ending(status: Mapping[str, Any]) -> Text:
    """One line: how it ended, and how far it came."""
    done = "no epoch has gone through everywhere"
    if status["epoch"] >= 0:
        done = f"every epoch up to {status['epoch']} has gone through everywhere"
    return Text.assemble((status["state"], STYLES.get(status["state"], "")), f"  {status['pipeline']}: {done}")
