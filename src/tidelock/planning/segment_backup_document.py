"""The file that describes an application for `segment_backup`, as JSON, and the answer as plain values. Pure.

::

    {"tuple_frequency": 30,
     "nodes": [{"name": "tweets"},
               {"name": "words", "processing_delay": 0.0125, "output_ratio": 1}],
     "delays": {"edge": 0.001, "transmit": 0.001, "read": 0.002, "write": 0.002, "normal_tuple": 0.0125,
                "barrier": 0.03, "ack": 0.01, "recovery_response": 1, "recovery_misc": 0.5},
     "sizes": {"tuple": 100, "barrier": 20, "checkpoint": 1000, "ack": 20},
     "prices": {"computation": 1e-5, "network": 1e-10, "storage": 1e-14},
     "max_recovery_delay": 2}

The first node is the spout, the last one the sink. The spout has no queue: its ``processing_delay`` may be left
out, and so may its ``output_ratio``, which is 1. ``max_recovery_delay`` may be given elsewhere. Other fields, such
as where a number comes from, are left alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields as fields_of
from typing import Any, TypeVar

from tidelock.errors import PlanError
from tidelock.planning.segment_backup import (
    Application,
    ApplicationNode,
    CheapestConfiguration,
    Delays,
    PriceList,
    Sizes,
)

_LARGEST = 1e100
_Group = TypeVar("_Group", Delays, Sizes, PriceList)


def read_application(document: object) -> Application:
    """The application that a parsed file describes.

    Raises:
        PlanError: it is none; the message begins with the path of the field that is wrong.
    """
    fields = _mapping(document, "application")
    application = Application(
        tuple_frequency=_positive(fields, "tuple_frequency", ""),
        nodes=_nodes(fields.get("nodes")),
        delays=_group(Delays, fields, "delays"),
        sizes=_group(Sizes, fields, "sizes"),
        prices=_group(PriceList, fields, "prices"),
    )
    if not application.delays.bottleneck:
        raise PlanError(
            "delays: read, transmit and normal_tuple are all 0, so that any block is replayed at once; one of "
            "them has to be above 0"
        )
    return application


def read_bound(document: object) -> float:
    """The bound on the recovery delay that a parsed file has.

    Raises:
        PlanError: it has none.
    """
    fields = _mapping(document, "application")
    if fields.get("max_recovery_delay") is None:
        raise PlanError(
            "max_recovery_delay: this field is missing; give a number of seconds here or with --max-recovery-delay"
        )
    return _number(fields, "max_recovery_delay", "")


def write_choice(
    application: Application, choice: CheapestConfiguration, max_recovery_delay: float
) -> dict[str, Any]:
    """The cheapest configuration and what follows from it; nodes are named."""
    names = [application.nodes[place].name for place in choice.configuration.connectors]
    costs = choice.costs
    return {
        "feasible": True,
        "connectors": names,
        "block_length": choice.configuration.block_length,
        "recovery_delay": choice.recovery_delay,
        "max_recovery_delay": max_recovery_delay,
        "cost": {
            "total": costs.total,
            "computation": costs.computation,
            "network": costs.network,
            "storage": costs.storage,
        },
        "overhead": {
            "time": costs.overhead_time,
            "communication": costs.overhead_communication,
            "storage": costs.overhead_storage,
        },
        "pending_windows": [
            {"connector": name, "tuples": tuples}
            for name, tuples in zip(names, choice.pending_windows, strict=False)  # the sink has none
        ],
    }


def _nodes(parts: object) -> tuple[ApplicationNode, ...]:
    if not isinstance(parts, list) or len(parts) < 2:
        raise PlanError("nodes: a list of at least two nodes is needed, the spout first and the sink last")
    nodes = [_spout(parts[0]), *(_node(part, f"nodes[{place}]") for place, part in enumerate(parts) if place)]
    places: dict[str, int] = {}
    for place, node in enumerate(nodes):
        first = places.setdefault(node.name, place)
        if first != place:
            raise PlanError(f"nodes[{place}].name: {node.name!r} is also the name of nodes[{first}]")
    return tuple(nodes)


def _spout(part: object) -> ApplicationNode:
    fields = {"processing_delay": 0, "output_ratio": 1, **_mapping(part, "nodes[0]")}
    spout = _node(fields, "nodes[0]")
    if spout.output_ratio != 1:
        raise PlanError(
            f"nodes[0].output_ratio: the ratio of the spout is 1, not {spout.output_ratio:g}, as the others are "
            "relative to it; how much it puts out is tuple_frequency"
        )
    return spout


def _node(part: object, path: str) -> ApplicationNode:
    fields = _mapping(part, path)
    name = fields.get("name")
    if not isinstance(name, str) or not name:
        raise PlanError(f"{path}.name: every node has a name, a text that is not empty")
    delay, ratio = _number(fields, "processing_delay", f"{path}."), _positive(fields, "output_ratio", f"{path}.")
    return ApplicationNode(name, delay, ratio)


def _group(kind: type[_Group], fields: Mapping[str, Any], name: str) -> _Group:
    group = _mapping(fields.get(name), name)
    return kind(**{field.name: _number(group, field.name, f"{name}.") for field in fields_of(kind)})


# -- values


def _mapping(value: object, path: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise PlanError(f"{path}: a JSON object is needed, {_instead(value)}")
    return value


def _number(fields: Mapping[str, Any], name: str, path: str) -> float:
    value = fields.get(name)
    # Compared, not converted: a JSON integer can be too large for a float.
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _LARGEST:
        raise PlanError(f"{path}{name}: a number from 0 to {_LARGEST:g} is needed, {_instead(value)}")
    return float(value)


def _positive(fields: Mapping[str, Any], name: str, path: str) -> float:
    value = _number(fields, name, path)
    if not value:
        raise PlanError(f"{path}{name}: a number above 0 is needed, not 0")
    return value


def _instead(value: object) -> str:
    if value is None:
        return "and this field is missing"
    text = repr(value)
    return f"not {text if len(text) <= 40 else f'{text[:37]}...'}"
