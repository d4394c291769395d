"""What objects are made of, as far as that is a value: the same whenever a program starts anew."""

from __future__ import annotations

import enum
import pickle
import re
from collections import deque
from collections.abc import Iterator, Mapping
from struct import Struct
from types import MappingProxyType
from typing import Any

_SCALARS: tuple[Any, ...] = (str, bytes, int, float, complex, tuple)
_VALUES = {
    *(
        "argparse",
        "array",
        "collections",
        "configparser",
        "datetime",
        "decimal",
        "ipaddress",
        "operator",
        "string",
    ),
    "types",
}
"""Modules of Python whose objects stand for what is in them."""
_VIEWS: tuple[type, ...] = (type({}.keys()), type({}.values()), type({}.items()))
"""What a dictionary shows of itself; an ordered one has kinds of its own that derive from these."""
_ADDRESS = re.compile(r"\[[\w.$]+;?@[0-9a-f]+")
_SEED = re.compile(r"\b(rand|randn|uuid|shuffle|uniform|randstr)\(([^()]*?)-?\d+L\)")
_LAMBDA = re.compile(r"\(?(\w+_\d+(?:, \w+_\d+)*)\)? ->")


def fields_of(value: Any, *, own: bool) -> dict[str, Any] | None:
    """What an object is made of; None if that is not known, or would be something else in every run.

    ``own``: its class is the user's.
    """
    kind = type(value)
    if issubclass(kind, enum.Enum):
        return {"name": value._name_, "of": value._value_}
    if hasattr(kind, "__dataclass_fields__"):
        return {**_inherited(value), **{name: getattr(value, name, None) for name in kind.__dataclass_fields__}}
    inherited = _inherited(value)
    if own or inherited:
        return {**inherited, **_attributes(value)}
    if kind is slice:
        return {"of": (value.start, value.stop, value.step)}
    if kind.__module__ in _VALUES or kind is MappingProxyType:
        return {"items": [*value.items()]} if isinstance(value, Mapping) else _reduced(value)
    fields = _of_library(kind.__module__.partition(".")[0], value)
    wrapped = getattr(value, "__dict__", {}).get("__wrapped__") if fields is None else None
    return {"wrapped": wrapped} if callable(wrapped) else fields


def later_fields_of(value: Any) -> dict[str, Any]:
    """What only newer rules see of an object that `is_looked_into_later`."""
    if isinstance(value, Struct):
        return {"format": value.format}
    if isinstance(value, memoryview):
        return {"format": value.format, "shape": value.shape, "of": value.tobytes()}
    return {"of": [*value]}


def is_looked_into_later(value: Any) -> bool:
    """Whether newer rules see more of an object than the first ones."""
    return issubclass(type(value), (Struct, memoryview, *_VIEWS))


def _inherited(value: Any) -> dict[str, Any]:
    """What an object has by being a number, a text or a container of Python's, too."""
    kind = type(value)
    for base in _SCALARS:
        if issubclass(kind, base):
            return {"of": base.__getnewargs__(value)}
    for container in (list, set, frozenset, deque):
        if issubclass(kind, container):
            exact = list if container is deque else container
            return {"of": exact(container.__iter__(value)), "up to": getattr(value, "maxlen", None)}
    if issubclass(kind, dict):
        return {"of": dict(dict.items(value)), "missing": getattr(value, "default_factory", None)}
    return {}


def _attributes(value: Any) -> dict[str, Any]:
    slots = {name for base in type(value).__mro__ for name in _slots(base)}
    kept = {name: getattr(value, name) for name in slots if hasattr(value, name)}
    return {**getattr(value, "__dict__", {}), **kept}


def _slots(kind: type) -> Iterator[str]:
    slots = vars(kind).get("__slots__", ())
    for name in [slots] if isinstance(slots, str) else slots:
        if name not in ("__dict__", "__weakref__"):
            hidden = name.startswith("__") and not name.endswith("__")
            yield f"_{kind.__name__.lstrip('_')}{name}" if hidden else name


def _reduced(value: Any) -> dict[str, Any]:
    """What an object says to be copied with."""
    made, given, *rest = value.__reduce_ex__(4)
    state, *items = [*rest, None, None, None][:3]
    return {"made by": made, "of": given, "state": state, "items": [[*one] for one in items if one is not None]}


def _of_library(library: str, value: Any) -> dict[str, Any] | None:
    """Tables and arrays, and what Spark has sent to its workers."""
    if library == "numpy" and hasattr(value, "tolist"):  # an array of objects
        return {"type": str(value.dtype), "shape": value.shape, "of": value.tolist()}
    if library == "pandas":
        return _of_pandas(value)
    if library == "pyarrow":
        return _of_arrow(value)
    if library == "pyspark" and type(value).__name__ == "Broadcast":
        return {"of": value.value}
    if library == "pyspark" and type(value).__name__ == "Column":
        return {"text": _plain_column(str(value)), "functions": _functions(value)}
    return None


def _of_pandas(value: Any) -> dict[str, Any] | None:
    if type(value).__name__ == "DataFrame":
        columns = [value.iloc[:, place] for place in range(len(value.columns))]
        return {"columns": value.columns, "index": value.index, "of": [_values(one) for one in columns]}
    if hasattr(value, "to_numpy") and hasattr(value, "dtype"):
        return {"name": getattr(value, "name", None), "index": getattr(value, "index", None), "of": _values(value)}
    return {"of": value.isoformat()} if hasattr(value, "isoformat") else None


def _values(column: Any) -> tuple[str, Any]:
    return str(column.dtype), column.to_numpy()


def _of_arrow(value: Any) -> dict[str, Any] | None:
    if hasattr(value, "to_pylist"):
        return {"type": str(value.type if hasattr(value, "type") else value.schema), "of": value.to_pylist()}
    if hasattr(value, "as_py"):
        return {"type": str(value.type), "of": value.as_py()}
    return {"of": str(value)} if type(value).__name__.endswith(("Type", "Field", "Schema")) else None


def _plain_column(text: str) -> str:
    """A column without what is new in every run: addresses of objects, random seeds, the numbers of variables."""
    text = _SEED.sub(r"\1(\2seed)", _ADDRESS.sub("", text))
    names = [name for found in _LAMBDA.findall(text) for name in found.split(", ")]
    for number, name in enumerate(dict.fromkeys(names)):
        text = re.sub(rf"\b{name}\b", f"variable {number}", text)
    return text


def _functions(column: Any) -> list[Any]:
    """The Python functions that a column calls, as Spark sends them to its workers."""
    found, nodes = [], [column._jc.node()]
    for node in nodes:
        kind, children = node.getClass().getSimpleName(), node.children()
        nodes += [children.apply(place) for place in range(children.size())]
        if kind == "ExpressionColumnNode":
            nodes.append(node.expression())
        elif kind == "ColumnNodeExpression":
            nodes.append(node.node())
        elif kind == "PythonUDF":
            found.append(unpickled(node))
    return found


def unpickled(expression: Any) -> Any:
    """What Spark sends to its workers for an expression that calls Python; a large one is sent as a broadcast."""
    found = pickle.loads(expression.func().command().unsafeArray())
    return pickle.loads(found.value) if type(found).__name__ == "Broadcast" else found
