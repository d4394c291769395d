"""`tidelock status --home DIR`: how a pipeline is doing, whoever runs it and whether it runs at all."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from tidelock.cli.exits import GOOD
from tidelock.cli.pictures.home_picture import cutting_of
from tidelock.cli.pictures.levels import levels
from tidelock.cli.pictures.segment_table import STYLES, epoch_text, event_text, segment_table
from tidelock.home.home import Home
from tidelock.running import status as home_status
from tidelock.topology import text

Facts = dict[str, Any]

_LOOK_EVERY = 1.0
_EVENTS_SHOWN = 10


def status(args: argparse.Namespace) -> int:
    """Answer `tidelock status`.

    Raises:
        PipelineError: nothing has run there.
    """
    home = Home(args.home)
    looks = _looks(home) if args.watch else iter([facts(home)])
    try:
        _show(home, looks, as_json=args.json)
    except KeyboardInterrupt:
        if not args.watch:
            raise
    return GOOD


def facts(home: Home) -> Facts:
    """The status of a home, and the failures of its life by level."""
    return {**home_status.status(home).to_json(), "home": str(home.root), "levels": levels(home.events())}


def _looks(home: Home) -> Iterator[Facts]:
    while True:
        yield facts(home)
        time.sleep(_LOOK_EVERY)


def _show(home: Home, looks: Iterator[Facts], *, as_json: bool) -> None:
    console = Console(highlight=False)
    if as_json:
        for look in looks:
            print(json.dumps(look), flush=True)
    elif console.is_terminal:
        with Live(console=console, auto_refresh=False, vertical_overflow="visible") as live:
            for look in looks:
                live.update(page(home, look, console.width), refresh=True)
    else:
        for look in looks:
            console.print(page(home, look, console.width), soft_wrap=True)


def page(home: Home, found: Facts, width: int) -> RenderableType:
    """Everything that a person may want to know, on one page."""
    picture = text(cutting_of(home.known()), width, {s["name"]: _mark(s) for s in found["segments"]})
    events = [event_text(event) for event in found["events"][-_EVENTS_SHOWN:]]
    return Group(
        _headline(found),
        segment_table(found["segments"]),
        Text(picture),
        Text(),
        Text.assemble(("failures", "bold"), f"  {_told(found['levels'])}"),
        *_drift(found),
        Text(),
        *events,
    )


def _headline(found: Facts) -> Text:
    state = found["state"]
    where = f"  in {found['home']}"
    if found["epoch"] >= 0:
        where = f"  epoch {found['epoch']} has gone through everywhere,{where[1:]}"
    hint = ": its process is gone, `tidelock run` goes on where it was" if state == "killed" else ""
    return Text.assemble((found["pipeline"], "bold"), "  ", (state, STYLES.get(state, "")), hint, where)


def _drift(found: Facts) -> list[Text]:
    """What no longer fits the plan, and what the plan would be now."""
    drift = found.get("drift")
    if not drift:
        return []
    lines = [Text.assemble(("drift", "bold yellow"), f"  {change}") for change in drift["told"]]
    if drift["plan"] is None:
        return [*lines, Text(f"       {drift['why']}")]
    if drift["same_plan"]:
        return [*lines, Text("       the plan would be the same now")]
    segments = "; ".join(
        f"{', '.join(one['operators'])} every {one['epochs_per_batch']}" for one in drift["plan"]["segments"]
    )
    return [
        *lines,
        Text(f"       the plan would be now, in epochs: {segments}"),
        Text("       to change it: stop it, `tidelock profile`, `tidelock plan --budget B --apply --home DIR`"),
    ]


def _mark(segment: Facts) -> str:
    return f"{segment['state']} · epoch {epoch_text(segment['epoch'])}"


def _told(count: dict[str, int]) -> str:
    """The levels with their numbers, from the smallest harm to the largest."""
    return " · ".join(f"{level.replace('_', ' ')} {number}" for level, number in count.items())
