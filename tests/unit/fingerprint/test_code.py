"""Fingerprints of functions: what counts, and what does not."""

import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.unit.fingerprint.modules import digests, loaded, parts
from tests.unit.fingerprint.pairs import DIFFERENT, SAME

from tidelock.fingerprint.code import fingerprint
from tidelock.fingerprint.comparing import compare
from tidelock.fingerprint.owners import Owners
from tidelock.fingerprint.parts import SOURCE, FingerprintPart
from tidelock.fingerprint.source import BYTECODE


@pytest.mark.parametrize("what", SAME)
def test_what_does_not_count(what: str, tmp_path: Path) -> None:
    before, after = SAME[what]
    assert digests(tmp_path, before) == digests(tmp_path, after)


@pytest.mark.parametrize("what", DIFFERENT)
def test_what_counts(what: str, tmp_path: Path) -> None:
    before, after = DIFFERENT[what]
    old, new = parts(tmp_path, before), parts(tmp_path, after)
    assert {n: p.digest for n, p in old.items()} != {n: p.digest for n, p in new.items()}
    assert compare([*old.values()], [*new.values()]).changed
    assert all(part.form != BYTECODE for part in (*old.values(), *new.values())), "the source was not found"


MODULES = {
    "an imported function": "from helpers import g\ndef f(x): return g(x)",
    "a function of an imported module": "import helpers\ndef f(x): return helpers.g(x)",
    "a function imported inside": "def f(x):\n    from helpers import g\n    return g(x)",
    "a module that is imported inside": "def f(x):\n    import helpers\n    return helpers.g(x)",
    "a module under another name": "def f(x):\n    import helpers as h\n    return [h.g(y) for y in x]",
    "a module in a function around it": (
        "def f(x):\n    import helpers\n    def inner(y): return helpers.g(y)\n    return inner"
    ),
    "a module that is captured": "def make():\n    import helpers\n    return lambda x: helpers.g(x)\nf = make()",
    "a module that is asked by name": "import helpers\ndef f(x): return getattr(helpers, 'g')(x)",
}


@pytest.mark.parametrize("what", MODULES)
def test_a_helper_in_another_module_of_the_user_counts(what: str, tmp_path: Path) -> None:
    one, other, moved = (
        digests(tmp_path, MODULES[what], helpers=text)
        for text in ("def g(x): return 1", "def g(x): return 2", "# new\n\ndef g(x):\n    return 1")
    )
    assert one == moved != other


INDIRECT = {
    "another name": "import helpers\ndef f(x):\n    m = helpers\n    return m.K",
    "a name that is asked": "import helpers\ndef f(x): return getattr(helpers, 'K')",
    "a module that is given": "import helpers\ndef g(m): return m.K\ndef f(x): return g(helpers)",
    "a module in a dictionary": "import helpers\nM = {'a': helpers}\ndef f(x): return M['a'].K",
    "a module that is captured": (
        "def make():\n    import helpers\n    m = [helpers]\n    return lambda x: m[0].K\nf = make()"
    ),
}
GLOBALS = {
    "a number": ("K = 1", "K = 2"),
    "a text": ("K = 'a'", "K = 'b'"),
    "a dictionary": ("K = {'a': 1}", "K = {'a': 2}"),
    "a dictionary that is filled": ("K = {}\nK['a'] = 1", "K = {}\nK['a'] = 2"),
    "an object": ("import re\nK = re.compile('a')", "import re\nK = re.compile('b')"),
    "what it is computed from": ("J = 1\nK = J + 1", "J = 2\nK = J + 1"),
    "a choice": ("K = 1\nif K: K = 2", "K = 1\nif not K: K = 2"),
    "a loop": ("K = 0\nfor i in range(3): K += i", "K = 0\nfor i in range(4): K += i"),
}
CONSTANT = {
    "formatting": ("K = {'a': 1}", '# one\n\nK: dict = {\n    "a": 1,\n}'),
    "what is there only in one run": ("import time, uuid\nK = time.time()\nR = uuid.uuid4()",) * 2,
    "a docstring": ("K = 1", "'Says something.'\n__version__ = '1'\nK = 1"),
    "what it says": ("K = 1", "print('hello')\nK = 1"),
}


@pytest.mark.parametrize("what", INDIRECT)
def test_what_a_module_assigns_counts_if_it_is_handed_on(what: str, tmp_path: Path) -> None:
    one, again, other = (digests(tmp_path, INDIRECT[what], helpers=text) for text in ("K = 1", "K = 1 ", "K = 2"))
    assert one == again != other


@pytest.mark.parametrize("what", GLOBALS)
def test_what_counts_of_a_module(what: str, tmp_path: Path) -> None:
    asked = "import helpers\ndef f(x): return getattr(helpers, x)"
    one, other = (digests(tmp_path, asked, helpers=text) for text in GLOBALS[what])
    assert one != other


@pytest.mark.parametrize("what", CONSTANT)
def test_what_does_not_count_of_a_module(what: str, tmp_path: Path) -> None:
    asked = "import helpers\ndef f(x): return getattr(helpers, x)"
    one, other = (digests(tmp_path, asked, helpers=text) for text in CONSTANT[what])
    assert one == other


def test_what_a_program_does_to_a_module_does_not_count(tmp_path: Path) -> None:
    asked = "import helpers\ndef f(x): return getattr(helpers, x)"
    with loaded(tmp_path, asked, helpers="SEEN = {}\nN = 0") as module:
        before = fingerprint(module.f)
        module.helpers.SEEN["a"] = 1
        module.helpers.N = module.helpers.NEW = 1
        assert fingerprint(module.f) == before


FROM_ELSEWHERE = {
    "a constant": "from settings import K",
    "a constant under another name": "from settings import K as L",
    "a constant, among all": "from settings import *",
    "what a constant is computed from": "import settings\nK = settings.K + 1",
    "what computes a constant": "import settings\nL = settings.twice(1)",
    "a function": "from settings import twice",
}


@pytest.mark.parametrize("what", FROM_ELSEWHERE)
def test_what_a_module_has_from_another_counts(what: str, tmp_path: Path) -> None:
    asked = "import helpers\ndef f(x): return getattr(helpers, x)"
    settings = "J = 1\nK = J * 2\ndef twice(x): return x * 2"
    one, again, other = (
        digests(tmp_path, asked, helpers=FROM_ELSEWHERE[what], settings=text)
        for text in (settings, settings.replace("J * 2", "(J *  2)"), settings.replace("2", "3"))
    )
    assert one == again != other
    if "from" in FROM_ELSEWHERE[what] and "twice" not in FROM_ELSEWHERE[what]:
        assert one != digests(
            tmp_path, asked, helpers=FROM_ELSEWHERE[what], settings=settings.replace("J = 1", "J = 5")
        )


def test_texts_of_modules_and_annotations_are_not_shown(tmp_path: Path) -> None:
    text = (
        "import helpers, struct\nfrom typing import Literal\nclass C:\n    a: Literal['hunter2']\n"
        "V = {'hunter2': 1}.keys()\ndef f(x):\n    class D:\n        a: Literal['hunter2']\n"
        "    return helpers, C, D, V"
    )
    assert "hunter2" not in str(parts(tmp_path, text, helpers="K = 'hunter2'").values())


def test_what_only_newer_rules_see_is_in_parts_of_its_own(tmp_path: Path) -> None:
    text = (
        "import helpers, struct\nfrom dataclasses import dataclass\n@dataclass\nclass D:\n    b: int\n"
        "@dataclass\nclass C:\n    a: D\nS = {struct.Struct('i'), struct.Struct('d')}\n"
        "def f(x):\n    m = helpers\n    return m.K, C, S, D"
    )
    found = parts(tmp_path, text, helpers="from other import g\nK = g(1)", other="def g(x): return x").values()
    old, new = ([part.name for part in found if part.since == since] for since in (1, 2))
    assert old == ["f", "S", "C", "D"]
    assert new == [
        *("S, contents 1", "S, contents 2", "helpers.K", "helpers.g", "C.a, type", "D.b, type"),
    ]


PACKAGES = {
    "a module of the package": "from . import b\n    return b.g(x)",
    "a module of the package, under another name": "from . import b as c\n    return c.g(x)",
    "a function of a module beside it": "from .b import g\n    return g(x)",
    "a function of a module above it": "from ..b import g\n    return g(x)",
    "a module above it": "from .. import b\n    return b.g(x)",
    "a module by its whole name": "import pack.b\n    return pack.b.g(x)",
    "a module by its whole name, under another": "import pack.inner.b as c\n    return c.g(x)",
}


@pytest.mark.parametrize("what", PACKAGES)
def test_what_a_function_imports_from_its_package_counts(what: str, tmp_path: Path) -> None:
    def told(b: str) -> dict[str, tuple[str, str]]:
        jobs = f"def f(x):\n    {PACKAGES[what]}"
        beside = {"pack/__init__": "", "pack/b": b, "pack/inner/__init__": "", "pack/inner/b": b}
        return digests(tmp_path, "from pack.inner.jobs import f", **beside, **{"pack/inner/jobs": jobs})

    one = told("def g(x): return 1")
    assert one == told("def g(x): return 1\ndef h(x): return 3") != told("def g(x): return 2")


def test_a_function_counts_the_same_wherever_it_is_imported_from(tmp_path: Path) -> None:
    here = digests(tmp_path, "def g(x): return 1\ndef f(x): return g(x)")
    assert digests(tmp_path, "from away import g\ndef f(x): return g(x)", away="def g(x): return 1") == here


def test_without_its_source_a_function_is_told_by_its_bytecode() -> None:
    def told(text: str) -> list[FingerprintPart]:
        scope: dict[str, object] = {}
        exec(text, scope)
        return [*fingerprint(scope["f"])]  # type: ignore[arg-type]

    one = told("def f(x):\n    'A docstring.'\n    return x in {1, 2, 'a'}")
    assert [part.form for part in one] == [BYTECODE]
    assert one == told("def f(x):\n\n    return x in {1, 2, 'a'}")
    assert one != told("def f(x): return x in {1, 2, 'b'}")


def test_methods_without_their_source_count() -> None:
    def told(text: str) -> list[tuple[str, str]]:
        scope: dict[str, object] = {"__name__": "__main__"}
        exec(compile(text, "<command-7>", "exec"), scope)
        return [(part.name, part.digest) for part in fingerprint(scope["f"])]  # type: ignore[arg-type]

    program = "class P:\n    def handle(self): return {}\ndef f(x): return P()"
    assert told(program.format(1)) == told("\n" + program.format(1)) != told(program.format(2))


def test_shared_values_are_walked_once(tmp_path: Path) -> None:
    text = "L = [1]\nfor _ in range(60): L = [L, L]\ndef f(x): return L"
    (part,) = (part for name, part in parts(tmp_path, text).items() if name == "L")
    assert len(part.shown) <= 300


def test_a_file_that_was_edited_since_it_was_loaded_says_nothing(tmp_path: Path) -> None:
    with loaded(tmp_path, "def f(x): return 1") as module:
        assert module.__file__ is not None
        before = fingerprint(module.f)
        Path(module.__file__).write_text("def f(x): return 2000")
        after = fingerprint(module.f)
    assert [part.form for part in (*before, *after)] == [SOURCE, BYTECODE]


def test_a_function_that_collects_does_not_change_by_that(tmp_path: Path) -> None:
    with loaded(tmp_path, "SEEN = []\ndef f(x): SEEN.append(x)") as module:
        before = fingerprint(module.f, contents=False)
        module.f(1)
        assert fingerprint(module.f, contents=False) == before
        assert fingerprint(module.f) != before


EVERYWHERE = """
{imports}
import collections, functools, struct, sys, threading, types
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd
from tidelock.fingerprint.code import fingerprint

sys.path.insert(0, str(Path(__file__).parent))
import beside

@dataclass(frozen=True)
class Rule:
    name: Annotated[str, frozenset({{"x", "y"}})]
    check: "object"

class P:
    def __init__(self): self.words = frozenset(WORDS)
    def handle(self, x): return x in {{"x", "y", "z"}}

def make(n):
    return lambda x: x + n

def fa(x): return 1
def fb(x): return 2

WORDS = {{"a", "b", "c", "d"}}
THING = object()
FUNCTIONS = {{("a", fa), ("b", fb), ("c", make(1)), ("d", make(2))}}
RULES = {{Rule("a", fa), Rule("b", fb), Rule("c", beside.third)}}
CLOSURES = {{make(1), make(2), make(3)}}
INSIDE = frozenset({{frozenset({{fa, fb}}), frozenset({{make(1), fa}}), frozenset({{("a", make(2))}})}})
KINDS = {{P, Rule, int, beside.Fourth}}
WAYS = {{lambda x: x in CLOSURES, lambda x: x in WAYS}}
TABLE = pd.DataFrame({{"a": [1, 2], "b": ["x", None]}})
LATER = collections.defaultdict(list, {{"a": [threading.Lock(), np.array([fa], dtype=object)]}})

@functools.singledispatch
def told(x): return 1
@told.register
def _(x: collections.abc.Sized): return 2

FORMATS = {{struct.Struct("<i"), struct.Struct(">i"), {{"a": 1}}.values(), memoryview(b"a")}}
p = P()
def f(x):
    sets = [WORDS, {{"q", "r"}}, FUNCTIONS, RULES, CLOSURES, INSIDE, KINDS, WAYS]
    return [p.handle(x), sets, THING, TABLE, LATER, told, beside, FORMATS]

print([part.encode() for part in fingerprint(f)])
"""


def test_the_same_in_every_process(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text(
        "import time\nNOW = time.time()\nALL = {'a', 'b', 'c'}\ndef third(x): return 3\nclass Fourth: pass"
    )
    answers = set()
    for seed, imports in (
        ("1", ""),
        ("2", "import decimal, pyspark.sql"),
        ("3", "import email, abc, html"),
        ("4", ""),
    ):
        program = tmp_path / "program.py"
        program.write_text(EVERYWHERE.format(imports=imports))
        done = subprocess.run(
            [sys.executable, str(program)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
            text=True,
        )
        answers.add(done.stdout)
    assert len(answers) == 1


HOSTILE = {
    "a proxy of a server": "import xmlrpc.client\nV = xmlrpc.client.ServerProxy('http://localhost:1')",
    "a mock": "from unittest.mock import MagicMock\nV = MagicMock()",
    "what every attribute of is such a thing": (
        "class V:\n    def __getattr__(self, name): return V()\n    def __call__(self): return V()\nV = V()"
    ),
    "what raises for every attribute": (
        "class V:\n    def __getattr__(self, n): raise RuntimeError(n)\n    def __call__(self): pass\nV = V()"
    ),
    "what raises for its class": (
        "class V:\n    @property\n    def __class__(self): raise RuntimeError('not now')\nV = V()"
    ),
    "what raises when it is shown": "class V(int):\n    def __repr__(self): raise RuntimeError('no')\nV = V(1)",
    "what raises when it is copied": (
        "from string import Template\nclass V(Template):\n"
        "    def __reduce_ex__(self, n): raise RuntimeError('no')\nV = V('a')"
    ),
    "a class with such a thing": (
        "import xmlrpc.client\nclass V:\n    a = xmlrpc.client.ServerProxy('http://localhost:1')\n    __b__ = a"
    ),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_what_does_not_want_to_be_looked_at_counts_by_its_type(what: str, tmp_path: Path) -> None:
    used = f"{HOSTILE[what]}\ndef make(v):\n    return lambda x: (v, V)\nf = make(V)"
    one, again = (digests(tmp_path, used) for _ in range(2))
    assert one == again != digests(tmp_path, used.replace("(v, V)", "(V, v)"))
    assert any(name == "V" for name in one)


def test_a_package_that_was_installed_counts_if_it_declares_the_pipeline(tmp_path: Path) -> None:
    with installed(
        tmp_path, "from acme.rates import rate\nimport other\ndef f(x): return rate(x), other.g(x)"
    ) as f:
        own = {part.name: part.form for part in fingerprint(f)}
        foreign = {part.name: part.form for part in fingerprint(f, owners=Owners())}
    assert own == {"f": SOURCE, "rate": SOURCE, "other": "name"}
    assert foreign == {"f": "value"}


@contextmanager
def installed(folder: Path, jobs: str) -> Iterator[Any]:
    """The function `f` of the package acme, which was installed, as was another one."""
    for name, text in {"acme/__init__": "", "acme/jobs": jobs, "acme/rates": "def rate(x): return x"}.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / f"{name}.py").write_text(text)
    (folder / "other.py").write_text("def g(x): return x")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tidelock.fingerprint.owners._LIBRARIES", (folder.resolve(),))
        patch.syspath_prepend(str(folder))
        yield importlib.import_module("acme.jobs").f
    for gone in ("acme.jobs", "acme.rates", "acme", "other"):
        del sys.modules[gone]


def test_no_text_is_shown(tmp_path: Path) -> None:
    text = "P = 'hunter2'\nD = {P: b'hunter2'}\ndef f(x, y='hunter2'): return f'hunter2{x}' + 'hunter2' + P, D"
    assert "hunter2" not in str([part.shown for part in parts(tmp_path, text).values()])
