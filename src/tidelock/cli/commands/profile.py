"""`tidelock profile FILE.py`: measure the operators of a pipeline, and this machine, on a sample."""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tidelock.cli.exits import GOOD
from tidelock.cli.options import SAMPLE
from tidelock.cli.sessions import command_session
from tidelock.home.home import Home
from tidelock.measuring.profiling import history, profile
from tidelock.pipeline.declaration import Declaration
from tidelock.pipeline.loading import load
from tidelock.planning.document import read_model
from tidelock.planning.model import Model
from tidelock.preparing.checks import check_before_spark
from tidelock.spark.frames import SparkSession


def answer_profile(args: argparse.Namespace) -> int:
    """Answer `tidelock profile`.

    Raises:
        TidelockError: the pipeline cannot be measured.
    """
    pipeline = load(args.file)
    out = args.out or topology_file(pipeline)
    check_before_spark(pipeline, cache=args.cache, out=out, history=args.history)
    with (
        _scratch() as folder,
        command_session(pipeline.name, args.conf, master=args.master, log=folder / "spark.log") as spark,
    ):
        document = measured(pipeline, spark, folder, args.epochs, args.history, args.cache)
    keep(document, out)
    if args.json:
        print(json.dumps({"file": str(out), **document}))
    else:
        _show(read_model(document), document, out)
    return GOOD


def topology_file(pipeline: Declaration) -> Path:
    """Where the attributes of a pipeline are looked for if nothing else is said."""
    return Path(f"{pipeline.name}.topology.json")


def keep(document: dict[str, Any], path: Path) -> None:
    """Write a topology file."""
    path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def measured(
    pipeline: Declaration,
    spark: SparkSession,
    folder: Path,
    epochs: int,
    home: Path | None,
    cache: str | None,
    *,
    quiet: bool = False,
) -> dict[str, Any]:
    """The topology file of a pipeline; on standard error its warnings and, unless ``quiet``, each step."""
    failures = history(Home(home)) if home is not None else {}
    console = Console(stderr=True)
    with _steps(console, quiet=quiet) as tell:
        document = profile(pipeline, spark, folder, epochs=epochs, failures=failures, cache=cache, tell=tell)
    for warning in document.get("warnings", []):
        console.print(Text.assemble(("warning", "yellow"), f"  {warning}"), soft_wrap=True)
    return document


def measured_aside(
    pipeline: Declaration, spark: SparkSession, cache: str | None, *, quiet: bool
) -> dict[str, Any]:
    """The same, in a directory that goes."""
    with _scratch() as folder:
        return measured(pipeline, spark, folder, SAMPLE, None, cache, quiet=quiet)


@contextmanager
def _steps(console: Console, *, quiet: bool) -> Iterator[Callable[[str], None]]:
    """Tells what is being measured: in one line that changes on a terminal, in a line for each step elsewhere."""
    if quiet:
        yield lambda what: None
    elif console.is_terminal:
        with console.status("measuring") as status:
            yield lambda what: status.update(f"measuring {what}")
    else:
        yield lambda what: console.print(Text(f"measuring {what}"), soft_wrap=True)


@contextmanager
def _scratch() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="tidelock-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _show(model: Model, document: dict[str, Any], out: Path) -> None:
    console = Console(highlight=False)
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("operator", overflow="fold")
    for name in ("rows/s", "selectivity", "µs/row", "bytes/row", "state", "failures/day"):
        table.add_column(name, justify="right")
    for operator, rate in zip(model.operators, model.rates, strict=True):
        table.add_row(
            operator.name,
            f"{rate:.0f}",
            f"{operator.selectivity:.3g}",
            f"{operator.processing_cost * 1e6:.3g}",
            f"{operator.tuple_size:.3g}",
            f"{operator.state_size / 1e6:.3g} MB" if operator.state_size else "-",
            f"{operator.failure_rate * 86_400:.3g}",
        )
    console.print(table)
    console.print(
        Text(
            f"\na commit takes {model.segment_cost * 1e3:.0f} ms, a restart {model.restart_cost:.1f} s; "
            f"a megabyte is written into a log in {model.storage_cost * 1e9:.1f} ms and read in "
            f"{document['log_read_cost'] * 1e9:.1f} ms, and loaded as state in "
            f"{document['state_load_cost'] * 1e9:.1f} ms\nwritten to {out}: correct it where you know better"
        )
    )
