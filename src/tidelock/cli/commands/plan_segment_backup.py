"""`tidelock plan --segment-backup FILE`: cheapest connectors and block length by Segment Backup's cost model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from tidelock.cli.exits import BAD, GOOD
from tidelock.errors import PlanError
from tidelock.planning.segment_backup import Application, CheapestConfiguration, Unreachable, cheapest
from tidelock.planning.segment_backup_document import read_application, read_bound, write_choice


def answer_segment_backup(path: Path, max_recovery_delay: float | None, as_json: bool) -> int:
    """Answer for the application in a file; a bound that is given goes before the one in the file.

    Raises:
        PlanError: the file cannot be read or describes no application, or a queue never stops growing. For people
            also if the bound cannot be met; for machines that is an answer.
    """
    document = _document(path)
    application = read_application(document)
    bound = read_bound(document) if max_recovery_delay is None else max_recovery_delay
    try:
        choice = cheapest(application, bound)
    except Unreachable as unreachable:
        if not as_json:
            raise
        print(json.dumps({"feasible": False, "least_recovery_delay": unreachable.least}))
        return BAD
    if as_json:
        print(json.dumps(write_choice(application, choice, bound)))
    else:
        Console(highlight=False, soft_wrap=True).print(page(application, choice, bound))
    return GOOD


def _document(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise PlanError(f"there is no file {path}") from None
    except OSError as error:
        raise PlanError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise PlanError(f"{path} is not JSON: {error}") from error


def page(application: Application, choice: CheapestConfiguration, bound: float) -> RenderableType:
    """Everything on one page: the nodes, the connectors, the delay and the costs."""
    connectors = choice.configuration.connectors
    blocks = f"{len(connectors)} connectors, blocks of {choice.configuration.block_length} tuples"
    return Group(
        Text(f"{len(application.nodes)} nodes, {blocks}\n"),
        _line(application, connectors),
        Text(),
        _windows(application, choice),
        Text(f"\nrecovery delay  {choice.recovery_delay:.6g} s, of at most {bound:.6g} s\n"),
        _costs(choice),
    )


def _line(application: Application, connectors: tuple[int, ...]) -> Text:
    """The nodes in a row, connectors in brackets."""
    shown = [
        Text(f"[{node.name}]", style="bold") if place in connectors else Text(node.name)
        for place, node in enumerate(application.nodes)
    ]
    return Text(" ─▶ ").join(shown)


def _windows(application: Application, choice: CheapestConfiguration) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("connector", overflow="fold")
    table.add_column("next connector", overflow="fold")
    table.add_column("pending window", justify="right")
    segments = choice.configuration.segments
    for (start, end), tuples in zip(segments, choice.pending_windows, strict=True):
        first, last = application.nodes[start].name, application.nodes[end].name
        table.add_row(Text(first), Text(last), f"{tuples:,.2f} tuples")
    return table


def _costs(choice: CheapestConfiguration) -> Table:
    costs = choice.costs
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, show_footer=True)
    table.add_column("cost per second", footer="total")
    table.add_column("for", footer="")
    table.add_column("price", justify="right", footer=f"{costs.total:.6g}")
    table.add_row("computation", f"{costs.overhead_time:.6g} s", f"{costs.computation:.6g}")
    table.add_row("network", f"{costs.overhead_communication:,.0f} bytes", f"{costs.network:.6g}")
    table.add_row("storage", f"{costs.overhead_storage:,.0f} bytes", f"{costs.storage:.6g}")
    return table
