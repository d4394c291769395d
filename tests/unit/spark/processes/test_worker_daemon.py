"""The daemon is used only where it can be imported, and where nobody wants another one."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from pyspark import daemon

from tidelock.spark.processes import session
from tidelock.spark.processes.worker_daemon import MODULE, is_found, serve


def lonely(folder: Path) -> str:
    """An interpreter that has nothing but the standard library."""
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "$@"\n')
    python.chmod(0o755)
    return str(python)


@pytest.mark.parametrize("failure", [BrokenPipeError, ValueError])
def test_a_worker_whose_task_was_ended_goes_without_a_word(
    failure: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def work(*_: object) -> int:
        raise failure

    left: list[int] = []
    monkeypatch.setattr(daemon, "worker", work)
    monkeypatch.setattr(daemon, "manager", lambda: daemon.worker(None, True))
    monkeypatch.setattr(os, "_exit", left.append)
    monkeypatch.setattr(os, "register_at_fork", lambda **_: None)
    monkeypatch.setattr(gc, "freeze", lambda: None)
    if failure is ValueError:
        with pytest.raises(ValueError):
            serve()
    else:
        serve()
    assert left == [1] * (failure is BrokenPipeError)


def test_it_is_found_where_tidelock_is(tmp_path: Path) -> None:
    assert is_found(sys.executable, os.environ)
    assert not is_found(lonely(tmp_path), os.environ)
    assert not is_found(str(tmp_path / "no such python"), os.environ)


@pytest.mark.parametrize("master", ["local[2,4]", "local", "local-cluster[2,1,1024]"])
def test_executors_on_this_machine_get_it(master: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    assert session._daemon(master, {}) == {"spark.python.daemon.module": MODULE}


def test_executors_elsewhere_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    assert session._daemon("spark://host:7077", {}) == {}


def test_workers_that_get_tidelock_only_with_their_tasks_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", lonely(tmp_path))
    assert session._daemon("local[2,4]", {}) == {}
    assert session._daemon("local[2,4]", {"spark.pyspark.python": sys.executable})


@pytest.mark.parametrize(
    ("master", "settings", "paths"),
    [
        ("local[2,4]", {}, "/here"),
        ("local-cluster[2,1,1024]", {}, None),
        ("local-cluster[2,1,1024]", {"spark.executorEnv.PYTHONPATH": "/there"}, "/there"),
    ],
)
def test_it_is_looked_for_on_the_path_that_executors_have(
    master: str, settings: Mapping[str, str], paths: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str | None] = []
    monkeypatch.setenv("PYTHONPATH", "/here")
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setattr(session.worker_daemon, "is_found", lambda _, env: asked.append(env.get("PYTHONPATH")))
    session._daemon(master, settings)
    assert asked == [paths]
