"""Fingerprints of random functions: writing them differently does not count, every edit of a leaf does."""

import ast
import itertools
import linecache
from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tidelock.fingerprint.code import fingerprint
from tidelock.fingerprint.comparing import compare
from tidelock.fingerprint.parts import SOURCE, FingerprintPart

LOCALS = ("a", "b", "c")
numbers = itertools.count()

leaves = st.one_of(
    st.integers(0, 9).map(str),
    st.sampled_from(["'x'", "'y'", "1.5", "None", "x", "LIMIT", "helper(x)", *LOCALS]),
)
expressions = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["+", "-", "or", "=="]), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
        inner.map(lambda one: f"[v for v in [{one}]]"),
        inner.map(lambda one: f"(lambda q: {one})"),
        st.lists(inner, max_size=2).map(lambda some: f"({', '.join(some)},)" if some else "()"),
    ),
    max_leaves=6,
)
statements = st.tuples(st.sampled_from(LOCALS), expressions).map(lambda t: f"{t[0]} = {t[1]}")
bodies = st.lists(statements, min_size=1, max_size=4)


def program(body: list[str], result: str, limit: int = 3) -> str:
    first = [f"{name} = 0" for name in LOCALS]
    lines = [f"    {line}" for line in [*first, *body, f"return {result}, LIMIT"]]
    return "\n".join([f"LIMIT = {limit}", "def helper(y): return y", "def f(x):", *lines, ""])


def told(text: str) -> tuple[FingerprintPart, ...]:
    """The fingerprint of `f`, which is never called, in a program that is known by its lines."""
    name = f"<random {next(numbers)}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    scope: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(text, name, "exec", dont_inherit=True), scope)
    try:
        return fingerprint(scope["f"])
    finally:
        del linecache.cache[name]


class Edited(ast.NodeTransformer):
    """Changes the leaf of that number, among constants and operators."""

    def __init__(self, place: int) -> None:
        self._left = place

    def _now(self) -> bool:
        self._left -= 1
        return self._left == -1

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        return ast.Constant("edited") if self._now() else node

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        return ast.BinOp(node.left, ast.Mult(), node.right) if self._now() else node


def edited(text: str, change: Callable[[ast.Module], ast.AST]) -> str:
    return ast.unparse(ast.fix_missing_locations(change(ast.parse(text))))


@settings(deadline=None, max_examples=40)
@given(bodies, expressions)
def test_writing_it_differently_does_not_count(body: list[str], result: str) -> None:
    text = program(body, result)
    spread = text.replace("def f(x):\n", "\n\n# more\ndef f(x: int) -> 'int':\n    '''Says something.'''\n\n")
    renamed = edited(text, _renamed)
    assert told(text) == told(edited(text, lambda tree: tree)) == told(spread)
    exact = [(part.name, part.digest) for part in told(text)]
    assert exact == [(part.name, part.digest) for part in told(renamed)]


def _renamed(tree: ast.Module) -> ast.AST:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in LOCALS:
            node.id = f"other_{node.id}"
    return tree


@settings(deadline=None, max_examples=40)
@given(bodies, expressions, st.integers(0, 12))
def test_every_edit_of_a_leaf_counts(body: list[str], result: str, place: int) -> None:
    text = program(body, result)
    other = edited(text, Edited(place).visit)
    difference = compare(told(text), told(other))
    assert bool(difference.changed) == (other != edited(text, lambda tree: tree))
    assert not difference.unknown
    assert {part.form for part in told(text)} <= {SOURCE, "value"}
