"""What a module of the user assigns, as it is written.

A module that is handed on as it is (`getattr(rates, name)`, `run(rates)`) may be asked for anything in it. Its
values may change while the program runs, or be others in every run, so they are told by the statements that assign
them: those do not change unless somebody changes them.
"""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import ModuleType

_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


@dataclass
class Assigned:
    """What the statements of a module give names to."""

    statements: dict[str, list[ast.stmt]] = field(default_factory=dict)
    """The statements that assign or change a name, in their order."""
    imported: dict[str, tuple[str, str]] = field(default_factory=dict)
    """The modules that names are imported from, and what they are called there."""
    everything: list[str] = field(default_factory=list)
    """The modules that everything is imported from."""


def assigned(statements: Sequence[ast.stmt]) -> Assigned:
    """What the statements of a module give names to."""
    found = Assigned()
    for statement in statements:
        if not isinstance(statement, _DEFINITIONS):
            for one in _outside_definitions(statement):
                _note(one, statement, found)
    names = set(found.statements)
    for statement in statements:
        for name in {*_changed(statement)} & names:
            if statement not in found.statements[name]:
                found.statements[name].append(statement)
    order = {id(statement): place for place, statement in enumerate(statements)}
    for some in found.statements.values():
        some.sort(key=lambda one: order[id(one)])
    return found


def _note(node: ast.AST, statement: ast.stmt, found: Assigned) -> None:
    if isinstance(node, ast.ImportFrom):
        path = f"{'.' * node.level}{node.module or ''}"
        for alias in node.names:
            if alias.name == "*":
                found.everything.append(path)
            else:
                found.imported[alias.asname or alias.name] = path, alias.name
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and not _is_special(node.id):
        known = found.statements.setdefault(node.id, [])
        if statement not in known:
            known.append(statement)


def _changed(statement: ast.stmt) -> Iterator[str]:
    """The names whose values a statement changes: `NAMES["a"] = 1`, `NAMES.update(a=1)`."""
    for one in _outside_definitions(statement):
        if isinstance(one, ast.Subscript | ast.Attribute) and isinstance(one.ctx, ast.Store):
            yield from _root(one)
        elif isinstance(one, ast.Expr) and isinstance(one.value, ast.Call):
            yield from _root(one.value.func) if isinstance(one.value.func, ast.Attribute) else ()


def _root(node: ast.expr) -> Iterator[str]:
    while isinstance(node, ast.Subscript | ast.Attribute):
        node = node.value
    if isinstance(node, ast.Name):
        yield node.id


def _outside_definitions(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, _DEFINITIONS):
            yield from _outside_definitions(child)


def chains(statements: Sequence[ast.stmt]) -> list[tuple[str, ...]]:
    """The names that statements look up, each alone and with the attribute that is taken of it; sorted."""
    found: set[tuple[str, ...]] = set()
    for one in (node for statement in statements for node in ast.walk(statement)):
        if isinstance(one, ast.Name):
            found.add((one.id,))
        elif isinstance(one, ast.Attribute) and isinstance(one.value, ast.Name):
            found.add((one.value.id, one.attr))
    return sorted(found)


def module_at(path: str, module: ModuleType) -> ModuleType | None:
    """The module that ``module`` imports something from; None if it is not known."""
    try:
        return sys.modules.get(importlib.util.resolve_name(path, module.__package__ or ""))
    except ImportError:
        return None


def _is_special(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")
