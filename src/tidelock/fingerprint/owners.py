"""Whose a module, a function or a class is: the user's, or Python's, an installed package's or Tidelock's."""

from __future__ import annotations

import inspect
import site
import sys
import sysconfig
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

_OURS = {"tidelock", "pyspark_tidelock", "pyspark"}
_LIBRARIES = tuple(
    Path(folder).resolve()
    for folder in {
        *(sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")),
        *site.getsitepackages(),
        site.getusersitepackages(),
    }
)


@dataclass(frozen=True)
class Owners:
    """What the user has written: all that is not installed, and of that the packages in ``installed``."""

    installed: frozenset[Path] = frozenset()

    @classmethod
    def of(cls, *functions: Callable[..., Any]) -> Owners:
        """The owners of a pipeline with these functions: an installed package that declares one is the user's."""
        scopes = [getattr(inspect.unwrap(one), "__globals__", {}) for one in functions]
        files = [scope["__file__"] for scope in scopes if isinstance(scope.get("__file__"), str)]
        return cls(frozenset(filter(None, map(_installed, files))))

    def is_own(self, name: str, file: str | None) -> bool:
        """Whether a module of this name, from this file, is the user's."""
        root = name.partition(".")[0]
        if root in _OURS or (root in sys.stdlib_module_names and root != "__main__"):
            return False
        package = None if file is None else _installed(file)
        return package is None or package in self.installed

    def is_own_module(self, module: ModuleType) -> bool:
        """Whether a module is the user's."""
        return self.is_own(module.__name__, getattr(module, "__file__", None))

    def is_own_code(self, function: FunctionType) -> bool:
        """Whether a function was written in a module of the user."""
        scope = function.__globals__
        return self.is_own(str(scope.get("__name__", "__main__")), scope.get("__file__"))

    def is_own_class(self, kind: type) -> bool:
        """Whether a class was written in a module of the user."""
        return self.is_own(kind.__module__, getattr(sys.modules.get(kind.__module__), "__file__", None))


@cache
def _installed(file: str) -> Path | None:
    """The package, or the single module, that a file was installed with; None if it was not installed."""
    path = Path(file).resolve()
    folders = [folder for folder in _LIBRARIES if path.is_relative_to(folder)]
    if not folders:
        return None
    folder = max(folders, key=lambda one: len(one.parts))
    return folder / path.relative_to(folder).parts[0]


def folder_of(scope: Mapping[str, Any]) -> str | None:
    """The folder of the module that has these globals."""
    file = scope.get("__file__")
    return str(Path(file).absolute().parent) if isinstance(file, str) else None
