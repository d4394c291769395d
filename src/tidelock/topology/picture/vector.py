"""A topology and its segments as a self-contained SVG. Pure.

Every node has the colour of its segment, and a rounded box stands round the nodes of a segment where it can hold
them and nothing else; where it cannot, the segment's name stands over its output node.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape

from tidelock.topology.graph import Kind
from tidelock.topology.picture.drawing import Arrow, Drawing, DrawnNode, Picture, draw
from tidelock.topology.picture.layout import CellFrame, Place, arrange, frames

# Fill and outline, by turns.
COLOURS = (
    ("#dbeafe", "#2563eb"),
    ("#dcfce7", "#15803d"),
    ("#fef3c7", "#b45309"),
    ("#fae8ff", "#a21caf"),
    ("#ffe4e6", "#be123c"),
    ("#cffafe", "#0e7490"),
    ("#ede9fe", "#6d28d9"),
    ("#ecfccb", "#4d7c0f"),
)
PLAIN = ("#f8fafc", "#475569")
LINE = "#64748b"
CORNERS = {Kind.SOURCE: 17, Kind.OPERATOR: 6, Kind.SINK: 0}
LETTER = 7.2  # width of a letter, in pixels, generously
NODE_HEIGHT, ROW_HEIGHT, MARGIN, TOP = 34, 104, 28, 64
CYLINDER, CYLINDER_HEIGHT = 22, 28


@dataclass(frozen=True)
class _Grid:
    """From cells to pixels."""

    places: Mapping[str, Place]
    node: float
    gap: float

    def left(self, column: int) -> float:
        return MARGIN + column * (self.node + self.gap)

    def middle(self, row: int) -> float:
        return TOP + row * ROW_HEIGHT + NODE_HEIGHT / 2

    def at(self, key: str) -> tuple[float, float]:
        """The left end of a shape, at half its height."""
        place = self.places[key]
        return self.left(place.column), self.middle(place.row)

    def cylinder(self, key: str) -> float:
        """The left end of the log that a shape writes."""
        return self.at(key)[0] + self.node + self.gap * 0.35

    @property
    def size(self) -> tuple[float, float]:
        columns = 1 + max(place.column for place in self.places.values())
        rows = 1 + max(place.row for place in self.places.values())
        return self.left(columns) + MARGIN, TOP + rows * ROW_HEIGHT + MARGIN


def svg(picture: Picture, marks: Mapping[str, str] | None = None) -> str:
    """A picture for a page: no scripts, no links, no fonts of its own.

    Args:
        picture: A cutting, or a topology that is not cut yet.
        marks: What to say about a segment below its output, such as "running · epoch 7".
    """
    drawing = draw(picture)
    marks = marks or {}
    grid = _grid(drawing, marks)
    width, height = grid.size
    body = [
        *_boxes(drawing, grid),
        *(_line(arrow, grid, height) for arrow in drawing.arrows),
        *(part for log in drawing.logs for part in _cylinder(log.writer, log.label, log.name, grid)),
        *(part for shape in drawing.shapes for part in _node(shape, drawing, grid)),
        *_marks(drawing, marks, grid),
    ]
    return "\n".join([*_head(drawing.title, width, height), *body, "</svg>"]) + "\n"


def _grid(drawing: Drawing, marks: Mapping[str, str]) -> _Grid:
    labels = [*(shape.name for shape in drawing.shapes), *marks.values()]
    extra = max((len(log.label) for log in drawing.logs if log.label != log.name), default=0)
    return _Grid(
        places=arrange(drawing),
        node=max(72, max(map(len, labels)) * LETTER + 24),
        gap=max(96, extra * LETTER + 16) if drawing.logs else 56,
    )


def _head(title: str, width: float, height: float) -> list[str]:
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
        f'height="{height:.0f}" font-family="ui-sans-serif, system-ui, sans-serif" font-size="12" role="img">',
        f"<title>{escape(title)}</title>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
        f'orient="auto"><path d="M0 0L8 4L0 8z" fill="{LINE}"/></marker></defs>',
        f'<rect width="{width:.0f}" height="{height:.0f}" rx="8" fill="#ffffff"/>',
        _text(MARGIN, 24, title, anchor="start", weight="600"),
    ]


# -- segments


def _boxes(drawing: Drawing, grid: _Grid) -> Iterator[str]:
    boxes = frames(drawing, grid.places)
    for segment in drawing.segments:
        if segment in boxes:
            yield from _box(segment, boxes[segment], drawing, grid)
        else:
            x, y = grid.at(_output(segment))
            yield _text(x, y - NODE_HEIGHT / 2 - 6, segment, anchor="start", colour=_colours(segment, drawing)[1])


def _box(segment: str, frame: CellFrame, drawing: Drawing, grid: _Grid) -> Iterator[str]:
    fill, outline = _colours(segment, drawing)
    x, y = grid.left(frame.first.column) - 12, grid.middle(frame.first.row) - NODE_HEIGHT / 2 - 22
    width = grid.left(frame.last.column) + grid.node + 12 - x
    height = grid.middle(frame.last.row) + NODE_HEIGHT / 2 + 24 - y
    yield (
        f'<rect class="segment" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="10" '
        f'fill="{fill}" fill-opacity="0.35" stroke="{outline}" stroke-dasharray="2 3"/>'
    )
    yield _text(x + 8, y + 14, segment, anchor="start", colour=outline)


def _marks(drawing: Drawing, marks: Mapping[str, str], grid: _Grid) -> Iterator[str]:
    for segment in drawing.segments:
        if segment in marks:
            x, y = grid.at(_output(segment))
            yield _text(x + grid.node / 2, y + NODE_HEIGHT / 2 + 16, marks[segment], size=11)


def _output(segment: str) -> str:
    return f"{segment}/{segment}"


def _colours(segment: str | None, drawing: Drawing) -> tuple[str, str]:
    if segment is None:
        return PLAIN
    return COLOURS[drawing.segments.index(segment) % len(COLOURS)]


# -- nodes, logs and lines


def _node(shape: DrawnNode, drawing: Drawing, grid: _Grid) -> Iterator[str]:
    x, y = grid.at(shape.key)
    fill, outline = _colours(shape.segment, drawing)
    yield (
        f'<rect class="{shape.kind.value}" x="{x:.1f}" y="{y - NODE_HEIGHT / 2:.1f}" width="{grid.node:.1f}" '
        f'height="{NODE_HEIGHT}" rx="{CORNERS[shape.kind]}" fill="{fill}" stroke="{outline}" stroke-width="1.5"/>'
    )
    yield _text(x + grid.node / 2, y + 4, shape.name)


def _cylinder(writer: str, label: str, name: str, grid: _Grid) -> Iterator[str]:
    x, (left, y) = grid.cylinder(writer), grid.at(writer)
    half, lid = CYLINDER / 2, 5
    top, bottom = y - CYLINDER_HEIGHT / 2 + lid, y + CYLINDER_HEIGHT / 2 - lid
    yield _path(f"M{left + grid.node:.1f} {y:.1f}H{x:.1f}")
    yield (
        f'<g class="log" fill="#ffffff" stroke="{LINE}"><title>{escape(label)}</title>'
        f'<path d="M{x:.1f} {top:.1f}V{bottom:.1f}a{half} {lid} 0 0 0 {CYLINDER} 0V{top:.1f}"/>'
        f'<ellipse cx="{x + half:.1f}" cy="{top:.1f}" rx="{half}" ry="{lid}"/></g>'
    )
    if label != name:
        yield _text(x + half, y + CYLINDER_HEIGHT / 2 + 14, label, size=10)


def _line(arrow: Arrow, grid: _Grid, height: float) -> str:
    x, y = grid.at(arrow.start)
    start = grid.cylinder(arrow.start) + CYLINDER if arrow.log else x + grid.node
    end, level = grid.at(arrow.end)
    if arrow.back:
        return _loop(start, y, end + grid.node / 2, level + NODE_HEIGHT / 2, height)
    # Straight on through the cells that the layout keeps free, then over to the reader's row.
    bend = max(start, grid.left(grid.places[arrow.end].column) - grid.gap * 0.4)
    reach = (end - bend) / 2
    return _path(
        f"M{start:.1f} {y:.1f}H{bend:.1f}C{bend + reach:.1f} {y:.1f} {end - reach:.1f} {level:.1f} "
        f"{end:.1f} {level:.1f}",
        tip=True,
    )


def _loop(start: float, y: float, end: float, level: float, height: float) -> str:
    low = min(max(y, level) + ROW_HEIGHT, height + MARGIN)
    return _path(
        f"M{start:.1f} {y:.1f}C{start + 40:.1f} {low:.1f} {end:.1f} {low:.1f} {end:.1f} {level:.1f}",
        tip=True,
        dashed=True,
    )


def _path(track: str, *, tip: bool = False, dashed: bool = False) -> str:
    look = ' marker-end="url(#tip)"' if tip else ""
    look += ' class="back" stroke-dasharray="5 4"' if dashed else ""
    return f'<path d="{track}" fill="none" stroke="{LINE}" stroke-width="1.4"{look}/>'


def _text(
    x: float,
    y: float,
    label: str,
    *,
    anchor: str = "middle",
    colour: str = "#0f172a",
    size: int = 12,
    weight: str = "400",
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" font-weight="{weight}" '
        f'fill="{colour}">{escape(label)}</text>'
    )
