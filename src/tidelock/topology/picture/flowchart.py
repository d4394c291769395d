"""A topology and its segments as a Mermaid flowchart. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from tidelock.topology.graph import Kind
from tidelock.topology.picture.drawing import Drawing, DrawnNode, Picture, draw

BRACKETS = {Kind.SOURCE: ("([", "])"), Kind.OPERATOR: ("[", "]"), Kind.SINK: ("[[", "]]")}


def mermaid(picture: Picture) -> str:
    """A flowchart: a subgraph for each segment, a cylinder for each log, dotted arrows for back edges.

    Args:
        picture: A cutting, or a topology that is not cut yet.
    """
    drawing = draw(picture)
    ids = {shape.key: f"n{place}" for place, shape in enumerate(drawing.shapes)}
    logs = {log.name: f"l{place}" for place, log in enumerate(drawing.logs)}
    lines = ["flowchart LR", *_shapes(drawing, ids)]
    lines += [f"  {logs[log.name]}[({_quoted(log.label)})]" for log in drawing.logs]
    lines += [f"  {ids[log.writer]} --> {logs[log.name]}" for log in drawing.logs]
    for arrow in drawing.arrows:
        start = logs[arrow.log] if arrow.log else ids[arrow.start]
        lines.append(f"  {start} {'-.->' if arrow.back else '-->'} {ids[arrow.end]}")
    return "\n".join(lines) + "\n"


def _shapes(drawing: Drawing, ids: dict[str, str]) -> Iterator[str]:
    for shape in drawing.shapes:
        if shape.segment is None:
            yield f"  {_shape(shape, ids)}"
    for place, segment in enumerate(drawing.segments):
        yield f"  subgraph s{place}[{_quoted(segment)}]"
        for shape in drawing.shapes:
            if shape.segment == segment:
                yield f"    {_shape(shape, ids)}"
        yield "  end"


def _shape(shape: DrawnNode, ids: dict[str, str]) -> str:
    left, right = BRACKETS[shape.kind]
    return f"{ids[shape.key]}{left}{_quoted(shape.name)}{right}"


def _quoted(label: str) -> str:
    """A label that Mermaid takes literally, whatever is in it.

    >>> _quoted('a "b" <c>')
    '"a #34;b#34; #60;c#62;"'
    """
    plain = (letter if letter.isalnum() or letter in " _.-" else f"#{ord(letter)};" for letter in label)
    return f'"{"".join(plain)}"'
