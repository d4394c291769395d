"""What a function names outside of itself, and what that means."""

from __future__ import annotations

import builtins
import dis
import importlib
import importlib.util
import itertools
import sys
from collections.abc import Iterator, Mapping
from types import CodeType, FunctionType, ModuleType
from typing import Any

from tidelock.fingerprint.owners import Owners, folder_of
from tidelock.fingerprint.source import nested

_IMPORT = "import "

Chain = tuple[str, ...]
"""A name, and the attributes taken of it one after the other; or ``import`` and a module instead of the name."""


def references(code: CodeType) -> list[Chain]:
    """What a function, or one inside of it, uses of its globals and of the modules that it imports; sorted."""
    parts = [*nested(code)]
    imported: dict[str, set[Chain]] = {}
    for part in parts:
        for variable, chain in _imports(part):
            imported.setdefault(variable, set()).add(chain)
    return sorted({chain for part in parts for chain in _chains(part, imported)})


def _chains(code: CodeType, imported: Mapping[str, set[Chain]]) -> Iterator[Chain]:
    begun: list[Chain] = []
    for one in dis.get_instructions(code):
        if one.opname in ("LOAD_ATTR", "LOAD_METHOD"):
            begun = [(*chain, str(one.argval)) for chain in begun]
            continue
        yield from begun
        begun = [*_begun(one, imported)]


def _begun(one: dis.Instruction, imported: Mapping[str, set[Chain]]) -> Iterator[Chain]:
    """What an instruction loads: a global, or what a variable was imported as."""
    if "LOAD_" in one.opname and one.opname != "LOAD_CONST":
        name = _variables(one)[-1]
        yield from imported.get(name, ())
        if one.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            yield (name,)


def _imports(code: CodeType) -> Iterator[tuple[str, Chain]]:
    """The variables to which something is imported inside of a function, with what that is."""
    level, names = 0, None
    chain: Chain = ()
    base: Chain = ()
    found = (one for one in dis.get_instructions(code) if one.opname != "EXTENDED_ARG")
    for before, one in itertools.pairwise(found):
        if one.opname == "IMPORT_NAME":
            names = before.argval
            module = str(one.argval) if names else str(one.argval).partition(".")[0]
            chain = base = (f"{_IMPORT}{'.' * level}{module}",)
        elif one.opname == "IMPORT_FROM":
            chain = (*(base if names else chain), str(one.argval))
        elif one.opname.startswith("STORE_") and chain:
            yield _variables(one)[0], chain
            chain = ()
        level = before.argval if isinstance(before.argval, int) else 0


def _variables(one: dis.Instruction) -> tuple[str, ...]:
    """The variables of an instruction; newer versions of Python have some that store or load two at once."""
    return tuple(map(str, one.argval)) if isinstance(one.argval, tuple) else (str(one.argval),)


def looked_up(chain: Chain, scope: Mapping[str, Any], owners: Owners) -> tuple[str, Any, str | None] | None:
    """The name, the value and the folder of what a chain means; None if it is nothing that counts."""
    first, *rest = chain
    if first.startswith("__") or (first not in scope and hasattr(builtins, first)):
        return None
    imports = first.startswith(_IMPORT)
    value = _imported(first.removeprefix(_IMPORT), scope, owners) if imports else scope.get(first, _Missing)
    where, name = folder_of(scope), first.removeprefix(_IMPORT)
    for attribute in rest:
        if not issubclass(type(value), ModuleType) or not owners.is_own_module(value):
            break
        where, name = folder_of(vars(value)), f"{name}.{attribute}"
        inside = getattr(value, attribute, _Missing)
        value = _imported(f"{value.__name__}.{attribute}", scope, owners) if inside is _Missing else inside
    return None if value is _Missing else (name, value, where)


class _Missing:
    """Stands for what is not there."""


def _imported(name: str, scope: Mapping[str, Any], owners: Owners) -> Any:
    """A module that a function imports while it runs; it is imported now, if it is the user's."""
    package = scope.get("__package__") or str(scope.get("__name__")).rpartition(".")[0]
    try:
        full = importlib.util.resolve_name(name, package)
        if full in sys.modules:
            return sys.modules[full]
        spec = importlib.util.find_spec(full)
        if spec is not None and owners.is_own(full, spec.origin):
            return importlib.import_module(full)
    except Exception:  # the user's module, which may need what only workers have
        pass
    return _Missing


def defined(module: ModuleType) -> dict[str, Any]:
    """The functions and classes that a module defines."""
    kinds = (FunctionType, type)
    return {n: v for n, v in vars(module).items() if isinstance(v, kinds) and v.__module__ == module.__name__}
