"""The end of the demo: the proof, or what is wrong."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

_MOST_DIFFERENCES = 20


def verdict(result: dict[str, Any]) -> RenderableType:
    """What was survived, the comparison, and the sizes."""
    good = result["equal"]
    head = ("exactly once: equal", "bold green") if good else ("NOT exactly once: the results differ", "bold red")
    table = _comparison(_top(result) if good else _differences(result))
    panel = Panel(
        Group(Text(*head), table, *map(Text, _lines(result))),
        box=box.ROUNDED,
        border_style="green" if good else "red",
        expand=False,
    )
    return Padding(panel, (1, 0, 0, 0))


def _lines(result: dict[str, Any]) -> Iterator[str]:
    yield from _right(result) if result["equal"] else _wrong(result)
    segment, process = result["segment"], result["process"]
    yield f"segment {segment['name']} killed: back after {segment['seconds']:.1f} s; {_went_on(segment)} epochs"
    yield f"process killed: the next epoch arrived after {process['seconds']:.1f} s, with a new start of Spark"
    yield f"{result['tweets']:,} tweets, {result['total']:,} words counted, in {result['seconds']:.0f} s"


def _went_on(segment: dict[str, Any]) -> str:
    """How many epochs the other segments have done from the kill to the recovery."""
    done = {name: after - segment["before"][name] for name, after in segment["after"].items()}
    return "meanwhile " + ", ".join(f"{name} +{more}" for name, more in done.items() if name != segment["name"])


def _right(result: dict[str, Any]) -> Iterator[str]:
    more = len(result["counts"]) - len(result["top"])
    again = result["delivered_again"]
    yield f"and the counts of {more} more words, all equal"
    yield (
        f"{result['epochs']} epochs delivered, each once"
        + f" ({again} came a second time and changed nothing)" * bool(again)
        + ", and the list of every epoch is right"
    )


def _wrong(result: dict[str, Any]) -> Iterator[str]:
    words, epochs = len(result["differences"]), result["wrong_epochs"]
    yield f"{words} words differ" + ", the first are shown" * (words > _MOST_DIFFERENCES)
    if epochs:
        yield f"the lists of these epochs are missing or wrong: {', '.join(map(str, epochs))}"


def _top(result: dict[str, Any]) -> list[tuple[str, int | None, int | None]]:
    return [(word, found, found) for word, found in result["top"]]


def _differences(result: dict[str, Any]) -> list[tuple[str, int | None, int | None]]:
    return [(d["word"], d["found"], d["expected"]) for d in result["differences"][:_MOST_DIFFERENCES]]


def _comparison(rows: Sequence[tuple[str, int | None, int | None]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("trending")
    table.add_column("pipeline, killed twice", justify="right")
    table.add_column("computed without Spark", justify="right")
    for word, found, expected in rows:
        table.add_row(Text(word), _number(found), _number(expected))
    return table


def _number(count: int | None) -> str:
    return "missing" if count is None else f"{count:,}"
