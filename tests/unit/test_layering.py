"""Imports go down only, each vendor has one home, and protocol logic stays pure.

The tables are the rule; `docs/architecture.md` says why. A folder that is not in `LEVELS` fails here until it is
given its place; whoever widens a table does it in sight of the reviewer.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

SRC = Path(__file__).parents[2] / "src"

# Lowest first. A folder (or top-level module) may import what is on a lower level, and nothing on its own.
LEVELS = (
    {"errors"},
    {"credentials", "epochs", "errands", "error_notes", "extras", "intervals", "placing", "release"},
    {"stored_names", "urls"},
    {"backends", "fingerprint", "inside", "kafka", "redis", "recovery", "topology"},
    {"planning", "log", "coordination"},
    {"cache", "following"},
    {"alignment", "spark"},
    {"home"},
    {"backup", "mending", "pipeline"},
    {"caching"},
    {"preparing"},
    {"replanning"},
    {"running"},
    {"measuring", "pyspark_tidelock", "testing"},
    {"cli"},
    {"__main__"},
)
MOST_FILES = 15
"""In one folder, beside its `__init__`."""

VENDORS = {
    "pyspark": {"spark", "pyspark_tidelock"},
    "py4j": {"spark"},
    "redis": {"redis"},
    "kazoo": {"coordination"},
    "confluent_kafka": {"kafka"},
    "fastavro": {"spark"},
}

# Modules and folders without I/O, clock, threads or chance. They import each other and this much
# of the standard library, and arrays; add to it only what keeps that promise.
PURE = (
    "errors",
    "epochs",
    "intervals",
    "topology",
    "planning",
    "recovery",
    "cache.bytes",
    "cache.cells",
    "cache.fence",
    "cache.rows",
    "fingerprint.calls",
    "fingerprint.comparing",
    "fingerprint.nodes",
    "fingerprint.parts",
    "kafka.continuity",
    "log.cursor",
    "log.documents",
    "log.documents",
    "log.entry",
    "log.json_records",
    "log.sealed",
    "log.stores.kafka_state",
    "log.window",
    "following.merging",
    "spark.checkpoint.formats",
    "spark.checkpoint.layout",
    "spark.checkpoint.offsets",
    "alignment.landscape",
    "alignment.machine",
    "backup.owners",
    "running.pacing",
    "spark.checkpoint.formats",
    "spark.checkpoint.layout",
    "spark.checkpoint.offsets",
    "spark.checkpoint.snapshots",
    "spark.checkpoint.versions",
    "stored_names",
)
# fmt: off
PURE_LIBRARY = {
    "__future__", "abc", "bisect", "collections", "contextlib", "copy", "dataclasses", "decimal", "difflib",
    "enum", "fractions", "functools", "graphlib", "hashlib", "heapq", "html", "itertools", "json",
    "keyword", "math", "numbers", "numpy", "operator", "pyarrow", "re", "reprlib", "statistics", "string",
    "struct", "textwrap", "types", "typing", "zlib",
}
# fmt: on
IMPURE_BUILTINS = {"open", "print", "input"}

ROOT = "tidelock"
RANK = {unit: rank for rank, level in enumerate(LEVELS) for unit in level}
TOP = {"cli", "__main__"}


def violations(src: Path) -> list[str]:
    """Say what is wrong with the packages under `src`, one line each."""
    faults = []
    for file in sorted(src.rglob("*.py")):
        module = _module(file.relative_to(src))
        for line, fault in _faults(module, file):
            faults.append(f"{file.relative_to(src)}:{line}: {fault}")
    return faults


def _module(file: Path) -> str:
    parts = file.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _unit(module: str) -> str:
    """Reduce a dotted name to its row in the tables: a folder, a top-level module, or the root."""
    package, _, rest = module.partition(".")
    if package != ROOT:
        return package
    return rest.partition(".")[0] or ROOT


def _faults(module: str, file: Path) -> Iterator[tuple[int, str]]:
    unit = _unit(module)
    if unit != ROOT and unit not in RANK:
        yield 1, f"{unit!r} has no place in the layering: put it into LEVELS"
        return
    tree = ast.parse(file.read_text(encoding="utf-8"))
    package = module if file.stem == "__init__" else module.rpartition(".")[0]
    for line, target in _imports(tree, package):
        for fault in (_layer_fault(unit, target), _vendor_fault(unit, target)):
            if fault:
                yield line, fault
        if _is_pure(module) and not _keeps_pure(target):
            yield line, f"{module} is pure and may not import {target}"
    if _is_pure(module):
        for line, name in _bare_calls(tree):
            if name in IMPURE_BUILTINS:
                yield line, f"{module} is pure and may not call {name}()"


def _imports(tree: ast.AST, package: str) -> Iterator[tuple[int, str]]:
    """Yield every imported name in full, wherever the import stands and however it is written."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(node, package)
            for alias in node.names:
                yield node.lineno, f"{base}.{alias.name}"
        elif isinstance(node, ast.Call) and _called(node) in {"import_module", "__import__"}:
            for argument in node.args[:1]:
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                    yield node.lineno, argument.value


def _absolute(node: ast.ImportFrom, package: str) -> str:
    if not node.level:
        return node.module or ""
    parents = package.split(".")
    base = parents[: len(parents) - node.level + 1]
    return ".".join([*base, node.module] if node.module else base)


def _called(node: ast.Call) -> str:
    if isinstance(node.func, ast.Attribute):
        return node.func.attr
    return node.func.id if isinstance(node.func, ast.Name) else ""


def _layer_fault(unit: str, target: str) -> str | None:
    if target.partition(".")[0] != ROOT:
        return None
    other = _unit(target)
    if other not in RANK:  # a name of the public API, or the package itself
        other = ROOT
    if unit == ROOT or other == unit:
        return None
    allowed = unit in TOP if other == ROOT else RANK[other] < RANK[unit]
    return None if allowed else f"{unit} may not import {other} ({target})"


def _vendor_fault(unit: str, target: str) -> str | None:
    vendor = target.partition(".")[0]
    if unit in VENDORS.get(vendor, {unit}):
        return None
    return f"{unit} may not import {vendor}: its home is {', '.join(sorted(VENDORS[vendor]))}"


def _is_pure(module: str) -> bool:
    return any(f"{module}.".startswith(f"{ROOT}.{entry}.") for entry in PURE)


def _keeps_pure(target: str) -> bool:
    return _is_pure(target) or target.partition(".")[0] in PURE_LIBRARY


def _bare_calls(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        # only bare names: a method called `open` is no I/O by itself
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield node.lineno, node.func.id


def cycles(src: Path) -> list[str]:
    """Say which modules import each other around some corners, and which folders within a folder do."""
    found = []
    modules = _graph(src)
    for what, graph in (("modules", modules), ("folders", _folders(modules))):
        try:
            TopologicalSorter(graph).prepare()
        except CycleError as error:
            found.append(f"{what} import each other: {' -> '.join(error.args[1])}")
    return found


def _graph(src: Path) -> dict[str, set[str]]:
    """What every module imports, wherever the import stands; packages stand for what their `__init__` imports."""
    files = {_module(file.relative_to(src)): file for file in src.rglob("*.py")}
    files.pop(ROOT, None)  # which loads what it names when that is used
    graph = {}
    for module, file in files.items():
        package = module if file.stem == "__init__" else module.rpartition(".")[0]
        targets = {target for _, target in _imports(ast.parse(file.read_text(encoding="utf-8")), package)}
        named = {target if target in files else target.rpartition(".")[0] for target in targets}
        graph[module] = (named & files.keys()) - {module}
    return graph


def _folders(modules: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """The same for the folders that lie in one folder: all that is in one of them counts as one."""
    graph: dict[str, set[str]] = {}
    for module, targets in modules.items():
        for target in targets:
            ours, theirs = module.split("."), target.split(".")
            same = next((n for n, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), None)
            # modules of a folder and the folders in it are one thing, seen from outside
            if same is not None and len(ours) > same + 1 and len(theirs) > same + 1:
                graph.setdefault(".".join(ours[: same + 1]), set()).add(".".join(theirs[: same + 1]))
    return graph


def test_the_package_keeps_its_layers() -> None:
    faults = violations(SRC)
    assert not faults, "\n" + "\n".join(faults)


def test_nothing_imports_in_circles() -> None:
    assert not cycles(SRC)


def test_no_folder_is_a_heap() -> None:
    count = Counter(file.parent for file in (SRC / ROOT).rglob("*.py") if file.stem != "__init__")
    heaps = {str(folder.relative_to(SRC)): files for folder, files in count.items() if files > MOST_FILES}
    assert not heaps, f"more than {MOST_FILES} files: {heaps}"


def test_every_pure_entry_still_names_code() -> None:
    """A renamed module must not slip out of the purity check."""
    folder = SRC / ROOT
    gone = [
        entry
        for entry in PURE
        if (folder / entry.partition(".")[0]).is_dir()
        and not (path := folder / entry.replace(".", "/")).is_dir()
        and not path.with_suffix(".py").is_file()
    ]
    assert not gone, f"PURE names modules that are not there: {gone}"


def test_a_module_that_calls_itself_pure_is_held_to_it() -> None:
    free = []
    for file in SRC.rglob("*.py"):
        words = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
        if re.search(r"\bPure\b", words) and not _is_pure(module := _module(file.relative_to(SRC))):
            free.append(module)
    assert not free, f"add them to PURE, or take back what they say: {free}"


def _write(src: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        file = src / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")


GOOD_TREE = {
    "pyspark_tidelock/__init__.py": "from tidelock.spark.source import Source as DefaultSource",
    "tidelock/__init__.py": "from tidelock.cli import main\nfrom tidelock.log import EpochLog",
    "tidelock/errors.py": "class TidelockError(Exception): ...",
    "tidelock/epochs.py": "from tidelock.errors import InternalError\nfrom typing import NewType",
    "tidelock/topology/graph.py": "import math\nfrom ..epochs import Epoch",
    "tidelock/planning/__init__.py": "from tidelock import topology\nfrom .cost import overhead",
    "tidelock/log/window.py": "from dataclasses import dataclass\nfrom tidelock import errors",
    "tidelock/log/files.py": "import os, time\nfrom .window import Window\nprint(open('x'))",
    "tidelock/redis/server.py": "import redis",
    "tidelock/log/redis.py": "from tidelock.redis.server import connect",
    "tidelock/spark/source.py": "import pyspark.sql\nfrom tidelock.log.files import FileStore",
    "tidelock/running/supervisor.py": "from tidelock.alignment import machine",
    "tidelock/cli/__init__.py": "import tidelock.measuring\nfrom tidelock import Pipeline",
}


def test_a_tree_in_order_passes(tmp_path: Path) -> None:
    _write(tmp_path, GOOD_TREE)
    assert violations(tmp_path) == [] and cycles(tmp_path) == []


@pytest.mark.parametrize(
    ("files", "fault"),
    [
        (
            {"log/window.py": "def f():\n from . import files", "log/files.py": "from .window import Window"},
            "modules import each other: ",
        ),
        (
            {"spark/a/x.py": "import tidelock.spark.b.y", "spark/b/z.py": "import tidelock.spark.a.w"},
            "folders import each other: ",
        ),
    ],
)
def test_circles_are_found(tmp_path: Path, files: dict[str, str], fault: str) -> None:
    beside = dict.fromkeys(("spark/a/w.py", "spark/b/y.py"), "")
    _write(tmp_path, {f"tidelock/{name}": text for name, text in {**beside, **files}.items()})
    (found,) = cycles(tmp_path)
    assert found.startswith(fault)


@pytest.mark.parametrize(
    ("file", "source", "fault"),
    [
        ("topology/graph.py", "import tidelock.planning", "topology may not import planning"),
        ("planning/cost.py", "from ..log.window import Window", "planning may not import log"),
        ("log/files.py", "import tidelock.spark.source", "log may not import spark"),
        ("log/files.py", "from tidelock import coordination", "log may not import coordination"),
        ("log/files.py", "from ..coordination import tree", "log may not import coordination"),
        ("coordination/x.py", "from tidelock.log import log", "coordination may not import log"),
        ("alignment/swap.py", "import tidelock.running", "alignment may not import running"),
        ("running/run.py", "import tidelock", "running may not import tidelock"),
        ("running/run.py", "from tidelock import Pipeline", "running may not import tidelock"),
        ("running/run.py", "from .. import Pipeline", "running may not import tidelock"),
        ("running/run.py", "if f():\n from ..cli import main", "running may not import cli"),
        ("errors.py", "from tidelock.epochs import Epoch", "errors may not import epochs"),
        ("__init__.py", "from pyspark.sql import DataFrame", "tidelock may not import pyspark"),
        ("running/run.py", "import pyspark", "running may not import pyspark: its home is"),
        ("running/run.py", "importlib.import_module('redis')", "running may not import redis"),
        ("log/tree.py", "from kazoo.client import KazooClient", "log may not import kazoo"),
        ("coordination/x.py", "import confluent_kafka", "may not import confluent_kafka"),
        ("recovery/machine.py", "import time", "is pure and may not import time"),
        ("recovery/machine.py", "from random import random", "is pure and may not import random"),
        ("planning/search.py", "import scipy", "is pure and may not import scipy"),
        ("topology/graph.py", "def f():\n    import os.path", "is pure and may not import os.path"),
        ("topology/graph.py", "def f():\n    return open('x')", "is pure and may not call open()"),
        ("log/window.py", "from . import files", "pure and may not import tidelock.log.files"),
        ("log/window.py", "from threading import Lock", "is pure and may not import threading"),
        ("alignment/machine.py", "import asyncio", "is pure and may not import asyncio"),
        ("gadgets/__init__.py", "", "'gadgets' has no place in the layering"),
        ("gadgets.py", "", "'gadgets' has no place in the layering"),
    ],
)
def test_a_tree_out_of_order_fails(tmp_path: Path, file: str, source: str, fault: str) -> None:
    _write(tmp_path, {**GOOD_TREE, f"tidelock/{file}": source})
    (found,) = violations(tmp_path)
    assert found.startswith(f"tidelock/{file}:")
    assert fault in found
