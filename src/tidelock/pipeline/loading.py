"""From a file that declares a pipeline to the pipeline.

The file is loaded by its path, under a name that nobody else has. Workers cannot import that name, so what the
file defines travels to them as code. What it imports from its own directory is found by this process and by the
workers that a local Spark starts; workers on other machines need those modules installed.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

from tidelock.errors import PipelineError, TidelockError
from tidelock.pipeline.declaration import Declaration
from tidelock.spark.processes.pickling import send_by_value
from tidelock.topology.names import suggestion

_NO_SESSION = (
    "The file is loaded before Spark starts: use columns inside functions only, and give a UDF its type as an "
    "object, StringType() and not 'string'."
)


def load(spec: str) -> Declaration:
    """The pipeline that ``FILE.py`` declares; ``FILE.py:name`` picks one by its variable or by its own name.

    Has to be called before the Spark session starts, for its workers to find what is beside the file.

    Raises:
        PipelineError: there is no such file, it cannot be loaded, or it is not clear which pipeline is meant.
    """
    path, name = _split(spec)
    _check_file(path)
    return _choose(path, _declared(_loaded(path)), name)


def _split(spec: str) -> tuple[Path, str | None]:
    file, colon, name = spec.rpartition(":")
    if not colon or spec.endswith(".py"):
        return Path(spec).absolute(), None
    return Path(file).absolute(), name


def _check_file(path: Path) -> None:
    if not path.exists():
        raise PipelineError(f"there is no file {path}: give the Python file that declares the pipeline")
    if path.suffix != ".py" or not path.is_file():
        raise PipelineError(f"{path} is not a Python file: give the one that declares the pipeline, FILE.py")


# -- loading


def _loaded(path: Path) -> ModuleType:
    _make_importable(str(path.parent))
    spec = importlib.util.spec_from_file_location(f"_tidelock_{path.stem}", path)
    assert spec is not None and spec.loader is not None  # it ends in .py
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # whatever it is, it is the file's
        del sys.modules[spec.name]
        raise PipelineError(f"{path} cannot be loaded: {_told(error, str(path))}") from error
    send_by_value(module)
    return module


def _make_importable(folder: str) -> None:
    if folder not in sys.path:
        sys.path.insert(0, folder)
    known = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if folder not in known:
        os.environ["PYTHONPATH"] = os.pathsep.join([folder, *filter(None, known)])


def _told(error: BaseException, file: str) -> str:
    what = str(error) if isinstance(error, TidelockError) else f"{type(error).__name__}: {_message(error)}"
    if "SESSION_OR_CONTEXT_NOT_EXISTS" in what:
        what = f"{what} {_NO_SESSION}"
    line = _line(error, file)
    return what if line is None else f"line {line}: {what}"


def _message(error: BaseException) -> str:
    return error.msg if isinstance(error, SyntaxError) else str(error)


def _line(error: BaseException, file: str) -> int | None:
    """The line of the file that did not work, not the line of some library below it."""
    if isinstance(error, SyntaxError) and error.filename == file:
        return error.lineno
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return lines[-1] if lines else None


# -- choosing


def _declared(module: ModuleType) -> dict[str, Declaration]:
    return {variable: value for variable, value in vars(module).items() if isinstance(value, Declaration)}


def _choose(path: Path, declared: Mapping[str, Declaration], name: str | None) -> Declaration:
    if not declared:
        raise PipelineError(
            f"{path} declares no pipeline: it needs a variable like pipeline = tidelock.Pipeline('trending')"
        )
    fitting = _fitting(declared, name)
    if not fitting:
        known = [*declared, *(pipeline.name for pipeline in declared.values())]
        raise PipelineError(f"{path} declares no pipeline {name!r}; {suggestion(str(name), known)}")
    if len({id(pipeline) for pipeline in fitting.values()}) > 1:
        listed = ", ".join(f"{variable} ({pipeline.name})" for variable, pipeline in fitting.items())
        raise PipelineError(f"{path} declares several pipelines: {listed}. Name one: {path.name}:{min(fitting)}")
    return next(iter(fitting.values()))


def _fitting(declared: Mapping[str, Declaration], name: str | None) -> Mapping[str, Declaration]:
    if name is None:
        return declared
    if name in declared:
        return {name: declared[name]}
    return {variable: pipeline for variable, pipeline in declared.items() if pipeline.name == name}
