"""Processes from the nursery behave like ones that Python started, and start without it if it is gone."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidelock.spark.processes.nursery import Nursery

SCRIPT = """
import os, sys, time
print(" ".join(sys.argv[1:]), os.environ["COLOUR"], os.path.basename(os.getcwd()), sys.stdin.read(), flush=True)
print("to the other side", file=sys.stderr)
if "wait" in sys.argv:
    time.sleep(60)
sys.exit(int(sys.argv[1]))
"""


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    made = Nursery()
    yield made
    made.close()


def start(nursery: Nursery, folder: Path, *arguments: str) -> subprocess.Popen[str]:
    (folder / "asked_for.py").write_text(SCRIPT)
    return subprocess.Popen(
        [str(nursery.python), "-m", "asked_for", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={"COLOUR": "blue", "PYTHONPATH": str(folder)},
        cwd=folder,
        text=True,
    )


@pytest.mark.parametrize("code", [0, 7])
def test_a_child_has_the_arguments_files_and_environment_and_its_exit_code_counts(
    nursery: Nursery, tmp_path: Path, code: int
) -> None:
    process = start(nursery, tmp_path, str(code), "more")
    out, err = process.communicate("hello", timeout=60)
    assert out == f"{code} more blue {tmp_path.name} hello\n"
    assert err == "to the other side\n"
    assert process.returncode == code


def test_a_polite_kill_reaches_the_child(nursery: Nursery, tmp_path: Path) -> None:
    process = start(nursery, tmp_path, "0", "wait")
    assert process.stdin is not None
    process.stdin.close()
    assert process.stdout is not None
    assert process.stdout.readline().startswith("0 wait")
    process.terminate()
    assert process.wait(60) == 128 + signal.SIGTERM


def test_without_the_nursery_the_ordinary_python_does_it(tmp_path: Path) -> None:
    gone = Nursery()
    gone._process.kill()
    gone._process.wait()
    Path(gone.python).with_name("s").touch()  # nobody listens there
    process = start(gone, tmp_path, "3")
    out, _ = process.communicate("hello", timeout=60)
    assert out == f"3 blue {tmp_path.name} hello\n"
    assert process.returncode == 3
    assert not gone.is_alive
    gone.close()
