"""What a class says: the attributes that the user has given it, and the options of those who make classes.

What Python, its standard library or attrs put into a class follows from what else counts, and differs from version
to version.
"""

from __future__ import annotations

import enum
import inspect
from functools import cached_property, partialmethod, singledispatchmethod
from types import DynamicClassAttribute, FunctionType
from typing import Any

from tidelock.fingerprint.owners import Owners
from tidelock.fingerprint.values import plain_value

_MACHINERY = {
    *("__module__", "__dict__", "__weakref__", "__doc__", "__annotations__", "__qualname__", "__firstlineno__"),
    *("__static_attributes__", "__abstractmethods__", "_abc_impl", "__orig_bases__", "__parameters__"),
    *("__annotate__", "__annotate_func__", "__annotations_cache__", "__dataclass_fields__", "__match_args__"),
    *("__dataclass_params__", "__slots__", "_is_protocol", "_is_runtime_protocol"),
    "__callable_proto_members_only__",
}
_MAKERS = {"dataclasses", "typing", "collections", "enum"}
_DATACLASS = ("init", "repr", "eq", "order", "unsafe_hash", "frozen")
_FIELD = ("init", "repr", "hash", "compare", "default", "default_factory", "metadata")


def attributes(kind: type, owners: Owners) -> dict[str, Any]:
    """What the user has put into a class, by name."""
    members = getattr(kind, "__members__", {}) if issubclass(kind, enum.Enum) else {}
    return {
        name: value
        for name, value in sorted(vars(kind).items())
        if name not in members and name not in _MACHINERY and not _is_made(kind, name, value, owners)
    }


def options(kind: type) -> dict[str, Any]:
    """What makes a dataclass or an enumeration what it is besides its attributes, in its order."""
    if issubclass(kind, enum.Enum):
        return {name: member._value_ for name, member in kind.__members__.items()}
    fields = getattr(kind, "__dataclass_fields__", {})
    told = {name: {option: getattr(one, option) for option in _FIELD} for name, one in fields.items()}
    params = getattr(kind, "__dataclass_params__", None)
    return {**told, "": [getattr(params, option) for option in _DATACLASS]} if params is not None else {}


def functions_of(value: Any) -> list[Any] | None:
    """What a method, a property and the like are made of; None if it is something else."""
    if isinstance(value, staticmethod | classmethod):
        return [value.__func__]
    if isinstance(value, property | DynamicClassAttribute):
        return [value.fget, value.fset, value.fdel]
    if isinstance(value, partialmethod):
        return [value.func, value.args, value.keywords]
    if isinstance(value, singledispatchmethod):
        return [value.func, value.dispatcher]
    return [value.func] if isinstance(value, cached_property) else None


def _is_made(kind: type, name: str, value: Any, owners: Owners) -> bool:
    """Whether somebody else has made an attribute of a class."""
    if not name.startswith("_"):
        return type(value).__name__ == "_tuplegetter"  # a field of a named tuple
    inside = value.__func__ if isinstance(value, staticmethod | classmethod) else value
    function = inspect.unwrap(inside) if type(inside) is FunctionType else inside
    if type(function) is FunctionType:
        file = function.__code__.co_filename
        makes = hasattr(kind, "__dataclass_fields__") or hasattr(kind, "_fields")
        if (makes and file == "<string>") or file.startswith("<attrs generated"):
            return True
        return function.__globals__.get("__name__") in _MAKERS
    if issubclass(kind, enum.Enum):
        return True
    special = name.startswith("__") and name.endswith("__")
    return special and not callable(value) and not hasattr(type(value), "__get__") and plain_value(value) is None
