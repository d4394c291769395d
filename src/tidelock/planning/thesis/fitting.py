"""What the methods of FastRecover can plan, and what they refuse. Pure."""

from __future__ import annotations

import math

from tidelock.errors import PlanError
from tidelock.planning.model import Model

_INSTEAD = "use the method exact"


def check_chain(model: Model, method: str) -> None:
    """See that ``method`` can plan this chain.

    Raises:
        PlanError: it is no chain, or it has a field that the thesis does not know.
    """
    _check_inputs(model, method, "chains")
    for place, readers in enumerate(model.readers):
        if len(readers) > 1:
            raise PlanError(
                f"{method} plans chains, but {_names(model, readers)} read {_name(model, place)}: {_INSTEAD}"
            )
    _check_fields(model, method)


def check_tree(model: Model, method: str) -> None:
    """See that ``method`` can plan this tree.

    Raises:
        PlanError: it is no tree, or it has a field that the thesis does not know.
    """
    _check_inputs(model, method, "trees")
    _check_fields(model, method)


def check_count(value: int, field: str) -> None:
    """See that something can be cut into ``value`` steps.

    Raises:
        PlanError: it cannot.
    """
    if value < 1:
        raise PlanError(f"{field}: at least one step is needed, not {value}")


def check_frequency(value: float) -> None:
    """See that ``value`` can be the largest frequency.

    Raises:
        PlanError: it is not a finite number above 0.
    """
    if not math.isfinite(value) or value <= 0:
        raise PlanError(f"max_frequency: a finite number above 0 is needed, such as 200, not {value}")


def _check_inputs(model: Model, method: str, shapes: str) -> None:
    """Refuse merges and a second source: neither a chain nor a tree has them."""
    for place, inputs in enumerate(model.inputs):
        if len(inputs) > 1:
            raise PlanError(
                f"{method} plans {shapes}, but {_name(model, place)} merges {_names(model, inputs)}: {_INSTEAD}"
            )
    sources = [place for place, inputs in enumerate(model.inputs) if not inputs]
    if len(sources) > 1:
        raise PlanError(f"{method} plans {shapes}, but {_names(model, sources)} are all sources: {_INSTEAD}")


def _check_fields(model: Model, method: str) -> None:
    if model.scope != "path":
        raise PlanError(f"scope: {method} knows 'path' only, not {model.scope!r}: {_INSTEAD}")
    if model.head_frequency is not None:
        raise PlanError(f"head_frequency: {method} chooses every frequency itself: leave it out, or {_INSTEAD}")
    for operator in model.operators:
        if operator.cut:
            raise PlanError(
                f"cut: {method} cannot cut {operator.name} without an anchor: leave it out, or {_INSTEAD}"
            )


def _name(model: Model, place: int) -> str:
    return model.operators[place].name


def _names(model: Model, places: tuple[int, ...] | list[int]) -> str:
    *most, last = (_name(model, place) for place in places)
    return f"{', '.join(most)} and {last}"
