"""Pictures: complete, well-formed, and readable in a terminal."""

import re
from xml.etree import ElementTree

import pytest
from tests.unit.topology.shapes import chain, cut_one, operator, pipeline, sink, source

from tidelock.topology import Cutting, Plan, Topology, cut, mermaid, svg, text
from tidelock.topology.picture.drawing import draw
from tidelock.topology.picture.layout import arrange, frames

LINEAR = cut(chain(), Plan(anchors=frozenset({"c", "z"})), {})
SPLITTING = cut(
    pipeline(
        source("a"),
        operator("b", "a"),
        operator("c", "b", subject='top <ics> & "more"'),
        operator("d", "b"),
        sink("y", "c"),
        sink("z", "d"),
    ),
    Plan(copies=frozenset("b")),
    {},
)
MERGING = cut_one(pipeline(source("a"), source("b"), operator("c", "a"), operator("d", "c", "b"), sink("z", "d")))
MIXED = cut_one(
    pipeline(
        source("edges"),
        source("tweets"),
        operator("words", "tweets"),
        operator("scores", "edges", "ranks"),
        operator("ranks", "scores", "words"),
        operator("tops", "words", "scores"),
        sink("store", "ranks"),
        sink("show", "tops"),
        ranks="id long",
    )
)
CUTTINGS = {"linear": LINEAR, "splitting": SPLITTING, "merging": MERGING, "mixed": MIXED}
PICTURES = {**CUTTINGS, "bare": MIXED.topology}
each_picture = pytest.mark.parametrize("picture", PICTURES.values(), ids=PICTURES)
each_cutting = pytest.mark.parametrize("cutting", CUTTINGS.values(), ids=CUTTINGS)


def nodes(picture: Cutting | Topology) -> set[str]:
    topology = picture.topology if isinstance(picture, Cutting) else picture
    return {node.name for node in topology.nodes}


def words(picture: str) -> set[str]:
    return set(re.findall(r"\w+", picture))


# -- the terminal

MIXED_TEXT = """\
trending: 6 segments, 4 logs
┌ edges                       edges ─▶ [edges]
├ words                       tweets ─▶ words ─▶ [words]
├ scores  running · epoch 7   ([edges], ↺ [ranks]) ─▶ scores ─▶ [scores]
├ ranks                       ([scores], [words]) ─▶ ranks ─▶ [ranks]
├ store                       [ranks] ─▶ store
└ show    waiting · epoch 12  ([words], [scores]) ─▶ tops ─▶ show

logs
┌ [edges]   ─▶ scores · scores also reads the log of ranks, and a query
│           reads sources or logs
├ [words]   ─▶ ranks, show · ranks and tops read words, and a query has one
│           output only
├ [scores]  ─▶ ranks, show · ranks and tops read scores, and a query has one
│           output only
└ [ranks]   ─▶ ↺ scores, store · ranks is fed back into scores

loops
╶ ↺ ranks ─▶ scores  what ranks gives in one epoch, scores reads in the next"""


def test_a_mixed_topology_in_a_terminal() -> None:
    marks = {"scores": "running · epoch 7", "show": "waiting · epoch 12"}
    assert text(MIXED, 76, marks=marks) == MIXED_TEXT


def test_a_chain_in_a_terminal() -> None:
    assert text(LINEAR).splitlines()[:4] == [
        "trending: 3 segments, 2 logs",
        "┌ b  a ─▶ b ─▶ [b]",
        "├ d  [b] ─▶ c ─▶ d ─▶ [d]",
        "└ z  [d] ─▶ z",
    ]


def test_a_merge_in_a_terminal() -> None:
    assert text(MERGING) == "trending: 1 segment, 0 logs\n╶ z  (a ─▶ c, b) ─▶ d ─▶ z"


def test_a_node_that_is_met_again_is_only_named() -> None:
    topology = pipeline(
        source("a"), operator("b", "a"), operator("c", "b"), operator("d", "b", "c"), sink("z", "d")
    )
    cutting = cut(topology, Plan(copies=frozenset("b")), {})
    assert "(a ─▶ b, b ─▶ c) ─▶ d ─▶ z" in text(cutting)


def test_a_topology_without_segments_in_a_terminal() -> None:
    lines = text(MIXED.topology).splitlines()
    assert lines[0] == "trending: 8 nodes"
    assert "├ operator  (edges, ↺ ranks) ─▶ scores" in lines


@each_picture
@pytest.mark.parametrize("width", [40, 80])
def test_a_terminals_width_is_kept(picture: Cutting | Topology, width: int) -> None:
    drawn = text(picture, width)
    assert nodes(picture) <= words(drawn)
    assert max(map(len, drawn.splitlines())) <= max(width, 52)


# -- Mermaid


@each_picture
def test_mermaid_has_every_node(picture: Cutting | Topology) -> None:
    chart = mermaid(picture)
    assert chart.startswith("flowchart LR\n")
    assert nodes(picture) <= words(chart)
    declared = set(re.findall(r"^ +(\w+)[\[(]", chart, flags=re.MULTILINE))
    used = {name for edge in re.findall(r"^ +(\w+) -\S+ (\w+)$", chart, flags=re.MULTILINE) for name in edge}
    assert used <= declared


@each_cutting
def test_mermaid_has_a_subgraph_for_each_segment_and_a_cylinder_for_each_log(cutting: Cutting) -> None:
    chart = mermaid(cutting)
    assert re.findall(r'subgraph s\d+\["(\w+)"\]', chart) == list(cutting.order)
    assert chart.count("  end\n") == len(cutting.segments)
    assert len(re.findall(r"l\d+\[\(", chart)) == len(cutting.cuts)


def test_mermaid_draws_back_edges_dotted_and_escapes_labels() -> None:
    assert mermaid(MIXED).count("-.->") == 1
    assert '[("c as top #60;ics#62; #38; #34;more#34;")]' in mermaid(SPLITTING)


def test_a_copy_is_drawn_in_each_of_its_segments() -> None:
    assert mermaid(SPLITTING).count('["b"]') == 2


# -- SVG


@each_picture
def test_svg_is_well_formed_and_has_every_name(picture: Cutting | Topology) -> None:
    image = svg(picture)
    root = ElementTree.fromstring(image)
    shown = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert nodes(picture) <= set(shown)
    if isinstance(picture, Cutting):
        assert set(picture.order) <= set(shown)
        assert image.count('class="log"') == len(picture.cuts)
    assert "<script" not in image
    assert "href" not in image


def test_svg_shows_marks_and_escapes_them() -> None:
    image = svg(LINEAR, marks={"d": "epoch < 7 & running"})
    assert "epoch &lt; 7 &amp; running" in image
    ElementTree.fromstring(image)


def test_svg_draws_back_edges_dashed() -> None:
    assert svg(MIXED).count('class="back" stroke-dasharray') == 1


@each_picture
def test_no_two_shapes_share_a_cell(picture: Cutting | Topology) -> None:
    places = arrange(draw(picture))
    assert len(set(places.values())) == len(places)


@each_picture
def test_lines_run_from_left_to_right(picture: Cutting | Topology) -> None:
    drawing = draw(picture)
    places = arrange(drawing)
    assert all(places[arrow.start].column < places[arrow.end].column for arrow in drawing.arrows if not arrow.back)


@each_cutting
def test_a_box_holds_its_segment_and_nothing_else(cutting: Cutting) -> None:
    drawing = draw(cutting)
    places = arrange(drawing)
    for segment, frame in frames(drawing, places).items():
        inside = {shape.segment for shape in drawing.shapes if frame.holds(places[shape.key])}
        assert inside == {segment}


def test_a_segment_without_room_for_a_box_is_named_at_its_output() -> None:
    topology = pipeline(
        source("a"), operator("b", "a"), operator("c", "a", subject="s.c"), operator("d", "a", "b", subject="s.d")
    )
    cutting = cut_one(topology)
    drawing = draw(cutting)
    assert set(frames(drawing, arrange(drawing))) == {"a", "c"}
    assert svg(cutting).count('class="segment"') == 2
    assert set(cutting.order) <= words(svg(cutting))
