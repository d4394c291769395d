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


class Shape:
    """A model with a linear Δ as lists.

    An operator that reads some inputs from a log although it is no anchor stores, fetches and replays that part in
    every plan; here it counts as a part of the work, and only the rest depends on the choice. One that reads all
    inputs from a log begins a segment in any case: searches treat it as an anchor, and `anchors` leaves it out.

    Attributes:
        inputs: What each operator computes itself from, if it is no anchor.
        load: To load the state of each operator.
        commit: To store it.
        step: To process the input of a unit of time.
        store: To store that input, if the operator is an anchor.
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
        self.store = [whole - part for whole, part in zip(model.stores, model.keeps, strict=True)]
        self.fetch = [(1 - part) * one for part, one in zip(kept, model.fetches, strict=True)]
        self.stored = sum(model.keeps)
        self.fail = [one.failure_rate for one in model.operators]
        self.heads = [not one.inputs or one.every_epoch for one in model.operators]
        self.status = [
            IN if not near or one.anchor else OPEN if one.anchor is None else OUT
            for one, near in zip(model.operators, self.inputs, strict=True)
        ]
        self.single = all(len(inputs) < 2 for inputs in self.inputs)

    def anchors(self, places: Iterable[int]) -> frozenset[int]:
        """The anchors of the plan that has ``places`` as the beginnings of its segments."""
        return frozenset(place for place in places if self.inputs[place] or place in self.model.forced)

    def column(self, places: Iterable[int]) -> Bools:
        """The same as booleans."""
        found = np.zeros(self.size, dtype=bool)
        found[list(places)] = True
        return found
