"""What only shows a run ends nothing: neither output that cannot be written nor a status that cannot be made."""

from __future__ import annotations

import errno
import io
import logging
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO

import pytest
from tests.unit.cli.commands.test_run import JOB, FakeRun, Stage
from tests.unit.cli.homes import event

from tidelock.cli.pictures.showing import Showing
from tidelock.cli.sessions import _logged_to, _output_to
from tidelock.errors import BatchFailed
from tidelock.home.events import RunEvent


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    (tmp_path / "jobs.py").write_text(JOB)
    return Stage(monkeypatch)


@pytest.fixture(params=["a full disk", "a pipe that nobody reads"])
def output(request: pytest.FixtureRequest) -> Iterator[TextIO]:
    """An output to which nothing can be written."""
    if request.param == "a full disk":
        file = os.fdopen(os.open("/dev/full", os.O_WRONLY), "w")
    else:
        reader, writer = os.pipe()
        os.close(reader)
        file = os.fdopen(writer, "w")
    with file:
        yield file


@pytest.mark.parametrize("shown", [(), ("--json",), ("-v",), ("in colours",)])
def test_output_that_cannot_be_written_ends_nothing(
    stage: Stage,
    output: TextIO,
    shown: Sequence[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "stdout", output)
    if shown == ("in colours",):
        monkeypatch.setenv("FORCE_COLOR", "1")
        shown = ()
    taken: list[str] = []

    def step() -> None:
        taken.append("a step")
        stage.runs[0].options["listener"](RunEvent(**event("segment failed", "store", "for a moment")))

    assert stage.play(*shown, steps=[step] * 3) == 0
    assert len(taken) == 3, "the run came to its end"
    (told,) = capsys.readouterr().err.splitlines()
    assert "not everything can be shown ([Errno" in told and "the run goes on" in told
    output.flush()  # what was given up does not fail later, when the process ends


def test_what_is_written_again_comes_out(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    full, page = True, io.StringIO()

    def write(text: str) -> int:
        if full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return io.StringIO.write(page, text)

    def free() -> None:
        nonlocal full
        full = False

    def tell() -> None:
        stage.runs[0].options["listener"](RunEvent(**event("segment failed", "store", "for a moment")))

    monkeypatch.setattr(page, "write", write, raising=False)
    monkeypatch.setattr(sys, "stdout", page)
    assert stage.play(steps=[tell, tell, free, tell]) == 0
    told, last = page.getvalue().splitlines()
    assert told.endswith("store: for a moment"), "once: what was left out before is not told late"
    assert last.startswith("stopped  trending")


@pytest.mark.parametrize("shown", ["in colours", "in lines"])
def test_a_status_that_cannot_be_made_ends_nothing(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], shown: str
) -> None:
    def without_files(_: FakeRun) -> dict[str, Any]:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    if shown == "in colours":
        monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setattr(FakeRun, "status", without_files)
    assert stage.play(steps=[lambda: None] * 3) == 0
    (told,) = capsys.readouterr().err.splitlines()
    assert "Too many open files" in told


def test_a_failure_keeps_its_exit_code_where_nothing_can_be_told(
    stage: Stage, output: TextIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdout", output)
    monkeypatch.setattr(sys, "stderr", output)
    assert stage.play(failure=BatchFailed("segment store was given up")) == 1


def test_a_process_whose_output_is_full_ends_as_it_would() -> None:
    code = (
        "from tidelock.cli.pictures.showing import Showing\nwith Showing() as it: it.show(lambda: print('told'))"
    )
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([sys.executable, "-c", code], stdout=full, stderr=full, check=False)
    assert done.returncode == 0


def test_a_log_of_spark_that_has_no_room_is_left_out(capfd: Any) -> None:
    with _logged_to(Path("/dev/full")):
        logging.getLogger("py4j.clientserver").error("a proxy failed")
    with _logged_to(Path("/proc/nowhere/spark.log")):
        logging.getLogger("py4j.clientserver").error("a proxy failed")
    assert capfd.readouterr() == ("", ""), "no stack traces"


def test_a_session_starts_with_output_that_has_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Path("/dev/full").open("w") as full:
        full.write("starting Spark")
        monkeypatch.setattr(sys, "stdout", full)
        with _output_to(tmp_path / "spark.log"):
            pass
        Showing().__exit__(None, None, None)
