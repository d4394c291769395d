"""What a planner knows of a topology: the attributes of its operators, and what storing and restarting cost. Pure.

FastRecover, chapter 2. An operator receives Ω tuples per unit of time, each of size θ; it passes on s tuples for
each of them, spends τ on each, keeps a state of size π and fails ρ times per unit of time. Storing or loading data
of size x costs Δ(x). Units are free, but they must agree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

Scope = Literal["path", "segment"]
"""What restarts with an operator: what is between it and its anchors, or its whole segment."""


@dataclass(frozen=True)
class Operator:
    """One operator and its attributes (FastRecover, table 2.1).

    Attributes:
        name: Its name.
        inputs: The operators that it reads; none for a source.
        selectivity: s, tuples passed on for each tuple received.
        processing_cost: τ, time per tuple received.
        state_size: π, the size of its state.
        tuple_size: θ, the size of a tuple received.
        failure_rate: ρ, failures per unit of time.
        anchor: True if it has to be an anchor, False if it must not be one, None if that is open.
        input_rate: For a source, tuples received per unit of time, if it is not the rate of the topology.
        stored_size: The size in which a tuple received is stored, if it is not θ: 0 where somebody else stores the
            same tuples, or where a source can be read again by itself.
        cut: Inputs that it always reads from a log, although it may be no anchor and compute its other inputs.
        every_epoch: Whether its segment has to commit as often as a head.
        commit_cost: The time in which it stores its state once, if that is not Δ(π).
        kept_size: The size, per tuple received, in which it stores what is in ``cut`` if it is no anchor; None if
            that is the same share of ``stored_size`` as of its tuples.
    """

    name: str
    inputs: tuple[str, ...]
    selectivity: float
    processing_cost: float
    state_size: float
    tuple_size: float
    failure_rate: float
    anchor: bool | None = None
    input_rate: float | None = None
    stored_size: float | None = None
    cut: tuple[str, ...] = ()
    every_epoch: bool = False
    commit_cost: float | None = None
    kept_size: float | None = None


@dataclass(frozen=True)
class Rates:
    """Where storing and loading cost differently, the slopes; each is that of Δ if it is None."""

    log_read: float | None = None
    state_load: float | None = None


@dataclass(frozen=True)
class Model:
    """A topology with attributes and costs.

    Attributes:
        operators: Every operator, inputs before their readers.
        input_rate: Ω, tuples that every source receives per unit of time.
        storage_cost: The slope of Δ.
        segment_cost: What a commit of a segment costs apart from its state.
        restart_cost: What a recovery costs apart from loading and replaying.
        scope: What restarts with an operator.
        max_frequency: No segment commits more often; None if there is no bound.
        head_frequency: How often the segments of `heads` commit; None leaves it to the planner.
        capacity: The time that all work together may take per unit of time, where a recovery has to share the
            machine with everything else; None if it has a machine for itself.
        baseline: The overhead that there is anyway, without any plan: the budget counts what comes on top.
        rates_of_storage: The slopes, where reading and writing cost differently.
        storage: Δ, if it is not linear. Only `costs` and the methods of the thesis can handle that.
    """

    operators: tuple[Operator, ...]
    input_rate: float
    storage_cost: float
    segment_cost: float = 0.0
    restart_cost: float = 0.0
    scope: Scope = "path"
    max_frequency: float | None = None
    head_frequency: float | None = None
    capacity: float | None = None
    baseline: float = 0.0
    rates_of_storage: Rates = Rates()
    storage: Callable[[float], float] | None = None

    def delta(self, size: float) -> float:
        """Δ: the time to store, or to load, data of this size."""
        return self.storage_cost * size if self.storage is None else self.storage(size)

    @cached_property
    def index(self) -> Mapping[str, int]:
        """The position of every operator by its name."""
        return {operator.name: place for place, operator in enumerate(self.operators)}

    @cached_property
    def inputs(self) -> tuple[tuple[int, ...], ...]:
        """The positions of what each operator reads."""
        return tuple(tuple(self.index[name] for name in operator.inputs) for operator in self.operators)

    @cached_property
    def near(self) -> tuple[tuple[int, ...], ...]:
        """The positions of what each operator reads without a log, if it is no anchor."""
        return tuple(
            tuple(self.index[name] for name in operator.inputs if name not in operator.cut)
            for operator in self.operators
        )

    @cached_property
    def readers(self) -> tuple[tuple[int, ...], ...]:
        """The positions of what reads each operator."""
        found: list[list[int]] = [[] for _ in self.operators]
        for place, inputs in enumerate(self.inputs):
            for one in inputs:
                found[one].append(place)
        return tuple(map(tuple, found))

    @cached_property
    def rates(self) -> tuple[float, ...]:
        """Ω of every operator: what its inputs pass on, together (eq. 3.4; a source has the rate given)."""
        rates: list[float] = []
        for operator, inputs in zip(self.operators, self.inputs, strict=True):
            given = self.input_rate if operator.input_rate is None else operator.input_rate
            passed = sum(rates[one] * self.operators[one].selectivity for one in inputs)
            rates.append(passed if inputs else given)
        return tuple(rates)

    # -- the attributes as times, with a linear Δ

    @cached_property
    def commits(self) -> tuple[float, ...]:
        """The time in which each operator stores its state once."""
        return tuple(
            self.storage_cost * one.state_size if one.commit_cost is None else one.commit_cost
            for one in self.operators
        )

    @cached_property
    def loads(self) -> tuple[float, ...]:
        """The time in which each operator loads its state."""
        slope = self.storage_cost if self.rates_of_storage.state_load is None else self.rates_of_storage.state_load
        return tuple(slope * operator.state_size for operator in self.operators)

    @cached_property
    def stores(self) -> tuple[float, ...]:
        """The time per unit of time in which each operator would store its inputs as an anchor."""
        sizes = (one.tuple_size if one.stored_size is None else one.stored_size for one in self.operators)
        return tuple(self.storage_cost * rate * size for rate, size in zip(self.rates, sizes, strict=True))

    @cached_property
    def fetches(self) -> tuple[float, ...]:
        """The time in which each operator would read again what it has stored in a unit of time."""
        slope = self.storage_cost if self.rates_of_storage.log_read is None else self.rates_of_storage.log_read
        return tuple(slope * rate * one.tuple_size for rate, one in zip(self.rates, self.operators, strict=True))

    @cached_property
    def works(self) -> tuple[float, ...]:
        """The time in which each operator processes the input of a unit of time."""
        return tuple(one.processing_cost * rate for rate, one in zip(self.rates, self.operators, strict=True))

    # -- the shape

    @cached_property
    def is_tree(self) -> bool:
        """Whether no operator has two inputs and there is one source: an out-tree, as in FastRecover 3.4."""
        sources = sum(not inputs for inputs in self.inputs)
        return sources == 1 and all(len(inputs) <= 1 for inputs in self.inputs)

    @cached_property
    def is_chain(self) -> bool:
        """Whether every operator reads the one before it, and nothing else."""
        return self.is_tree and all(len(readers) <= 1 for readers in self.readers)

    # -- anchors and segments

    @cached_property
    def forced(self) -> frozenset[int]:
        """Who is an anchor in every plan: the sources, and whoever has to be one."""
        return frozenset(place for place, one in enumerate(self.operators) if not one.inputs or one.anchor is True)

    @cached_property
    def heads(self) -> frozenset[int]:
        """Whose segments commit with the head frequency, if there is one: the sources, and who has to."""
        return frozenset(place for place, one in enumerate(self.operators) if not one.inputs or one.every_epoch)

    @cached_property
    def kept(self) -> tuple[float, ...]:
        """The share of its tuples that each operator reads from a log if it is no anchor."""
        return tuple(
            sum(self._passed(name) for name in one.cut) / rate if one.cut and rate else 0.0
            for one, rate in zip(self.operators, self.rates, strict=True)
        )

    @cached_property
    def keeps(self) -> tuple[float, ...]:
        """The time per unit of time in which each operator stores what is in its `cut`, if it is no anchor."""
        return tuple(
            store * part if one.kept_size is None else self.storage_cost * rate * one.kept_size
            for one, store, part, rate in zip(self.operators, self.stores, self.kept, self.rates, strict=True)
        )

    def _passed(self, name: str) -> float:
        place = self.index[name]
        return self.rates[place] * self.operators[place].selectivity

    @cached_property
    def free(self) -> tuple[int, ...]:
        """Who may be an anchor or not."""
        return tuple(
            place for place, one in enumerate(self.operators) if place not in self.forced and one.anchor is None
        )

    def segments(self, anchors: frozenset[int]) -> tuple[tuple[int, ...], ...]:
        """The segments of an anchor set: operators that are connected without crossing an anchor's inputs.

        In the order of their first operators. ``anchors`` has to include `forced`.
        """
        leader = list(range(len(self.operators)))

        def find(place: int) -> int:
            while leader[place] != place:
                leader[place] = leader[leader[place]]
                place = leader[place]
            return place

        for place, inputs in enumerate(self.near):
            if place not in anchors:
                for one in inputs:
                    first, second = sorted((find(one), find(place)))
                    leader[second] = first
        groups: dict[int, list[int]] = {}
        for place in range(len(self.operators)):
            groups.setdefault(find(place), []).append(place)
        return tuple(map(tuple, groups.values()))

    def replayed(self, place: int, anchors: frozenset[int]) -> frozenset[int]:
        """What is replayed when an operator fails, the operator included (eq. 3.1; for a DAG on all paths).

        That is every ancestor up to and including the nearest anchors.
        """
        found: set[int] = set()
        ahead = [place]
        while ahead:
            one = ahead.pop()
            if one not in found:
                found.add(one)
                ahead.extend(() if one in anchors else self.near[one])
        return frozenset(found)

    def restarted(self, segment: Iterable[int], place: int, anchors: frozenset[int]) -> frozenset[int]:
        """What restarts when an operator of ``segment`` fails."""
        return frozenset(segment) if self.scope == "segment" else self.replayed(place, anchors)
