"""The Python functions that an operator's plan calls, also those that its code names only in a text.

`F.expr("score(x)")` calls what was registered as `score`, wherever that was done. Such a function is told as the
plan has it, with all that it uses and captures. A function that is made while the operator is built may capture
something else in every run, such as the time: if the operator's own code makes it, that code counts anyway, and
what it captures is only told. Of the functions of a library the user's functions inside of them count.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from types import CodeType, FunctionType
from typing import Any

from tidelock.fingerprint.calls import AGAIN, Call
from tidelock.fingerprint.code import value_fingerprint
from tidelock.fingerprint.owners import Owners
from tidelock.fingerprint.parts import MADE, RULES, FingerprintPart
from tidelock.fingerprint.source import Sources


def called(
    functions: Iterable[tuple[str, Any]], used: frozenset[CodeType], sources: Sources, owners: Owners
) -> tuple[Call, ...]:
    """The fingerprints of the functions that a plan calls; ``used`` is the operator's own code."""
    found: dict[str, Call] = {}
    for name, function in functions:
        call = Call(name, _parts(name, function, used, sources, owners))
        while call.name in found and found[call.name].parts != call.parts:
            call = replace(call, name=f"{call.name}{AGAIN}")
        found[call.name] = call
    return tuple(call for call in found.values() if call.parts)


def _parts(
    name: str, function: Any, used: frozenset[CodeType], sources: Sources, owners: Owners
) -> tuple[FingerprintPart, ...]:
    parts = [replace(one, since=RULES) for one in value_fingerprint(name, function, sources, owners)]
    functions = _functions(function)
    if not any(map(owners.is_own_code, functions)):
        return tuple(part for part in parts if part.is_code)
    if used.isdisjoint(one.__code__ for one in functions):
        return tuple(parts)
    return tuple(part if part.is_code else replace(part, form=MADE) for part in parts)


def _functions(value: Any) -> list[FunctionType]:
    """The function that is called, or the methods of the object or the class that is."""
    while isinstance(value, partial):
        value = value.func
    value = getattr(value, "__func__", value)
    if isinstance(value, FunctionType):
        return [value]
    kind = value if isinstance(value, type) else type(value)
    return [one for one in vars(kind).values() if isinstance(one, FunctionType)]
