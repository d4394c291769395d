"""Programs that are written to a folder and loaded, for fingerprints of them."""

import importlib.util
import itertools
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from tidelock.fingerprint.code import fingerprint
from tidelock.fingerprint.parts import FingerprintPart

_numbers = itertools.count()


@contextmanager
def loaded(folder: Path, text: str, **beside: str) -> Iterator[ModuleType]:
    """A module with this text, in a folder of its own and with others beside it, also in packages."""
    home = folder / f"program{next(_numbers)}"
    home.mkdir()
    for name, inside in beside.items():
        file = home / f"{name}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(inside)
    name = f"_job{next(_numbers)}"
    (home / f"{name}.py").write_text(text)
    spec = importlib.util.spec_from_file_location(name, home / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(home))
    try:
        spec.loader.exec_module(module)
        yield module
    finally:
        sys.path.remove(str(home))
        roots = {name, *(one.partition("/")[0] for one in beside)}
        for gone in [one for one in sys.modules if one.partition(".")[0] in roots]:
            del sys.modules[gone]


def parts(folder: Path, text: str, function: str = "f", **beside: str) -> dict[str, FingerprintPart]:
    """The fingerprint of a function of a program, by the names of its parts."""
    with loaded(folder, text, **beside) as module:
        return {part.name: part for part in fingerprint(getattr(module, function))}


def digests(folder: Path, text: Any, **beside: str) -> dict[str, tuple[str, str]]:
    """What counts of a fingerprint."""
    return {name: (part.form, part.digest) for name, part in parts(folder, text, **beside).items()}
