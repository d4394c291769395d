"""`tidelock stop --home DIR`: ask the process that runs a home to end, and wait until it has."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from rich.console import Console
from rich.text import Text

from tidelock.cli.exits import BAD, GOOD
from tidelock.cli.pictures.segment_table import epoch_text
from tidelock.home.home import Home
from tidelock.running import status as home_status

_LOOK_EVERY = 0.1


def stop(args: argparse.Namespace) -> int:
    """Answer `tidelock stop`.

    Raises:
        PipelineError: nothing has ever run there.
    """
    home = Home(args.home)
    was_running = home.is_held()
    console = Console(highlight=False, soft_wrap=True)
    began = time.monotonic()
    ended = not was_running or _stopped(home, args, console)
    answer = {**_where(home), "was_running": was_running, "stopped": ended, "seconds": time.monotonic() - began}
    if args.json:
        print(json.dumps(answer))
    else:
        console.print(_told(answer))
    return GOOD if ended else BAD


def _stopped(home: Home, args: argparse.Namespace, console: Console) -> bool:
    request = Request(home, drain=not args.now)
    shown = console.is_terminal and not args.json
    with console.status("asking it to stop") if shown else nullcontext() as spinner:

        def look() -> None:
            request.repeat()
            if spinner is not None:
                spinner.update(_progress(home))

        return _until(lambda: not home.is_held(), look, args.timeout)


class Request:
    """Asks the process that runs a home to stop.

    A process that is still starting throws away what it finds, so the request is put again until the home's events
    say that it was heard. To be asked twice does no harm.
    """

    def __init__(self, home: Home, *, drain: bool) -> None:
        self._home = home
        self._fields = {"drain": drain}
        self._known = len(home.events())

    def repeat(self) -> None:
        """Ask, unless the request lies there still or was heard."""
        heard = any(event["kind"] == "stop asked" for event in self._home.events()[self._known :])
        if not heard and self._home.document("request") is None:
            self._home.put_document("request", self._fields)


def _until(done: Callable[[], bool], look: Callable[[], None], timeout: float | None) -> bool:
    deadline = None if timeout is None else time.monotonic() + timeout
    while not done():
        look()
        if deadline is not None and time.monotonic() >= deadline:
            return False
        time.sleep(_LOOK_EVERY)
    return True


def _progress(home: Home) -> str:
    document = home.document("status") or {"segments": []}
    busy = [f"{s['name']} ({s['lag']} behind)" for s in document["segments"] if s["state"] != "stopped"]
    return f"waiting for {', '.join(busy)}" if busy else "waiting for its process to end"


def _where(home: Home) -> dict[str, Any]:
    found = home_status.status(home)
    epochs = {segment.name: segment.epoch for segment in found.segments}
    return {"home": str(home.root), "pipeline": found.pipeline, "state": found.state, "epochs": epochs}


def _told(answer: dict[str, Any]) -> Text:
    where = ", ".join(f"{name} at epoch {epoch_text(epoch)}" for name, epoch in answer["epochs"].items())
    if not answer["stopped"]:
        wait = f"still running after {answer['seconds']:.0f} s; it was asked to stop and will, or add --now"
        return Text.assemble((answer["pipeline"], "bold"), f"  {wait} ({where})")
    if not answer["was_running"]:
        return Text.assemble((answer["pipeline"], "bold"), f"  does not run: {answer['state']}, {where}")
    return Text.assemble((answer["pipeline"], "bold"), "  ", (answer["state"], "green"), f": {where}")
