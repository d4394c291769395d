"""Pipelines from files: which one is meant, what is told when it cannot be, and code that travels to workers."""

import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark import cloudpickle

from tidelock.errors import PipelineError
from tidelock.pipeline.loading import load

Write = Callable[[str], Path]

ONE = "import tidelock\nflow = tidelock.Pipeline('trending')\n"
TRAVELLING = """
import beside_jobs

def half(x):
    return x / 2

def f(x):
    return half(beside_jobs.double(x))
"""
TWO = f"{ONE}other = tidelock.Pipeline('hotness')\n"


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Write a file that declares pipelines; what loading changes in the process is undone."""
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    monkeypatch.setattr(sys, "path", list(sys.path))

    def write(text: str) -> Path:
        file = tmp_path / "jobs.py"
        file.write_text(text)
        return file

    yield write
    sys.modules.pop("_tidelock_jobs", None)


def test_the_only_pipeline_needs_no_name(write: Write) -> None:
    assert load(str(write(ONE))).name == "trending"


@pytest.mark.parametrize(("name", "found"), [("flow", "trending"), ("other", "hotness"), ("hotness", "hotness")])
def test_a_pipeline_is_named_by_its_variable_or_by_itself(write: Write, name: str, found: str) -> None:
    assert load(f"{write(TWO)}:{name}").name == found


def test_two_variables_of_one_pipeline_are_no_choice(write: Write) -> None:
    assert load(str(write(f"{ONE}again = flow\n"))).name == "trending"


@pytest.mark.parametrize(
    ("text", "name", "complaint"),
    [
        ("x = 1\n", "", "declares no pipeline: it needs a variable like"),
        (TWO, "", "declares several pipelines: flow (trending), other (hotness). Name one: jobs.py:flow"),
        (TWO, ":flows", "declares no pipeline 'flows'; did you mean 'flow'?"),
        ("\n\nx = 1 / 0\n", "", "cannot be loaded: line 3: ZeroDivisionError: division by zero"),
        ("x = 1\ny = (\n", "", "cannot be loaded: line 2: SyntaxError: '(' was never closed"),
        ("import no_such_thing\n", "", "line 1: ModuleNotFoundError: No module named 'no_such_thing'"),
        ("raise SystemExit('enough')\n", "", "line 1: SystemExit: enough"),
        ("import tidelock\ntidelock.Pipeline('a b')\n", "", "cannot be loaded: line 2: "),
        ("raise RuntimeError('[SESSION_OR_CONTEXT_NOT_EXISTS]')", "", "give a UDF its type as an object"),
        ("import json\njson.loads('{')\n", "", "cannot be loaded: line 2: JSONDecodeError"),
    ],
)
def test_what_is_wrong_with_a_file_is_told(write: Write, text: str, name: str, complaint: str) -> None:
    file = write(text)
    with pytest.raises(PipelineError) as failure:
        load(f"{file}{name}")
    assert str(failure.value).startswith(str(file))
    assert complaint in str(failure.value)


def test_what_is_no_python_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=r"there is no file .*jobs\.py"):
        load(str(tmp_path / "jobs.py"))
    (tmp_path / "jobs.txt").write_text(ONE)
    for path in (tmp_path / "jobs.txt", tmp_path):
        with pytest.raises(PipelineError, match="is not a Python file"):
            load(str(path))


def test_its_code_runs_where_the_file_cannot_be_imported(write: Write, tmp_path: Path) -> None:
    """A worker gets the functions of the file as code, and finds the modules beside the file."""
    (tmp_path / "beside_jobs.py").write_text("def double(x):\n    return 2 * x\n")
    file = write(ONE + TRAVELLING)
    load(str(file))
    sent = tmp_path / "sent"
    sent.write_bytes(cloudpickle.dumps(sys.modules["_tidelock_jobs"].f))
    script = f"import pickle; print(pickle.loads(open({str(sent)!r}, 'rb').read())(21))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "21.0\n", done.stderr
    assert pickle.loads(sent.read_bytes())(1) == 1.0


def test_a_file_that_could_not_be_loaded_leaves_no_module(write: Write) -> None:
    with pytest.raises(PipelineError):
        load(str(write("1 / 0\n")))
    assert "_tidelock_jobs" not in sys.modules
