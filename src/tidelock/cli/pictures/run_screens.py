"""How a running pipeline is shown: a live table on a terminal, lines in a pipe, JSON for machines."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout, suppress
from enum import Enum
from typing import Any, Protocol, TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from tidelock.cli.pictures.progress import Goal, Meter, segments_told
from tidelock.cli.pictures.segment_table import STYLES, epoch_text, event_text, is_bad_news, segment_table
from tidelock.home.events import RunEvent

_EVENTS_SHOWN = 10


class Screen(Protocol):
    """Where a run is told. One thread at a time. Whatever it does raises what its output raises."""

    every: float | None
    """After how many seconds it wants the status again while the pipeline runs; None if never."""

    def show(self, status: Mapping[str, Any]) -> None:
        """Show how the pipeline is doing now."""

    def tell(self, event: RunEvent) -> None:
        """Tell that something happened."""

    def end(self, status: Mapping[str, Any]) -> None:
        """Tell how it ended."""


class Volume(Enum):
    """How much is told."""

    QUIET = "quiet"
    USUAL = "usual"
    VERBOSE = "verbose"


@contextmanager
def screen_for(*, as_json: bool, goal: Goal | None = None, volume: Volume = Volume.USUAL) -> Iterator[Screen]:
    """The screen that fits to standard output.

    What the user's own code prints appears above a live table, among lines, or, where a machine reads standard
    output, on standard error.
    """
    meter = Meter(goal or Goal())
    if as_json:
        output = sys.stdout
        with redirect_stdout(sys.stderr):
            yield JsonScreen(output, meter, volume)
        return
    console = _Output(highlight=False)
    live = Live(console=console, auto_refresh=False)
    if not console.is_terminal or volume is not Volume.USUAL or not _starts(live):
        yield LineScreen(console, meter, volume)
        return
    try:
        yield LiveScreen(live, meter)
    finally:
        with suppress(OSError):  # the terminal is gone
            live.stop()


def _starts(live: Live) -> bool:
    """Start a live table; whether its terminal is there."""
    try:
        live.start()
    except OSError:
        return False
    return True


class _Output(Console):
    """A console that leaves to its users what a broken pipe means; by itself it would end the process."""

    def on_broken_pipe(self) -> None:
        raise


_EVERY = {Volume.QUIET: None, Volume.USUAL: 9.5, Volume.VERBOSE: 1.0}


class JsonScreen:
    """One JSON object a line: for each event, now and then for progress, and for the last status."""

    def __init__(self, output: TextIO, meter: Meter, volume: Volume = Volume.USUAL) -> None:
        self._output = output
        self._meter = meter
        self.every = _EVERY[volume]

    def show(self, status: Mapping[str, Any]) -> None:
        """Print how far it is."""
        self._print({"progress": self._meter.read(status).fields()})

    def tell(self, event: RunEvent) -> None:
        """Print the event."""
        self._print({"event": event.to_json()})

    def end(self, status: Mapping[str, Any]) -> None:
        """Print the status."""
        self._print({"status": status})

    def _print(self, fields: Mapping[str, Any]) -> None:
        print(json.dumps(fields), file=self._output, flush=True)


class LineScreen:
    """A line for each event, and now and then one that says how far it is."""

    def __init__(self, console: Console, meter: Meter, volume: Volume = Volume.USUAL) -> None:
        self._console = console
        self._meter = meter
        self._volume = volume
        self.every = _EVERY[volume]

    def show(self, status: Mapping[str, Any]) -> None:
        """Print how far it is."""
        progress = self._meter.read(status)
        text = self._meter.told(progress)
        if self._volume is Volume.VERBOSE:
            text = f"{text} | {segments_told(status)}"
        kind = f"epoch {epoch_text(progress.epoch)}"
        line = event_text({"at": status["at"], "kind": kind, "segment": None, "text": text})
        self._print(line)

    def tell(self, event: RunEvent) -> None:
        """Print the event; a quiet screen only what is bad news."""
        if self._volume is not Volume.QUIET or is_bad_news(event.kind):
            self._print(event_text(event.to_json()))

    def end(self, status: Mapping[str, Any]) -> None:
        """Print where it ended."""
        self._print(ending(status))

    def _print(self, line: Text) -> None:
        with self._console.capture() as made:
            self._console.print(line, soft_wrap=True)
        # Not by the console, which keeps what it could not write and tries it all again with the next line.
        print(made.get(), end="", file=self._console.file, flush=True)


class LiveScreen:
    """A table that moves, and the newest events below it."""

    every: float | None = 0.0

    def __init__(self, live: Live, meter: Meter) -> None:
        self._live = live
        self._meter = meter
        self._gone = False

    def show(self, status: Mapping[str, Any]) -> None:
        """Draw everything anew."""
        self._draw(drawing(status, self._meter.told(self._meter.read(status))))

    def tell(self, event: RunEvent) -> None:
        """Wait for `show`: the status has the events."""

    def end(self, status: Mapping[str, Any]) -> None:
        """Draw it for the last time, and leave it there."""
        self._draw(Group(drawing(status), Text(), ending(status)))

    def _draw(self, picture: RenderableType) -> None:
        if self._gone:
            return
        try:
            self._live.update(picture, refresh=True)
        except OSError:  # a terminal does not come back, and the console keeps what it could not write
            self._gone = True
            raise


def drawing(status: Mapping[str, Any], progress: str | None = None) -> RenderableType:
    """What a terminal shows of a pipeline at one moment; ``progress`` is how far it is, in a line."""
    head = Text.assemble(
        (status["pipeline"], "bold"), "  ", (status["state"], STYLES.get(status["state"], "")),
        f"  epoch {epoch_text(status['epoch'])} has gone through everywhere" if status["epoch"] >= 0 else "",
    )  # fmt: skip
    hint = Text("Ctrl-C stops it when all logs are read, twice at the next epoch", style="dim")
    events = [event_text(event) for event in status["events"][-_EVENTS_SHOWN:]]
    for event in events:
        event.overflow = "fold"
    hints = [Text(), hint] if status["state"] == "running" else []
    lines = [] if progress is None else [Text(progress, overflow="fold")]
    return Group(head, *lines, segment_table(status["segments"]), *events, *hints)


def ending(status: Mapping[str, Any]) -> Text:
    """One line: how it ended, and how far it came."""
    done = "no epoch has gone through everywhere"
    if status["epoch"] >= 0:
        done = f"every epoch up to {status['epoch']} has gone through everywhere"
    return Text.assemble((status["state"], STYLES.get(status["state"], "")), f"  {status['pipeline']}: {done}")
