"""`tidelock demo`: a home for it, a screen for it, and the answer."""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from rich.console import Console
from rich.text import Text

from tidelock.cli.demo.children import ChildFailed
from tidelock.cli.demo.screens import screen_for
from tidelock.cli.demo.settings import Settings
from tidelock.cli.demo.story import DemoStory
from tidelock.cli.demo.verdict import verdict
from tidelock.cli.exits import BAD, GOOD
from tidelock.cli.java import check_java
from tidelock.errors import PipelineError


def demo(args: argparse.Namespace) -> int:
    """Answer `tidelock demo`.

    Raises:
        PipelineError: there is no Java, or the home is in use.
        ChildFailed: the pipeline could not be run.
    """
    check_java()
    console = Console(highlight=False)
    kept = args.keep or args.home is not None
    with _home(args.home, kept) as home, _ended_by_sigterm():
        settings = Settings(home, args.epochs, args.rows, args.seed)
        with screen_for(console, quiet=args.json) as screen:
            result = DemoStory(settings, screen).run()
    result["home"] = str(home) if kept else None
    _answer(console, result, as_json=args.json)
    return GOOD if result["equal"] else BAD


def _answer(console: Console, result: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(result))
        return
    console.print(verdict(result))
    hint = "To look at what it leaves behind, add --keep."
    if result["home"] is not None:
        home = shlex.quote(result["home"])
        hint = f"Look at it with: tidelock status --home {home}, tidelock log show {home}/logs/counts"
    console.print(Text(hint, style="dim"), soft_wrap=True)


@contextmanager
def _home(asked: Path | None, kept: bool) -> Iterator[Path]:
    """An empty directory; unless it is to be ``kept`` it goes away, but not after a failure."""
    home = _empty(asked) if asked else Path(tempfile.mkdtemp(prefix="tidelock-demo-")).resolve()
    (home / "scratch").mkdir()
    try:
        yield home
    except ChildFailed:
        print(f"tidelock: everything is left in {home} to look at", file=sys.stderr)
        raise
    except BaseException:
        _remove(home, kept)
        raise
    _remove(home, kept)


def _empty(asked: Path) -> Path:
    home = asked.resolve()
    home.mkdir(parents=True, exist_ok=True)
    if any(home.iterdir()):
        raise PipelineError(f"{home} is not empty: the demo starts from nothing, give it a new directory")
    return home


def _remove(home: Path, kept: bool) -> None:
    shutil.rmtree(home / "scratch" if kept else home, ignore_errors=True)


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Let a polite kill end the demo as Ctrl-C does, with everything cleaned up."""

    def end(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
