"""`tidelock plan FILE.py`: the segments that a pipeline is cut into, and why. Nothing is run."""

from __future__ import annotations

import argparse
import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from tidelock.cli.exits import GOOD
from tidelock.cli.sessions import command_session
from tidelock.runtime.loading import load
from tidelock.runtime.preparing import prepare
from tidelock.topology import Cutting, Plan, Segment, mermaid, svg, text

_WIDTH_OF_FILES = 100


def plan(args: argparse.Namespace) -> int:
    """Answer `tidelock plan`.

    Raises:
        PipelineError: the pipeline cannot be.
        PlanError: the plan does not fit it.
    """
    pipeline = load(args.file)
    pipeline.topology()
    with command_session(pipeline.name, args.conf, master="local[1]", log=Path(os.devnull)) as spark:
        cutting = prepare(pipeline, spark, args.plan).cutting
    answer(cutting, args)
    return GOOD


def answer(cutting: Cutting, args: argparse.Namespace) -> None:
    """Print what was asked for; a picture that has a file of its own is not printed as well."""
    console = Console(highlight=False, soft_wrap=True)
    if args.out is not None:
        args.out.write_text(_picture(cutting, args.picture, _WIDTH_OF_FILES), encoding="utf-8")
    if args.json:
        print(json.dumps(facts(cutting)))
    elif args.picture != "text" and args.out is None:
        print(_picture(cutting, args.picture, console.width))
    else:
        console.print(Text(_picture(cutting, "text", console.width)))
        for note in cutting.notes:
            console.print(Text.assemble("\n", ("note", "yellow"), f"  {note}"))
        if args.out is not None:
            console.print(Text(f"\nthe picture is in {args.out}", style="dim"))


def facts(cutting: Cutting) -> dict[str, Any]:
    """A cutting as plain values; ``plan`` can be given back with `--plan`."""
    return {
        "pipeline": cutting.topology.name,
        "segments": [asdict(segment) for segment in cutting.segments],
        "cuts": [asdict(cut) for cut in cutting.cuts],
        "notes": list(cutting.notes),
        "plan": Plan.to_document(cutting),
    }


def _picture(cutting: Cutting, kind: str, width: int) -> str:
    if kind == "mermaid":
        return mermaid(cutting)
    if kind == "svg":
        return svg(cutting)
    return text(cutting, width, {segment.name: _mark(segment) for segment in cutting.segments})


def _mark(segment: Segment) -> str:
    if segment.epochs_per_batch == 1:
        return segment.mode
    return f"{segment.mode} · {segment.epochs_per_batch} epochs a batch"
