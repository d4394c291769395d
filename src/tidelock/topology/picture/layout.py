"""Where the shapes of a picture stand: columns by longest path, rows so that chains run straight. Pure.

A shape also keeps the cells to its right free, up to its farthest reader, so that no line runs through another
shape. Shapes that read nothing stand right before their first reader.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count

from tidelock.topology.picture.drawing import Drawing


@dataclass(frozen=True)
class Place:
    """A cell of the grid."""

    column: int
    row: int


@dataclass(frozen=True)
class CellFrame:
    """A rectangle of cells, both corners included."""

    first: Place
    last: Place

    def holds(self, place: Place) -> bool:
        """Whether the cell is inside."""
        return (
            self.first.column <= place.column <= self.last.column and self.first.row <= place.row <= self.last.row
        )

    def meets(self, other: CellFrame) -> bool:
        """Whether the two have a cell in common."""
        return (
            self.first.column <= other.last.column
            and other.first.column <= self.last.column
            and self.first.row <= other.last.row
            and other.first.row <= self.last.row
        )


def arrange(drawing: Drawing) -> dict[str, Place]:
    """A cell for every shape; no two share one."""
    columns = _columns(drawing)
    taken: set[Place] = set()
    places: dict[str, Place] = {}
    for shape in drawing.shapes:
        column = columns[shape.key]
        until = max((columns[one] for one in drawing.forward_from(shape.key)), default=column + 1)
        rows = [places[one].row for one in drawing.forward_into(shape.key)]
        row = _free_row(column, until, sum(rows) // len(rows) if rows else 0, taken)
        places[shape.key] = Place(column, row)
        taken.update(Place(across, row) for across in range(column, until))
    return places


def frames(drawing: Drawing, places: Mapping[str, Place]) -> dict[str, CellFrame]:
    """A frame for each segment that can have one: it holds nothing foreign and meets no other frame."""
    found: dict[str, CellFrame] = {}
    for segment in drawing.segments:
        cells = [places[shape.key] for shape in drawing.shapes if shape.segment == segment]
        frame = _around(cells)
        foreign = [places[shape.key] for shape in drawing.shapes if shape.segment != segment]
        if not any(frame.holds(cell) for cell in foreign) and not any(map(frame.meets, found.values())):
            found[segment] = frame
    return found


def _columns(drawing: Drawing) -> dict[str, int]:
    columns: dict[str, int] = {}
    for shape in drawing.shapes:
        columns[shape.key] = max((columns[one] + 1 for one in drawing.forward_into(shape.key)), default=0)
    for shape in drawing.shapes:
        readers = drawing.forward_from(shape.key)
        if readers and not drawing.forward_into(shape.key):
            columns[shape.key] = min(columns[one] for one in readers) - 1
    return columns


def _free_row(column: int, until: int, wanted: int, taken: set[Place]) -> int:
    for distance in count():
        for row in sorted({wanted - distance, wanted + distance}):
            if row >= 0 and all(Place(across, row) not in taken for across in range(column, until)):
                return row
    raise AssertionError("unreachable: rows do not end")


def _around(cells: list[Place]) -> CellFrame:
    columns = [cell.column for cell in cells]
    rows = [cell.row for cell in cells]
    return CellFrame(Place(min(columns), min(rows)), Place(max(columns), max(rows)))
