"""What a function says, without how it is written.

A function is told by its syntax tree. Formatting, comments, docstrings, annotations (but those that decide what
kind of UDF it becomes), line numbers, the file and the names of local variables are no part of it, and neither is
the version of Python. The tree is looked up in the file that the function came from, and counts only if the file
still compiles to the very function that runs. Otherwise (no file, or one that was edited since) its bytecode is
told, which other versions of Python write differently.
"""

from __future__ import annotations

import ast
import copy
import dis
import linecache
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from types import CodeType
from typing import Any

from tidelock.fingerprint.parts import SOURCE

BYTECODE = f"bytecode of Python {sys.version_info[0]}.{sys.version_info[1]}"

_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_Named = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
_COSMETIC = {"ctx", "kind", "type_comment", "type_params", "type_ignores", "annotation", "returns"}
_HIDDEN = "…"


def digest(text: str) -> str:
    """A short name for a text, which no other text has."""
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


@dataclass(frozen=True)
class Told:
    """What a function says."""

    form: str
    """Told by its source, or by the bytecode of which Python."""
    digest: str
    shown: str
    """The same for people, without texts: one of them may be a password."""
    names: dict[str, str]
    """What the variables that it captures are called in ``digest``."""
    fields: str = ""
    """The annotations of the classes in it, which are no part of ``digest``."""


class Sources:
    """The files that functions came from, each read and parsed once."""

    def __init__(self) -> None:
        self._files: dict[str, _File | None] = {}

    def tell(self, code: CodeType, docstring: str | None = None) -> Told:
        """What the function with this code says."""
        file = self._file(code.co_filename)
        node = None if file is None else file.find(code)
        if node is None:
            return Told(BYTECODE, digest(_bytecode(code, docstring)), "", {})
        return _told(node, code)

    def statements(self, name: str) -> list[ast.stmt]:
        """The statements of a file; none if it cannot be read."""
        file = self._file(name)
        return [] if file is None else file.statements

    def _file(self, name: str) -> _File | None:
        if name not in self._files:
            linecache.checkcache(name)
            self._files[name] = _File.parse("".join(linecache.getlines(name)), name)
        return self._files[name]


@dataclass(frozen=True)
class _File:
    functions: dict[tuple[str, int], list[_Function]]
    codes: dict[tuple[str, int], list[CodeType]]
    statements: list[ast.stmt]

    @classmethod
    def parse(cls, text: str, name: str) -> _File | None:
        try:
            tree = ast.parse(text)
            whole = compile(text, name, "exec", dont_inherit=True)
        except (SyntaxError, ValueError):
            return None
        functions: dict[tuple[str, int], list[_Function]] = {}
        for node in ast.walk(tree):
            if isinstance(node, _Function):
                functions.setdefault(_place(node), []).append(node)
        codes: dict[tuple[str, int], list[CodeType]] = {}
        for code in nested(whole):
            codes.setdefault((code.co_name, code.co_firstlineno), []).append(code)
        return cls(functions, codes, tree.body)

    def find(self, code: CodeType) -> _Function | None:
        """The function with this code; None if it is not in the file, or no longer as it was."""
        place = (code.co_name, code.co_firstlineno)
        if code not in self.codes.get(place, []):
            return None
        found = self.functions.get(place, [])
        if len(found) > 1:
            found = _around(code, found)
        return found[0] if len(found) == 1 else None


def nested(code: CodeType) -> Iterator[CodeType]:
    """A code object and all that are defined inside of it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from nested(constant)


def _place(node: _Function) -> tuple[str, int]:
    """The name and the first line that its code object has."""
    if isinstance(node, ast.Lambda):
        return "<lambda>", node.lineno
    return node.name, min([node.lineno, *(one.lineno for one in node.decorator_list)])


def _around(code: CodeType, nodes: list[_Function]) -> list[_Function]:
    """Of several functions that begin in one line, the innermost whose body has all that is in the code.

    Python 3.12 does not say where the code of `lambda: 1` is; then it may be any of them.
    """
    places = [(l1, c1, l2, c2) for l1, l2, c1, c2 in code.co_positions() if None not in (l1, c1, l2) and c2]
    if not places:
        return nodes
    fitting = [node for node in nodes if all(_is_inside(place, node) for place in places)]
    return sorted(fitting, key=lambda node: (node.lineno, node.col_offset))[-1:]


def _is_inside(place: tuple[Any, ...], node: _Function) -> bool:
    body: Any = [node.body] if isinstance(node, ast.Lambda) else node.body
    begin, end = (body[0].lineno, body[0].col_offset), (body[-1].end_lineno, body[-1].end_col_offset)
    return begin <= place[:2] and place[2:] <= end


# -- by source


def _told(node: _Function, code: CodeType) -> Told:
    plain = _Plain(_local_names(node, code))
    body: list[Any] = [node.body] if isinstance(node, ast.Lambda) else [*_body(node)]
    parts = [plain.visit(copy.deepcopy(one)) for one in (node.args, *body)]
    hints = [*_hints(node)]
    text = "\n".join([*map(_dumped, parts), *hints])
    shown = "\n".join([*(ast.unparse(_Hidden().visit(copy.deepcopy(one))) for one in body), *hints])
    return Told(SOURCE, digest(f"{type(node).__name__}\n{text}"), shown, plain.names, _fields(node))


def told_statements(statements: Sequence[ast.stmt]) -> Told:
    """What statements say that are in no function."""
    copies = [copy.deepcopy(one) for one in statements]
    text = "\n".join(_dumped(_Plain(set()).visit(one)) for one in copies)
    shown = "; ".join(ast.unparse(_Hidden().visit(one)) for one in copies)
    return Told(SOURCE, digest(text), " ".join(shown.split()), {})


def _fields(node: ast.AST) -> str:
    """The annotations of the classes that are defined inside of a function."""
    classes = (one for one in ast.walk(node) if isinstance(one, ast.ClassDef))
    fields = ((one, part) for one in classes for part in one.body if isinstance(part, ast.AnnAssign))
    lines = (f"{one.name}.{ast.unparse(part.target)}: {_unquoted(part.annotation)}" for one, part in fields)
    return "\n".join(lines)


def _unquoted(annotation: ast.expr) -> str:
    """An annotation in one way, whether it is written as a text or not."""
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        try:
            return ast.unparse(ast.parse(annotation.value.strip(), mode="eval").body)
        except SyntaxError:
            return annotation.value
    return ast.unparse(annotation)


def _hints(node: ast.AST) -> Iterator[str]:
    """Annotations with a Series of pandas or an Array of Arrow: Spark takes from them what kind of UDF it is."""
    for one in ast.walk(node):
        if isinstance(one, ast.FunctionDef):
            given = [*one.args.posonlyargs, *one.args.args, *one.args.kwonlyargs]
            hints = [ast.unparse(hint) for hint in (*(arg.annotation for arg in given), one.returns) if hint]
            text = re.sub(r"['\"]|\b\w+\.", "", ", ".join(hints))
            if re.search(r"\b(Series|Array)\b", text):
                yield f"hints: {text}"


def _body(node: _Named) -> list[ast.stmt]:
    """The statements of a function or class without its docstring, and without those that do nothing."""
    fields = isinstance(node, ast.ClassDef)
    return [statement for statement in node.body if not _is_idle(statement, fields=fields)]


def _is_idle(statement: ast.stmt, *, fields: bool) -> bool:
    """``fields``: an annotation without a value is the field of a class."""
    if isinstance(statement, ast.AnnAssign):
        return not fields and statement.value is None and isinstance(statement.target, ast.Name)
    text = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    return text or isinstance(statement, ast.Pass)


def _local_names(node: _Function, code: CodeType) -> set[str]:
    """The variables whose names do not count: assigned in the function, or captured, and nothing else as well."""
    bound, fixed = set(code.co_freevars), {"__class__"} | global_names(code)
    for one in ast.walk(node):
        match one:
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()) | ast.ExceptHandler(name=str(name)):
                bound.add(name)
            case ast.arg(arg=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                fixed.add(name)
            case ast.ClassDef():
                fixed.add(one.name)
                fixed |= {n.id for part in one.body for n in ast.walk(part) if isinstance(n, ast.Name)}
            case ast.alias():
                fixed.add((one.asname or one.name).partition(".")[0])
            case ast.Global(names=names):
                fixed.update(names)
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
                fixed.add(name)
    fixed.discard("")
    return bound - (fixed - {node.name} if not isinstance(node, ast.Lambda) else fixed)


def global_names(code: CodeType) -> set[str]:
    """The names that a function, or one inside of it, looks up outside."""
    return {
        str(one.argval)
        for part in nested(code)
        for one in dis.get_instructions(part)
        if one.opname in ("LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL")
    }


class _Plain(ast.NodeTransformer):
    """Takes out what does not count. Local variables are numbered as they come."""

    def __init__(self, local: set[str]) -> None:
        self._local = local
        self.names: dict[str, str] = {}

    def visit_Name(self, node: ast.Name) -> ast.Name:
        node.id = self._name(node.id)
        return node

    def visit_Nonlocal(self, node: ast.Nonlocal) -> ast.Nonlocal:
        node.names = [self._name(name) for name in node.names]
        return node

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> ast.AST:
        node.name = self._name(node.name) if node.name else None
        return self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return self._definition(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return self._definition(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return self._definition(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        if node.value is None or not isinstance(node.target, ast.Name):
            return self.generic_visit(node)
        plain = ast.Assign([node.target], node.value)
        return self.generic_visit(ast.fix_missing_locations(ast.copy_location(plain, node)))

    def _definition(self, node: _Named) -> ast.AST:
        node.body = _body(node) or [ast.Pass()]
        return self.generic_visit(node)

    def _name(self, name: str) -> str:
        if name not in self._local:
            return name
        return self.names.setdefault(name, f"local_{len(self.names)}")


class _Hidden(ast.NodeTransformer):
    """Hides texts."""

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        return ast.Constant(_HIDDEN) if isinstance(node.value, str | bytes) else node


def _dumped(node: Any) -> str:
    """A tree as text, the same in all versions of Python: what is empty is left out."""
    if isinstance(node, ast.AST):
        fields = [(name, value) for name, value in ast.iter_fields(node) if name not in _COSMETIC]
        if isinstance(node, ast.Constant):
            return constant(node.value)
        inside = ",".join(f"{name}={_dumped(value)}" for name, value in fields if value not in (None, []))
        return f"{type(node).__name__}({inside})"
    if isinstance(node, list):
        return f"[{','.join(map(_dumped, node))}]"
    return repr(node)


# -- by bytecode


def _bytecode(code: CodeType, docstring: str | None = None) -> str:
    constants = [None if one == docstring and not place else one for place, one in enumerate(code.co_consts)]
    parts = [code.co_code.hex(), code.co_names, code.co_varnames, code.co_freevars, code.co_argcount]
    return repr([*parts, code.co_kwonlyargcount, [constant(one) for one in constants]])


def constant(value: Any) -> str:
    """A constant of Python, with its type: 1, 1.0 and True are three."""
    if isinstance(value, CodeType):
        return _bytecode(value)
    if isinstance(value, tuple):
        return f"({','.join(map(constant, value))})"
    if isinstance(value, frozenset):
        return f"{{{','.join(sorted(map(constant, value)))}}}"
    return f"{type(value).__name__}:{value!r}"
