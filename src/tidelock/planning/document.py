"""The topology file: a model as JSON. Pure.

::

    {"input_rate": 3000, "storage_cost": 1.6e-6,
     "operators": [{"name": "split", "inputs": [], "selectivity": 0.5, "processing_cost": 1e-5,
                    "state_size": 15000, "tuple_size": 1, "failure_rate": 0.1}]}

Further fields are optional. Of the file: ``segment_cost``, ``restart_cost``, ``log_read_cost``,
``state_load_cost``, ``baseline``, ``capacity``, ``max_frequency``, ``head_frequency`` and ``scope``. Of an
operator: ``anchor``, ``input_rate``, ``stored_size``, ``kept_size``, ``cut``, ``every_epoch`` and ``commit_cost``.
`Model` and `Operator` say what they mean. What else there is, such as where a number comes from, is left alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from heapq import heappop, heappush
from typing import Any

from tidelock.errors import PlanError
from tidelock.planning.model import Model, Operator, Rates, Scope
from tidelock.topology.names import suggestion

_ATTRIBUTES = ("selectivity", "processing_cost", "state_size", "tuple_size", "failure_rate")
_SLOPES = ("log_read_cost", "state_load_cost")
_OPTIONAL = ("anchor", "input_rate", "stored_size", "commit_cost", "kept_size")
_LARGEST = 1e100
_SCOPES: tuple[Scope, ...] = ("path", "segment")


def read_model(fields: object) -> Model:
    """The model that a parsed topology file describes.

    Raises:
        PlanError: it is not one; the message begins with the path of the field that is wrong.
    """
    document = _mapping(fields, "topology")
    parts = document.get("operators")
    if not isinstance(parts, Sequence) or isinstance(parts, str) or not parts:
        raise PlanError("operators: a topology has a list of at least one operator")
    operators = [_operator(part, f"operators[{place}]") for place, part in enumerate(parts)]
    return Model(
        operators=_ordered(operators),
        input_rate=_number(document, "input_rate", ""),
        storage_cost=_number(document, "storage_cost", ""),
        segment_cost=_number(document, "segment_cost", "", 0.0),
        restart_cost=_number(document, "restart_cost", "", 0.0),
        scope=_scope(document.get("scope", "path")),
        max_frequency=_frequency(document, "max_frequency"),
        capacity=_optional(document, "capacity", ""),
        head_frequency=_frequency(document, "head_frequency"),
        baseline=_number(document, "baseline", "", 0.0),
        rates_of_storage=Rates(*(_optional(document, name, "") for name in _SLOPES)),
    )


def write_model(model: Model) -> dict[str, Any]:
    """The topology file of a model with a linear Δ."""
    found: dict[str, Any] = {
        "input_rate": model.input_rate,
        "storage_cost": model.storage_cost,
        "segment_cost": model.segment_cost,
        "restart_cost": model.restart_cost,
        "scope": model.scope,
    }
    if model.baseline:
        found["baseline"] = model.baseline
    slopes = model.rates_of_storage
    found.update(zip(_SLOPES, (slopes.log_read, slopes.state_load), strict=True))
    found.update(max_frequency=model.max_frequency, head_frequency=model.head_frequency, capacity=model.capacity)
    found = {name: value for name, value in found.items() if value is not None}
    found["operators"] = [_written(operator) for operator in model.operators]
    return found


def _written(operator: Operator) -> dict[str, Any]:
    found: dict[str, Any] = {"name": operator.name, "inputs": list(operator.inputs)}
    found.update({name: getattr(operator, name) for name in (*_ATTRIBUTES, *_OPTIONAL)})
    found.update(cut=list(operator.cut) or None, every_epoch=operator.every_epoch or None)
    return {name: value for name, value in found.items() if value is not None}


def _operator(part: object, path: str) -> Operator:
    fields = _mapping(part, path)
    name = fields.get("name")
    if not isinstance(name, str) or not name:
        raise PlanError(f"{path}.name: every operator has a name, a text that is not empty")
    inputs = fields.get("inputs", [])
    if not isinstance(inputs, list) or not all(isinstance(one, str) for one in inputs):
        raise PlanError(f"{path}.inputs: a list of operators' names is needed, [] for a source")
    if len(set(inputs)) < len(inputs):
        raise PlanError(f"{path}.inputs: {name} reads one operator twice: name it once")
    anchor = fields.get("anchor")
    if anchor is not None and not isinstance(anchor, bool):
        raise PlanError(f"{path}.anchor: true, false or null is needed, not {anchor!r}")
    if anchor is False and not inputs:
        raise PlanError(f"{path}.anchor: {name} is a source and stores its input: it cannot be kept from that")
    rate = _optional(fields, "input_rate", path)
    if rate is not None and inputs:
        raise PlanError(f"{path}.input_rate: only a source has one; the rate of {name} follows from its inputs")
    cut = fields.get("cut", [])
    if not isinstance(cut, list) or not all(one in inputs for one in cut) or len(set(cut)) < len(cut):
        raise PlanError(f"{path}.cut: a list of some of the inputs of {name} is needed, not {_told(cut)}")
    single = fields.get("every_epoch", False)
    if not isinstance(single, bool):
        raise PlanError(f"{path}.every_epoch: true or false is needed, not {_told(single)}")
    return Operator(
        name=name,
        inputs=tuple(inputs),
        selectivity=_number(fields, "selectivity", path),
        processing_cost=_number(fields, "processing_cost", path),
        state_size=_number(fields, "state_size", path),
        tuple_size=_number(fields, "tuple_size", path),
        failure_rate=_number(fields, "failure_rate", path),
        anchor=anchor,
        input_rate=rate,
        stored_size=_optional(fields, "stored_size", path),
        cut=tuple(cut),
        every_epoch=single,
        commit_cost=_optional(fields, "commit_cost", path),
        kept_size=_optional(fields, "kept_size", path),
    )


def _ordered(operators: Sequence[Operator]) -> tuple[Operator, ...]:
    """Inputs before readers, and otherwise as they were given."""
    places: dict[str, int] = {}
    for place, operator in enumerate(operators):
        if operator.name in places:
            first = places[operator.name]
            raise PlanError(f"operators[{place}].name: {operator.name!r} is also the name of operators[{first}]")
        places[operator.name] = place
    for place, operator in enumerate(operators):
        for at, one in enumerate(operator.inputs):
            if one not in places:
                hint = suggestion(one, places)
                raise PlanError(f"operators[{place}].inputs[{at}]: there is no operator {one!r}; {hint}")
    sorter = TopologicalSorter({operator.name: operator.inputs for operator in operators})
    try:
        sorter.prepare()
    except CycleError as error:
        names = list(error.args[1])
        at = places[names[0]]
        raise PlanError(
            f"operators[{at}].inputs: a cycle, {' -> '.join(names)}: a topology must end somewhere. Leave out the "
            "edge that goes back"
        ) from None
    found: list[Operator] = []
    ready = sorted(places[name] for name in sorter.get_ready())
    while ready:
        operator = operators[heappop(ready)]
        found.append(operator)
        sorter.done(operator.name)
        for name in sorter.get_ready():
            heappush(ready, places[name])
    return tuple(found)


# -- values


def _mapping(value: object, path: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise PlanError(f"{path}: a JSON object is needed, not {_told(value)}")
    return value


def _number(fields: Mapping[str, Any], name: str, path: str, default: float | None = None) -> float:
    place = f"{path}.{name}" if path else name
    value = fields.get(name, default)
    if value is None:
        raise PlanError(f"{place}: this field is missing; give a number of at least 0")
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _LARGEST:
        raise PlanError(f"{place}: a finite number of at least 0 is needed, not {_told(value)}")
    return float(value)


def _optional(fields: Mapping[str, Any], name: str, path: str) -> float | None:
    return None if fields.get(name) is None else _number(fields, name, path)


def _frequency(fields: Mapping[str, Any], name: str) -> float | None:
    value = _optional(fields, name, "")
    if value == 0:
        raise PlanError(f"{name}: a number above 0 is needed: who never commits cannot replay")
    return value


def _scope(value: object) -> Scope:
    for scope in _SCOPES:
        if value == scope:
            return scope
    raise PlanError(f"scope: 'path' or 'segment' is needed, not {_told(value)}")


def _told(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
