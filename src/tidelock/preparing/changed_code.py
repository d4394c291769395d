"""Code that has changed since a home was last run: what is accepted, what is told, what is refused.

A home keeps the fingerprints of its nodes in its record. Before anything starts they are compared with those of
the code that is to run. What keeps state must be what has made that state, unless the user says that it fits, or
there is none yet because no batch was finished. The rest may change: from the next batch on the new code runs,
also for an epoch that the old one has begun and not finished. What it feeds goes on with what it was given
before, so the event names that too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tidelock.errors import PipelineError
from tidelock.fingerprint.calling import called
from tidelock.fingerprint.code import codes_of, fingerprint, value_fingerprint
from tidelock.fingerprint.nodes import Meaning, NodeChange, NodePrint, judge
from tidelock.fingerprint.owners import Owners
from tidelock.fingerprint.source import Sources
from tidelock.home.events import Events
from tidelock.home.home import Home, Record
from tidelock.pipeline.declaration import Declaration
from tidelock.spark.checkpoint.checkpoint import Checkpoint
from tidelock.spark.segments.describing import Described
from tidelock.topology import Kind, Topology

Prints = Mapping[str, NodePrint]


def node_prints(
    pipeline: Declaration, topology: Topology, described: Mapping[str, Described]
) -> dict[str, NodePrint]:
    """The fingerprints of all nodes that have a function, by name."""
    known = Sources(), Owners.of(*pipeline.functions.values())
    return {
        node.name: _node_print(pipeline, node.name, described.get(node.name), known, node.kind)
        for node in topology.nodes
        if node.name in pipeline.functions
    }


def _node_print(
    pipeline: Declaration, name: str, described: Described | None, known: tuple[Sources, Owners], kind: Kind
) -> NodePrint:
    # A sink may collect what it is given in a list, which does not make it another one.
    function = pipeline.functions[name]
    code = fingerprint(function, *known, contents=kind is not Kind.SINK)
    if described is None:
        return NodePrint(code)
    kept = described.settings
    settings = () if kept is None else value_fingerprint("tidelock.keyed", kept, *known)
    functions = () if described.plan is None else described.plan.functions
    calls = called(functions, codes_of(function, *known), *known) if functions else ()
    return NodePrint(code, described.traits.stateful, described.plan, described.layouts, settings, calls)


def encode_prints(prints: Prints) -> dict[str, Any]:
    """Fingerprints as a record keeps them."""
    return {name: one.encode() for name, one in prints.items()}


def tell_changes(
    changes: Sequence[NodeChange], old: Record | None, new: Prints, topology: Topology, events: Events
) -> None:
    """Tell the changes that were accepted for a home whose record was ``old``, once it can be started."""
    if old is not None and old.prints is None:
        text = "this home had none of its code; changes are noticed from now on"
        events.add("fingerprints recorded", None, text)
    for change in changes:
        events.add("code changed", None, _event(change, topology, new))


def accepted_changes(home: Home, old: Record | None, new: Prints, *, accept: bool = False) -> list[NodeChange]:
    """What has changed since ``home`` was last run; nothing, if it does not know its code yet.

    ``accept``: the user says that the state fits the new code.

    Raises:
        PipelineError: an operator that keeps state has changed.
    """
    changes = _changes((old and old.prints) or {}, new)
    if old is not None:
        changes = [_judged_by_state(change, _stateless(home, old)) for change in changes]
    refused = [change for change in changes if change.meaning in (Meaning.STATE, Meaning.LAYOUT)]
    hopeless = [change for change in refused if not change.acceptable]
    if hopeless:
        raise PipelineError(_hopeless(home, hopeless[0], accept=accept))
    if refused and not accept:
        raise PipelineError(_refusal(home, refused))
    return changes


def _judged_by_state(change: NodeChange, stateless: frozenset[str]) -> NodeChange:
    made_nothing = change.meaning is Meaning.STATE and change.node in stateless
    return replace(change, meaning=Meaning.RESULTS) if made_nothing else change


def _stateless(home: Home, record: Record) -> frozenset[str]:
    """The operators that have no state yet: their segments have not finished a batch."""
    fresh = [
        segment.operators
        for segment in record.segments
        if segment.cached is None and not Checkpoint(None, home.checkpoint(segment.name)).has_committed()
    ]
    return frozenset[str]().union(*fresh)


def _changes(old: Mapping[str, Any], new: Prints) -> list[NodeChange]:
    found = [judge(name, NodePrint.decode(old[name]), one) for name, one in new.items() if name in old]
    return [change for change in found if change is not None]


def _refusal(home: Home, changes: list[NodeChange]) -> str:
    told = ". ".join(f"Operator {one.node} {one.meaning.value}: {one.told}" for one in changes)
    return (
        f"{home.root} holds state that was made by other code. {told}. Nothing was started, and that "
        "state is kept. Undo the change, or give the new code a new home; if you know that the old state fits the "
        "new code, accept it with --accept-changes (in Python, accept_changes=True)"
    )


def _hopeless(home: Home, change: NodeChange, *, accept: bool) -> str:
    asked = " --accept-changes does not help there." if accept else ""
    return (
        f"{home.root} holds other state than operator {change.node} wants: {change.told}. State with other "
        f"columns cannot be taken up.{asked} Nothing was started, and that state is kept. Undo the change, or "
        "give the new code a new home"
    )


def _event(change: NodeChange, topology: Topology, prints: Prints) -> str:
    kind = topology.node(change.node).kind.value
    text = f"{kind} {change.node} {change.meaning.value}: {change.told}"
    if change.meaning in (Meaning.STATE, Meaning.LAYOUT):
        return f"{text}. That was accepted"
    fed = [name for name in prints if change.node in topology.ancestors(name) and prints[name].keeps_state]
    if change.meaning is Meaning.RESULTS and fed:
        return f"{text}. The state of {', '.join(fed)} holds what it gave before"
    return text
