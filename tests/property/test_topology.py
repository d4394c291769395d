"""Whatever the topology, the plan and the traits: the segments keep every rule, re-checked here from scratch.

The checks know the topology by its edges only and share no code with the rules that they check.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any
from xml.etree import ElementTree

from hypothesis import given, settings
from hypothesis import strategies as st

from tidelock.topology import (
    Cutting,
    Kind,
    Plan,
    Segment,
    Topology,
    TopologyNode,
    Traits,
    connect,
    cut,
    mermaid,
    svg,
    text,
)


@dataclass(frozen=True)
class Case:
    """A question to `cut`."""

    topology: Topology
    plan: Plan
    traits: dict[str, Traits]
    dead_letters: bool

    def cut(self) -> Cutting:
        return cut(self.topology, self.plan, self.traits, dead_letters=self.dead_letters)

    def trait(self, name: str) -> Traits:
        return self.traits.get(name, Traits())


# -- random questions

anchor = st.sampled_from([*[None] * 8, True, False])
mode = st.sampled_from([*["append"] * 6, "update", "complete"])


@st.composite
def topologies(draw: Any) -> Topology:
    nodes = [TopologyNode(f"s{place}", Kind.SOURCE) for place in range(draw(st.integers(1, 3)))]
    for place in range(draw(st.integers(1, 8))):
        inputs = draw(inputs_among(nodes))
        nodes.append(TopologyNode(f"o{place}", Kind.OPERATOR, tuple(inputs), draw(mode), draw(anchor)))
    nodes = [
        replace(node, subject=f"public.{node.name}" if draw(st.integers(0, 15)) == 15 else None) for node in nodes
    ]
    nodes, feedback = draw(loops(nodes))
    return connect("random", draw(st.permutations([*nodes, *draw(sinks(nodes))])), feedback)


@st.composite
def inputs_among(draw: Any, nodes: list[TopologyNode]) -> list[str]:
    """Mostly what nobody reads yet: what is read twice is cut off, and long segments are where rules meet."""
    read = {one for node in nodes for one in node.inputs}
    unread = [node.name for node in nodes if node.name not in read]
    pool = unread if unread and draw(st.integers(0, 4)) else [node.name for node in nodes]
    return draw(st.lists(st.sampled_from(pool), min_size=1, max_size=2, unique=True))


@st.composite
def loops(draw: Any, nodes: list[TopologyNode]) -> tuple[list[TopologyNode], dict[str, str]]:
    """Some operators are fed back into themselves or into an operator that leads to them."""
    feedback: dict[str, str] = {}
    operators = [node.name for node in nodes if node.kind is Kind.OPERATOR]
    for name in draw(st.lists(st.sampled_from(operators), max_size=draw(st.integers(0, 2)), unique=True)):
        by_name = {node.name: node for node in nodes}
        leading = sorted(one for one in _leading_to(name, by_name) if by_name[one].kind is Kind.OPERATOR)
        to = draw(st.sampled_from([name, *leading]))
        if name not in by_name[to].inputs:
            by_name[to] = replace(by_name[to], inputs=(*by_name[to].inputs, name))
        feedback[name] = "id long"
        nodes = list(by_name.values())
    return nodes, feedback


def _leading_to(name: str, by_name: dict[str, TopologyNode]) -> set[str]:
    found: set[str] = set()
    ahead = list(by_name[name].inputs)
    while ahead:
        one = ahead.pop()
        if one not in found:
            found.add(one)
            ahead.extend(by_name[one].inputs)
    return found


@st.composite
def sinks(draw: Any, nodes: list[TopologyNode]) -> list[TopologyNode]:
    """A sink for everything that nobody reads, and for some of the rest."""
    read = {one for node in nodes for one in node.inputs}
    return [
        TopologyNode(
            f"z_{node.name}",
            Kind.SINK,
            (node.name,),
            anchor=draw(anchor),
            epochs_per_batch=draw(st.integers(1, 2)),
        )
        for node in nodes
        if (node.name not in read and node.subject is None) or draw(st.integers(0, 9)) == 9
    ]


@st.composite
def cases(draw: Any) -> Case:
    topology = draw(topologies())
    traits = draw(traits_of(topology))
    names = [node.name for node in topology.nodes]
    readable = [node.name for node in topology.nodes if node.kind is not Kind.SINK]
    stateless = [
        node.name
        for node in topology.nodes
        if node.kind is Kind.OPERATOR
        and not (traits[node.name].stateful or node.subject or node.name in topology.feedback)
        and not topology.back_inputs(node.name)
    ]
    shared = [name for name in stateless if len(topology.consumers(name)) > 1]
    plan = Plan(
        anchors=draw(subsets(names)),
        copies=draw(st.one_of(st.just(frozenset(shared)), subsets(stateless))),
        epochs_per_batch=draw(st.dictionaries(st.sampled_from(names), st.integers(1, 4))),
        logs=draw(subsets(readable)),
    )
    return Case(topology, plan, traits, draw(st.integers(0, 4)) == 4)


def subsets(names: list[str]) -> st.SearchStrategy[frozenset[str]]:
    nothing: st.SearchStrategy[frozenset[str]] = st.just(frozenset())
    return st.one_of(nothing, st.frozensets(st.sampled_from(names), max_size=3)) if names else nothing


@st.composite
def traits_of(draw: Any, topology: Topology) -> dict[str, Traits]:
    found: dict[str, Traits] = {}
    for node in topology.nodes:
        fresh = not any(found[one].watermark for one in topology.ancestors(node.name))
        watermark = fresh and node.kind is not Kind.SINK and draw(st.integers(0, 2)) == 0
        stateful, event_time, function = (
            draw(st.tuples(st.booleans(), st.booleans(), st.booleans()))
            if node.kind is Kind.OPERATOR
            else (False, False, False)
        )
        found[node.name] = Traits(stateful, event_time, function, watermark)
    return found


# -- the checks


def edges(topology: Topology) -> list[tuple[str, str]]:
    """The forward edges."""
    return [
        (one, node.name)
        for node in topology.nodes
        for one in node.inputs
        if (one, node.name) not in topology.back_edges
    ]


def inside(case: Case, segment: Segment, name: str) -> set[str]:
    """What leads to ``name`` within the segment, itself included; logs at the border included."""
    found = {name}
    for _ in case.topology.nodes:
        found |= {one for one, to in edges(case.topology) if to in found and to in segment.operators}
    return found


def check_every_node_is_somewhere_and_only_copies_are_twice(case: Case, cutting: Cutting) -> None:
    stored = {one.log for one in cutting.cuts}
    sinks = {node.name for node in case.topology.nodes if node.kind is Kind.SINK}
    assert set(cutting.order) == stored | sinks
    for node in case.topology.nodes:
        homes = [one.name for one in cutting.segments if node.name in one.operators]
        assert homes
        assert len(homes) == 1 or (node.name in case.plan.copies and node.name not in stored)


def check_a_segment_is_an_in_tree_that_ends_at_logs(case: Case, cutting: Cutting) -> None:
    stored = {one.log for one in cutting.cuts}
    for segment in cutting.segments:
        assert segment.operators[-1] == segment.name
        assert set(segment.operators) == inside(case, segment, segment.name) - stored | {segment.name}
        fresh = {
            one for one, to in edges(case.topology) if to in segment.operators and one not in segment.operators
        }
        lagged = {one for one, to in case.topology.back_edges if to in segment.operators}
        assert {(read.log, read.lag) for read in segment.inputs} == {(one, 0) for one in fresh} | {
            (one, 1) for one in lagged
        }
        assert fresh | lagged <= stored


def check_logs_have_one_writer_and_segments_are_in_order(case: Case, cutting: Cutting) -> None:
    place = {segment.name: at for at, segment in enumerate(cutting.segments)}
    for segment in cutting.segments:
        for read in segment.inputs:
            (writer,) = (one for one in cutting.segments if one.writes == read.log)
            assert read.lag or place[writer.name] < place[segment.name]
            assert segment in cutting.readers(read.log)


def check_what_must_be_stored_is_stored(case: Case, cutting: Cutting) -> None:
    """Rules 1 to 4 and 9."""
    stored = {one.log for one in cutting.cuts}
    for node in case.topology.nodes:
        readers = {other.name for other in case.topology.nodes if node.name in other.inputs}
        if len(readers) > 1:
            assert node.name in stored | case.plan.copies
        if node.subject or node.name in case.topology.feedback:
            assert node.name in stored
        if node.mode != "append" and any(case.topology.node(one).kind is Kind.OPERATOR for one in readers):
            assert node.name in stored
        if node.kind is Kind.SOURCE and case.dead_letters:
            assert node.name in stored
        if node.anchor or (node.anchor is None and node.name in case.plan.anchors):
            assert stored.issuperset(node.inputs)


def check_spark_can_run_every_segment(case: Case, cutting: Cutting) -> None:
    """Rules 5 to 8."""
    for segment in cutting.segments:
        assert not (segment.sources and segment.inputs)
        assert segment.is_head == bool(segment.sources)
        end = segment.operators[-2] if segment.sink and len(segment.operators) > 1 else segment.name
        state = [name for name in segment.operators if case.trait(name).stateful]
        assert segment.mode == "append" or set(state) <= {end}
        assert sum(case.trait(name).function for name in state) <= 1
        for name in state:
            before = inside(case, segment, name) - {name}
            assert not any(
                case.trait(one).function and case.trait(one).event_time for one in state if one in before
            )
            if case.trait(name).event_time:
                assert clocks(case, segment) <= inside(case, segment, name)


def clocks(case: Case, segment: Segment) -> set[str]:
    """Where event time enters the segment."""
    own = {name for name in segment.operators if case.trait(name).watermark}
    read = {
        read.log
        for read in segment.inputs
        if not read.lag
        and any(case.trait(one).watermark for one in {read.log} | case.topology.ancestors(read.log))
    }
    return own | read


def check_several_epochs_are_taken_only_where_nobody_can_tell(case: Case, cutting: Cutting) -> None:
    names = cutting.order
    leads = {(read.log, one.name) for one in cutting.segments for read in one.inputs}
    for middle in names:
        leads |= {(a, b) for a in names for b in names if (a, middle) in leads and (middle, b) in leads}
    careful = {
        one.name
        for one in cutting.segments
        if (one.name, one.name) in leads
        or any(
            case.trait(name).stateful and (case.trait(name).event_time or case.trait(name).function)
            for name in one.operators
        )
    }
    for segment in cutting.segments:
        asked = case.plan.epochs_per_batch.get(
            segment.name, case.topology.node(segment.name).epochs_per_batch if segment.sink else 1
        )
        one_by_one = (
            segment.is_head or segment.name in careful or any((segment.name, other) in leads for other in careful)
        )
        assert segment.epochs_per_batch == (1 if one_by_one else asked)


def check_cutting_again_gives_the_same(case: Case, cutting: Cutting) -> None:
    assert case.cut() == cutting
    document = json.loads(json.dumps(Plan.to_document(cutting)))
    again = replace(case, plan=Plan.from_document(document, case.topology)).cut()
    assert again.segments == cutting.segments


CHECKS = (
    check_every_node_is_somewhere_and_only_copies_are_twice,
    check_a_segment_is_an_in_tree_that_ends_at_logs,
    check_logs_have_one_writer_and_segments_are_in_order,
    check_what_must_be_stored_is_stored,
    check_spark_can_run_every_segment,
    check_several_epochs_are_taken_only_where_nobody_can_tell,
    check_cutting_again_gives_the_same,
)


@settings(max_examples=300, deadline=None)
@given(cases())
def test_every_cutting_keeps_every_rule(case: Case) -> None:
    cutting = case.cut()
    for check in CHECKS:
        check(case, cutting)


@settings(max_examples=50, deadline=None)
@given(cases())
def test_every_cutting_has_pictures(case: Case) -> None:
    cutting = case.cut()
    marks = dict.fromkeys(cutting.order, "epoch 7")
    ElementTree.fromstring(svg(cutting, marks=marks))
    ElementTree.fromstring(svg(case.topology))
    assert mermaid(cutting).count("-.->") == mermaid(case.topology).count("-.->") or case.plan.copies
    assert all(name in text(cutting, marks=marks) for name in cutting.order)
