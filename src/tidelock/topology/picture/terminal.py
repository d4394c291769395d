"""A topology and its segments as text for a terminal. Pure.

One line per segment: what it reads, what it computes, what it writes; a log is written in brackets. Then the logs,
who reads them and why they are there, then the loops.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence

from tidelock.topology.cutting import Cutting, Segment
from tidelock.topology.graph import Topology
from tidelock.topology.picture.drawing import Picture, topology_of

ARROW = " ─▶\N{NO-BREAK SPACE}"  # lines break before an arrow, not behind it
NARROWEST = 24  # of the last column, however wide the others are


def text(picture: Picture, width: int = 100, marks: Mapping[str, str] | None = None) -> str:
    """A picture for a terminal that is ``width`` characters wide.

    Args:
        picture: A cutting, or a topology that is not cut yet.
        width: Where lines are wrapped; single names are never broken.
        marks: What to say about a segment beside its name, such as "running · epoch 7".
    """
    topology = topology_of(picture)
    lines = [_title(picture)]
    if isinstance(picture, Cutting):
        lines += _table(_segment_rows(picture, marks or {}), width)
        lines += _section("logs", _log_rows(picture), width)
    else:
        lines += _table(_node_rows(picture), width)
    lines += _section("loops", _loop_rows(topology), width)
    return "\n".join(line.replace("\N{NO-BREAK SPACE}", " ").rstrip() for line in lines)


def _title(picture: Picture) -> str:
    topology = topology_of(picture)
    if isinstance(picture, Cutting):
        return (
            f"{topology.name}: {_counted(len(picture.segments), 'segment')}, {_counted(len(picture.cuts), 'log')}"
        )
    return f"{topology.name}: {_counted(len(topology.nodes), 'node')}"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


# -- rows


def _segment_rows(cutting: Cutting, marks: Mapping[str, str]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for segment in cutting.segments:
        mark = (marks.get(segment.name, ""),) if marks else ()
        rows.append((segment.name, *mark, _segment_line(cutting.topology, segment)))
    return rows


def _segment_line(topology: Topology, segment: Segment) -> str:
    line = _flow(topology, segment, segment.name, set())
    return f"{line}{ARROW}[{segment.writes}]" if segment.writes else line


def _flow(topology: Topology, segment: Segment, name: str, told: set[str]) -> str:
    """How rows come to ``name`` inside the segment; a node that is met again is only named."""
    if name in told:
        return name
    told.add(name)
    parts = [
        _flow(topology, segment, one, told) if one in segment.operators else f"[{one}]"
        for one in topology.forward_inputs(name)
    ]
    parts += [f"↺\N{NO-BREAK SPACE}[{one}]" for one in topology.back_inputs(name)]
    return _joined(parts, name)


def _joined(parts: Sequence[str], name: str) -> str:
    if not parts:
        return name
    before = parts[0] if len(parts) == 1 else f"({', '.join(parts)})"
    return f"{before}{ARROW}{name}"


def _node_rows(topology: Topology) -> list[tuple[str, ...]]:
    return [
        (
            node.kind.value,
            _joined(
                [
                    *topology.forward_inputs(node.name),
                    *(f"↺ {one}" for one in topology.back_inputs(node.name)),
                ],
                node.name,
            ),
        )
        for node in topology.nodes
    ]


def _log_rows(cutting: Cutting) -> list[tuple[str, ...]]:
    return [(f"[{cut.log}]", _log_line(cutting, cut.log, cut.why)) for cut in cutting.cuts]


def _log_line(cutting: Cutting, log: str, why: str) -> str:
    readers = [
        f"↺ {segment.name}" if read.lag else segment.name
        for segment in cutting.readers(log)
        for read in segment.inputs
        if read.log == log
    ]
    return f"{ARROW.strip()} {', '.join(readers) or 'nobody here'} · {why}"


def _loop_rows(topology: Topology) -> list[tuple[str, ...]]:
    edges = sorted(topology.back_edges, key=lambda edge: tuple(topology.position(name) for name in edge))
    return [
        (f"↺ {origin}{ARROW}{reader}", f"what {origin} gives in one epoch, {reader} reads in the next")
        for origin, reader in edges
    ]


# -- tables


def _section(title: str, rows: Sequence[tuple[str, ...]], width: int) -> list[str]:
    return ["", title, *_table(rows, width)] if rows else []


def _table(rows: Sequence[tuple[str, ...]], width: int) -> list[str]:
    """Columns under each other, a rail on the left; the last column wraps."""
    columns = [max(len(row[place]) for row in rows) for place in range(len(rows[0]) - 1)]
    indent = 2 + sum(columns) + 2 * len(columns)
    return [line for place, row in enumerate(rows) for line in _row(row, columns, indent, width, place, len(rows))]


def _row(
    row: tuple[str, ...], columns: Sequence[int], indent: int, width: int, place: int, of: int
) -> Iterator[str]:
    last = place == of - 1
    first = place == 0
    corner = "╶" if first and last else "┌" if first else "└" if last else "├"
    cells = "".join(f"{cell:<{size}}  " for cell, size in zip(row, columns, strict=False))
    room = max(width - indent, NARROWEST)
    lines = textwrap.wrap(row[-1], room, break_long_words=False, break_on_hyphens=False)
    yield f"{corner} {cells}{lines[0]}"
    for line in lines[1:]:
        yield f"{' ' if last else '│'} {' ' * (indent - 2)}{line}"
