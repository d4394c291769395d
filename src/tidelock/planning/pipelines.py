"""From a pipeline to a model, and from a choice to a plan that Spark can run. Pure.

What a pipeline adds to the attributes of its operators: cuts that Spark forces, anchors that the user declares,
logs that several operators read and that are stored once, and epochs: sources commit at every epoch, and others
after a whole number of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from tidelock.errors import PlanError
from tidelock.planning.choosing import EXACT, PlanChoice, PlanSettings, choose
from tidelock.planning.costs import Configuration, Costs, costs
from tidelock.planning.model import Model
from tidelock.planning.rounding import whole_epochs
from tidelock.planning.sums import sums
from tidelock.topology import Cutting, Plan, Topology
from tidelock.topology.names import listed

CutFunction = Callable[[Plan], Cutting]
"""What becomes of a plan under the rules of Spark."""


@dataclass(frozen=True)
class Planned:
    """A plan for a pipeline.

    Attributes:
        model: The model, with the constraints of the pipeline.
        cutting: What Spark makes of the plan.
        choice: What the search found, before its frequencies became whole numbers of epochs.
        costs: What the equations say of ``cutting``.
    """

    model: Model
    cutting: Cutting
    choice: PlanChoice
    costs: Costs

    @property
    def overhead(self) -> float:
        """What it costs more than one plain query, as a share of time."""
        return self.costs.overhead - self.model.baseline


def constrained(model: Model, least: Cutting, batchwise: frozenset[str]) -> Model:
    """``model`` with what the pipeline and Spark demand.

    Args:
        model: Attributes of the pipeline's nodes, by their names.
        least: The pipeline with no cuts but those that are forced.
        batchwise: The nodes for which it matters what a batch is.

    Raises:
        PlanError: the model is of another pipeline.
    """
    topology = least.topology
    _check_names(model, topology)
    stored, single = {cut.log for cut in least.cuts}, _every_epoch(least, batchwise)
    first = {name: topology.forward_consumers(name)[0] for name in stored if topology.forward_consumers(name)}
    operators = []
    for node in topology.nodes:
        known = model.operators[model.index[node.name]]
        inputs = topology.forward_inputs(node.name)
        cut = tuple(name for name in inputs if name in stored)
        paid = [name for name in inputs if first.get(name, node.name) == node.name]
        kept = [name for name in paid if name in cut]
        operators.append(
            replace(
                known,
                inputs=tuple(inputs),
                anchor=_anchor(node.anchor, inputs, cut),
                stored_size=known.tuple_size * _share(model, node.name, paid),
                kept_size=known.tuple_size * _share(model, node.name, kept),
                cut=() if len(cut) == len(inputs) else cut,
                every_epoch=node.name in single,
            )
        )
    return replace(model, operators=tuple(operators))


def _anchor(declared: bool | None, inputs: tuple[str, ...], cut: tuple[str, ...]) -> bool | None:
    if inputs and len(cut) == len(inputs):
        return True
    return declared if inputs else None


def _share(model: Model, name: str, paid: list[str]) -> float:
    """The share of the tuples that ``name`` receives that come from the inputs ``paid``."""
    rate = model.rates[model.index[name]]
    if not rate or not paid:
        return 1.0 if paid else 0.0
    places = [model.index[one] for one in paid]
    return min(1.0, sum(model.rates[place] * model.operators[place].selectivity for place in places) / rate)


def _check_names(model: Model, topology: Topology) -> None:
    known, wanted = set(model.index), {node.name for node in topology.nodes}
    if known != wanted:
        differences = [f"{listed(sorted(wanted - known))} is not in it"] if wanted - known else []
        differences += [f"it has {listed(sorted(known - wanted))}, too"] if known - wanted else []
        raise PlanError(
            f"the topology file is not one of pipeline {topology.name}: {' and '.join(differences)}. "
            "Measure it again with `tidelock profile`"
        )


def plan_pipeline(
    model: Model,
    budget: float,
    cut: CutFunction,
    *,
    most: int,
    method: str = EXACT,
    settings: PlanSettings | None = None,
) -> Planned:
    """The plan for a pipeline whose constraints are in ``model``; no batch takes more than ``most`` epochs.

    Raises:
        Infeasible: no plan fits the budget.
        PlanError: the method does not fit the topology.
    """
    allowed = model
    while True:
        choice = choose(allowed, budget, method, settings, unit="seconds")
        names = frozenset(model.operators[at].name for at in choice.configuration.anchors if model.inputs[at])
        cutting = cut(Plan(anchors=names))
        sizes = _sizes(allowed, cutting, choice, budget, most)
        cutting = cut(Plan(anchors=names, epochs_per_batch=sizes))
        found = Planned(model, cutting, choice, costs_of(model, cutting))
        blamed = _blamed(allowed, cutting, names) if found.overhead > budget * (1 + 1e-9) else frozenset()
        if not blamed:
            return _or_least(found, cut, budget)
        operators = (replace(one, anchor=False) if one.name in blamed else one for one in allowed.operators)
        allowed = replace(allowed, operators=tuple(operators))


def _or_least(found: Planned, cut: CutFunction, budget: float) -> Planned:
    """The plan, or no cuts at all where that is better: whole epochs may have cost more than cutting brought."""
    cutting = cut(Plan.one())
    least = replace(found, cutting=cutting, costs=costs_of(found.model, cutting))
    better = least.costs.recovery < found.costs.recovery and least.overhead <= budget
    return least if better else found


def _blamed(model: Model, cutting: Cutting, anchors: frozenset[str]) -> frozenset[str]:
    """The anchors for which Spark needs more logs than the search knew of."""
    known = {name for one in model.operators for name in (one.inputs if one.name in anchors else one.cut)}
    more = {one.log for one in cutting.cuts} - known
    free = {model.operators[place].name for place in model.free} & anchors
    return frozenset(
        name
        for segment in cutting.segments
        if any(read.log in more for read in segment.inputs)
        for name in segment.operators
        if name in free
    )


def _sizes(model: Model, cutting: Cutting, choice: PlanChoice, budget: float, most: int) -> Mapping[str, int]:
    """How many epochs a batch of each segment takes."""
    chosen, model = model, _as_cut(model, cutting)
    assert model.head_frequency is not None
    anchors = anchors_of(model, cutting)
    groups = model.segments(anchors)
    wanted = {
        place: frequency
        for members, frequency in zip(
            chosen.segments(choice.configuration.anchors), choice.configuration.frequencies, strict=True
        )
        for place in members
    }
    counts = whole_epochs(
        [sums(model, members, anchors) for members in groups],
        [wanted[members[0]] for members in groups],
        budget + model.baseline if model.capacity is None else choice.costs.overhead,
        model.head_frequency,
        most,
    )
    count = {place: size for members, size in zip(groups, counts, strict=True) for place in members}
    found = _whole_entries(model, cutting, count)
    sinks = _wanted_by_sinks(cutting)
    if any(size > most for name, size in found.items() if not sinks[name]):
        # Powers of two divide each other: no reader has to take more than its own number or that of its logs.
        largest = 1 << (most.bit_length() - 1)
        doubled = {place: min(largest, 1 << (size - 1).bit_length()) for place, size in count.items()}
        found = _whole_entries(model, cutting, doubled)
    return found


def _whole_entries(model: Model, cutting: Cutting, count: Mapping[int, int]) -> dict[str, int]:
    """A log has an entry per batch of its writer, and a batch of its readers ends where an entry does.

    A sink that wants a number of epochs at once gets exactly that, so what leads to it takes a divisor of it.
    """
    whole = _wanted_by_sinks(cutting)
    found: dict[str, int] = {}
    for segment in cutting.segments:
        step = math.lcm(*(found.get(read.log, 1) for read in segment.inputs if not read.lag))
        size = step * math.ceil(count[model.index[segment.name]] / step)
        most = whole[segment.name]
        if most:
            fitting = (one for one in range(step, most, step) if most % one == 0 and one >= size)
            size = most if segment.sink else next(fitting, most)
        found[segment.name] = size
    return found


def _wanted_by_sinks(cutting: Cutting) -> dict[str, int]:
    """What the epochs of each segment's batches have to divide; 0 where no sink behind it wants several."""
    found: dict[str, int] = {}
    for segment in reversed(cutting.segments):
        own = cutting.topology.node(segment.sink).epochs_per_batch if segment.sink else 1
        behind = (found.get(one.name, 0) for one in cutting.readers(segment.name))
        found[segment.name] = own if own > 1 else math.gcd(*behind)
    return found


def anchors_of(model: Model, cutting: Cutting) -> frozenset[int]:
    """Who reads all its inputs from logs in a cutting, or is a source."""
    stored = {one.log for one in cutting.cuts}
    return frozenset(place for place, operator in enumerate(model.operators) if stored.issuperset(operator.inputs))


def costs_of(model: Model, cutting: Cutting) -> Costs:
    """What the equations say of a cutting."""
    model = _as_cut(model, cutting)
    assert model.head_frequency is not None
    anchors = anchors_of(model, cutting)
    sizes = {name: segment.epochs_per_batch for segment in cutting.segments for name in segment.operators}
    frequencies = tuple(
        model.head_frequency / sizes[model.operators[members[-1]].name] for members in model.segments(anchors)
    )
    return costs(model, Configuration(anchors, frequencies))


def _as_cut(model: Model, cutting: Cutting) -> Model:
    """``model`` with the logs that Spark's rules add to this plan: they have one reader, who pays for them."""
    stored = {one.log for one in cutting.cuts}
    operators = []
    for one in model.operators:
        cut = tuple(name for name in one.inputs if name in stored)
        if len(cut) < len(one.inputs) and cut != one.cut:
            more = _share(model, one.name, [name for name in cut if name not in one.cut])
            one = replace(one, cut=cut, kept_size=(one.kept_size or 0.0) + one.tuple_size * more)
        operators.append(one)
    return replace(model, operators=tuple(operators))


def _every_epoch(least: Cutting, batchwise: frozenset[str]) -> frozenset[str]:
    """The nodes whose segments must take epochs one by one: those, loops, and everything before them."""
    topology = least.topology
    found = set(batchwise) | {end for edge in topology.back_edges for end in edge}
    for name in tuple(found):
        found |= topology.ancestors(name)
        for segment in least.segments:
            if name in segment.operators:
                # What joins it in its batches comes epoch by epoch as well.
                joined = (one for one in segment.operators if name in topology.ancestors(one))
                beside = frozenset().union(*map(topology.ancestors, joined))
                found |= {one for one in beside if name != one and name not in topology.ancestors(one)}
    return frozenset(found)
