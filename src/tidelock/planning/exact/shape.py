"""The numbers of a model that a search needs, one list for each, so that inner loops look nothing up. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from tidelock.errors import PlanError
from tidelock.planning.model import Model

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

OUT, IN, OPEN = 0, 1, 2
"""What is decided of an operator: it is no anchor, it is one, or nothing yet."""


@lru_cache(maxsize=16)
def choices(count: int) -> Bools:
    """All ways to choose from so many, as columns."""
    return ((np.arange(1 << count) >> np.arange(count)[:, None]) & 1).astype(bool)


class ModelLists:
    """A model with a linear Δ as lists.

    An operator that reads some inputs from a log although it is no anchor stores, fetches and replays that part in
    every plan; here it counts as a part of the work, and only the rest depends on the choice. One that reads all
    inputs from a log begins a segment in any case: searches treat it as an anchor, and `anchors` leaves it out
    unless it stores less as one.

    Attributes:
        inputs: What each operator computes itself from, if it is no anchor.
        load: To load the state of each operator.
        commit: To store it.
        step: To process the input of a unit of time.
        store: What storing that input costs more if the operator is an anchor; it can be less than 0.
        fetch: To read it again, if the operator is an anchor.
        fail: ρ.
        heads: Whose segment commits with the head frequency.
        status: OUT, IN or OPEN for each operator.
        stored: What is stored in every plan.
        single: Whether no operator has two inputs.
    """

    def __init__(self, model: Model) -> None:
        if model.storage is not None:
            raise PlanError(
                "the exact method needs a linear Δ: give a storage_cost only, or use a method of the thesis"
            )
        kept = model.kept
        self.model = model
        self.size = len(model.operators)
        self.inputs = model.near
        self.load = model.loads
        self.commit = model.commits
        self.step = [work + part * one for work, part, one in zip(model.works, kept, model.fetches, strict=True)]
        begun = {place for place, near in enumerate(self.inputs) if not near} - model.forced
        self._spared = {
            place
            for place in begun
            if model.operators[place].anchor is False or model.keeps[place] <= model.stores[place]
        }
        cheaper = begun - self._spared
        least = [
            whole if place in cheaper else part
            for place, (whole, part) in enumerate(zip(model.stores, model.keeps, strict=True))
        ]
        self.stored = sum(least)
        self.store = [0.0 if place in begun else one - least[place] for place, one in enumerate(model.stores)]
        self.fetch = [
            0.0 if place in begun else (1 - part) * one
            for place, (part, one) in enumerate(zip(kept, model.fetches, strict=True))
        ]
        self.fail = [one.failure_rate for one in model.operators]
        self.heads = [not one.inputs or one.every_epoch for one in model.operators]
        self.status = [
            IN if not near or one.anchor else OPEN if one.anchor is None else OUT
            for one, near in zip(model.operators, self.inputs, strict=True)
        ]
        self.single = all(len(inputs) < 2 for inputs in self.inputs)

    def anchors(self, places: Iterable[int]) -> frozenset[int]:
        """The anchors of the plan that has ``places`` as the beginnings of its segments."""
        return frozenset(places) - self._spared

    def column(self, places: Iterable[int]) -> Bools:
        """The same as booleans."""
        found = np.zeros(self.size, dtype=bool)
        found[list(places)] = True
        return found
