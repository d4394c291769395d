"""Which nodes have to be stored: the rules that Spark and the plan impose on a cut. Pure.

Theory of operation
-------------------
The set of stored nodes starts with what needs no look at the segments (`settled`): what is published, fed back or
read several times, what the plan's anchors read. It then grows by one node at a time (`grow`): the segments of the
set are assembled, the first of the rules that finds fault names a node, and that node is stored too. Storing only
ever splits segments, so this ends after at most n rounds, with segments in which no rule finds fault. Rules that
other cuts may satisfy stand last, so that little is stored that could have been fused.

The result is a fixpoint: growing it again adds nothing. That is why the document of a cutting leads to the same
cutting again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations

from tidelock.errors import InternalError
from tidelock.topology.graph import Kind, Topology, TopologyNode
from tidelock.topology.names import listed
from tidelock.topology.plan import Plan, Traits
from tidelock.topology.segments import Segment, assemble, feeding


@dataclass(frozen=True)
class Question:
    """What is to be cut, and what is known about it."""

    topology: Topology
    plan: Plan
    traits: Mapping[str, Traits]
    dead_letters: bool = False

    def trait(self, name: str) -> Traits:
        """What the node's code does; a node of which nothing is known does nothing special."""
        return self.traits.get(name, Traits())

    def carries_event_time(self, name: str) -> bool:
        """Whether rows of ``name`` come with a watermark that it or one of its ancestors declares."""
        return self.clock(name) is not None

    def clock(self, name: str) -> str | None:
        """Who declares a watermark with which rows of ``name`` come, if they come with any."""
        ahead, seen = [name], set[str]()
        while ahead:
            one = ahead.pop()
            trait = self.trait(one)
            if trait.watermark and not trait.mute:
                return one
            seen.add(one)
            inputs = self.topology.forward_inputs(one)
            ahead += [other for other in inputs if other not in trait.silenced and other not in seen]
        return None


Reasons = dict[str, str]
Fault = tuple[str, str]


def _forced(question: Question) -> Reasons:
    """What is stored whatever the plan says, by itself or by who reads it (rules 2, 3, 4 and 9)."""
    found: Reasons = {}
    for node in question.topology.nodes:
        why = _why_forced(question, node)
        if why:
            found[node.name] = why
    return found


def settled(question: Question, anchors: Mapping[str, str]) -> Reasons:
    """What is stored before any segment is looked at: what is forced, and what anchors and the plan ask for.

    ``anchors`` has the reason of each anchor. What is forced keeps that reason: no other plan would change it.
    """
    found = _forced(question)
    for anchor, why in anchors.items():
        for one in question.topology.node(anchor).inputs:
            found.setdefault(one, why)
    for name in sorted(question.plan.logs, key=question.topology.position):
        found.setdefault(name, f"the plan stores {name}")
    return found


def grow(question: Question, stored: Reasons) -> Reasons:
    """The stored nodes with everything that the rules add to them, each with its reason."""
    grown = dict(stored)
    while fault := _first_fault(question, assemble(question.topology, grown)):
        name, why = fault
        if name in grown:
            raise InternalError(f"{name} is stored already, and a rule asks for it again: {why}")
        grown[name] = why
    return grown


def _why_forced(question: Question, node: TopologyNode) -> str | None:
    topology, name = question.topology, node.name
    readers = topology.consumers(name)
    if node.kind is Kind.SINK:
        return None
    if node.subject is not None:
        return f"{name} is published as {node.subject}"
    if name in topology.feedback:
        return f"{name} is fed back into {listed(to for to in readers if (name, to) in topology.back_edges)}"
    if len(readers) > 1 and name not in question.plan.copies:
        return f"{listed(readers)} read {name}, and a query has one output only"
    if node.mode != "append" and any(topology.node(one).kind is Kind.OPERATOR for one in readers):
        return f"{name} gives its rows in {node.mode} mode, which only the end of a query can do"
    if question.dead_letters and node.kind is Kind.SOURCE:
        return f"{name} stands alone, so that its rows can be set aside"
    return None


def _first_fault(question: Question, segments: tuple[Segment, ...]) -> Fault | None:
    shared = next(_in_several_segments(question, segments), None)
    if shared:
        return shared
    return next((fault for rule in RULES for segment in segments for fault in rule(question, segment)), None)


def _in_several_segments(question: Question, segments: tuple[Segment, ...]) -> Iterator[Fault]:
    """Rule 2 across copies: what feeds a copy is needed wherever the copy is."""
    for node in reversed(question.topology.nodes):
        homes = [segment.name for segment in segments if node.name in segment.operators]
        if len(homes) > 1 and node.name not in question.plan.copies:
            yield node.name, f"the segments {listed(homes)} need {node.name}, and a query has one output only"


def _state_before_the_end(question: Question, segment: Segment) -> Iterator[Fault]:
    """Rule 6: in update and complete mode only the operator at the end may keep state."""
    if segment.mode == "append":
        return
    end = segment.result
    for name in segment.operators:
        if question.trait(name).stateful and name != end:
            yield name, f"{name} keeps state, and in a query in {segment.mode} mode only the end, {end}, may do so"


def _state_after_a_function(question: Question, segment: Segment) -> Iterator[Fault]:
    """Rule 7: after event-time state in a function no other state may follow."""
    for name in segment.operators:
        if not question.trait(name).stateful:
            continue
        before = feeding(question.topology, segment, name)
        for one in segment.operators:
            if one in before and question.trait(one).function_state and question.trait(one).event_time:
                yield one, f"{one} keeps event-time state in a function, so {name} may not keep state after it"


def _two_functions(question: Question, segment: Segment) -> Iterator[Fault]:
    """Rule 7: Spark allows one function with state in a query."""
    functions = [name for name in segment.operators if question.trait(name).function_state]
    for earlier, later in combinations(functions, 2):
        yield earlier, f"{earlier} and {later} both keep state in a function, and Spark allows one in a query"


def _foreign_watermark(question: Question, segment: Segment) -> Iterator[Fault]:
    """Rule 8: every watermark in the query must be one that event-time state follows."""
    clocks = [one.log for one in segment.inputs if not one.lag and question.carries_event_time(one.log)]
    clocks += [name for name in segment.operators if question.trait(name).watermark]
    for name in segment.operators:
        if not question.trait(name).event_time_state:
            continue
        behind = feeding(question.topology, segment, name) | {name}
        for clock in clocks:
            if clock not in behind:
                yield name, f"Spark has one watermark per query, and {name} would have to wait for that of {clock}"


def _state_beside_a_cache(question: Question, segment: Segment) -> Iterator[Fault]:
    """Rule 10: an operator with its state in a cache is the only one in its segment that keeps state.

    Its segment can then go back to whatever epoch the cache, or a snapshot of it, is at.
    """
    stateful = [name for name in segment.operators if question.trait(name).stateful]
    for earlier, later in combinations(stateful, 2):
        if question.trait(earlier).cached or question.trait(later).cached:
            yield (
                earlier,
                f"{earlier} and {later} both keep state, and one of them in a cache, alone in its segment",
            )


def _source_before_a_cache(question: Question, segment: Segment) -> Iterator[Fault]:
    """Rule 11: an operator with its state in a cache reads logs, from which it takes the same epochs again."""
    cached = [name for name in segment.operators if question.trait(name).cached]
    for name in segment.sources if cached else ():
        yield name, f"{cached[0]} keeps its state in a cache, so it reads {name} from a log, to take epochs again"


def _source_beside_log(question: Question, segment: Segment) -> Iterator[Fault]:
    """Rule 5: a segment reads sources or logs, never both."""
    if segment.inputs:
        for name in segment.sources:
            yield (
                name,
                f"{segment.name} also reads the log of {segment.inputs[0].log}, and a query reads sources or logs",
            )


RULES: tuple[Callable[[Question, Segment], Iterator[Fault]], ...] = (
    _state_before_the_end,
    _state_after_a_function,
    _two_functions,
    _foreign_watermark,
    _state_beside_a_cache,
    _source_before_a_cache,
    _source_beside_log,
)
