"""The tables of the benchmark of cached state, with its aims."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.table import Table

Rows = list[dict[str, Any]]

FASTER_THAN_PLAIN = 6.0
SLOWER_WITH_KEYS = 1.5
SLOWER_THAN_SPARK = 0.06
_A_LONG_TIME = 100_000


def show(results: dict[str, Rows]) -> None:
    console = Console()
    for part, rows in results.items():
        for table in _TABLES[part](rows):
            console.print(table)


def recovery(rows: Rows) -> Iterable[Any]:
    yield _compared(rows, "keys", "seconds from the failure of the last operator to the next epoch at the sink")
    many, few = max(row["keys"] for row in rows), min(row["keys"] for row in rows)
    seconds = {(row["variant"], row["keys"]): row["seconds"] for row in rows}
    for variant in ("cache", "cache-redis"):
        if {("plain", many), (variant, many)} <= seconds.keys():
            times = seconds["plain", many] / seconds[variant, many]
            yield _aim(
                f"{variant} at {many:,} keys", times, "times faster than plain", FASTER_THAN_PLAIN, least=True
            )
        if few < many and (variant, many) in seconds:
            times = seconds[variant, many] / seconds[variant, few]
            yield _aim(f"{variant} at {many:,} keys", times, f"times what it takes at {few:,}", SLOWER_WITH_KEYS)


def failures(rows: Rows) -> Iterable[Any]:
    yield _compared(rows, "failures", "seconds after several operators have failed at once", through=True)


def position(rows: Rows) -> Iterable[Any]:
    yield _compared(rows, "position", "seconds after one operator has failed, by its place in the chain")


def interval(rows: Rows) -> Iterable[Any]:
    table = _table(
        "seconds after the cache has lost everything", "snapshot every", "seconds", "epochs taken again"
    )
    for row in rows:
        again = ", ".join(map(str, row["epochs_again"]))
        table.add_row(str(row["snapshot_every"]), f"{row['seconds']:.2f}", again)
    yield table


def throughput(rows: Rows) -> Iterable[Any]:
    table = _table("rows per second, nothing fails", "variant", "snapshot every", "rows/s", "of spark", "of plain")
    speed = {row["variant"]: row["rows_per_second"] for row in rows}
    for row in rows:
        shares = (_share(row["rows_per_second"], speed.get(base)) for base in ("spark", "plain"))
        table.add_row(row["variant"], _every(row["snapshot_every"]), f"{row['rows_per_second']:,.0f}", *shares)
    yield table
    for row in rows:
        if row["variant"].startswith("cache") and "spark" in speed:
            below = 1 - row["rows_per_second"] / speed["spark"]
            what = f"{row['variant']}, a snapshot every {_every(row['snapshot_every'])} epochs"
            yield _aim(what, below, "of the rows per second of spark are lost", SLOWER_THAN_SPARK)


_TABLES = {
    "recovery": recovery,
    "failures": failures,
    "position": position,
    "interval": interval,
    "throughput": throughput,
}


def _compared(rows: Rows, by: str, title: str, *, through: bool = False) -> Table:
    """Seconds by variant, and how many times faster than plain each is."""
    table = _table(title, by, "variant", "seconds", "than plain", *(["until all are through"] if through else []))
    plain = {row[by]: row["seconds"] for row in rows if row["variant"] == "plain"}
    for row in rows:
        faster = f"{plain[row[by]] / row['seconds']:.1f}x" if row[by] in plain else "-"
        more = [f"{row['all_through']:.2f}"] if through else []
        table.add_row(f"{row[by]:,}", row["variant"], f"{row['seconds']:.2f}", faster, *more)
    return table


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title)
    for column in columns:
        table.add_column(column, justify="left" if column == "variant" else "right")
    return table


def _aim(what: str, found: float, told: str, limit: float, *, least: bool = False) -> str:
    reached = found >= limit if least else found <= limit
    return (
        f"{what}: {found:.2f} {told}; the aim is at {'least' if least else 'most'} {limit:g}, "
        f"{'reached' if reached else 'not reached'}"
    )


def _share(speed: float, base: float | None) -> str:
    return "-" if base is None else f"{speed / base:.2f}"


def _every(epochs: int | None) -> str:
    if epochs is None:
        return "-"
    return str(epochs) if epochs < _A_LONG_TIME else "never"
