"""What is done beside a run: one thing after the other, and nothing that keeps the run from ending."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
from tests.waiting import PATIENCE, eventually

from tidelock.errands import Errands


@pytest.fixture
def hanging() -> Iterator[threading.Event]:
    """What an errand waits for that hangs; it does not outlive the test."""
    made = threading.Event()
    yield made
    made.set()


def test_one_is_done_after_the_other_and_each_has_its_own_end(hanging: threading.Event) -> None:
    errands, done = Errands("errand"), []

    def first() -> None:
        hanging.wait()
        done.append(1)
        raise ZeroDivisionError("it fails")

    failing, second = errands.run(first), errands.run(lambda: done.append(2))
    assert not second.done()
    hanging.set()
    assert isinstance(failing.exception(PATIENCE), ZeroDivisionError)
    second.result(PATIENCE)
    assert done == [1, 2]
    assert errands.close(PATIENCE)


def test_the_end_does_not_wait_for_one_that_hangs_and_nothing_follows_it(hanging: threading.Event) -> None:
    errands, begun = Errands("errand"), threading.Event()
    done: list[int] = []

    def hangs() -> None:
        begun.set()
        hanging.wait()

    first = errands.run(hangs)
    assert begun.wait(PATIENCE)
    second = errands.run(lambda: done.append(2))
    assert not errands.close(0.0)
    hanging.set()
    first.result(PATIENCE)
    eventually(second.cancelled, "what has not begun is given up")
    assert done == []


def test_one_that_hangs_does_not_keep_the_process_alive() -> None:
    script = (
        "import threading; from tidelock.errands import Errands\nErrands('errand').run(threading.Event().wait)"
    )
    subprocess.run([sys.executable, "-c", script], timeout=60, check=True)
