"""The end of those who speak for a run."""

from __future__ import annotations

import threading
from typing import Any

from tests.waiting import PATIENCE, eventually

from tidelock.running.neighbours.threads import NeighbourThreads


class Speaker:
    """Speaks until it is ended, and hangs until it may go on."""

    def __init__(self) -> None:
        self.ended, self.goes_on = threading.Event(), threading.Event()
        self.told: list[str] = []

    def run(self) -> None:
        self.ended.wait()
        self.goes_on.wait()
        self.told.append("ended")

    def end(self) -> None:
        self.ended.set()

    def leave(self) -> None:
        self.told.append("left")

    def close(self) -> None:
        self.told.append("closed")


def test_those_who_hang_do_not_hold_up_the_end() -> None:
    speaker: Any = Speaker()
    talking = NeighbourThreads(speaker, ())
    talking.start()
    assert not talking.end(0.0)
    talking.close()
    assert speaker.told == ["left"], "its session is its thread's"
    speaker.goes_on.set()
    eventually(lambda: "ended" in speaker.told, "it wakes up")


def test_those_who_do_not_are_waited_for() -> None:
    speaker: Any = Speaker()
    speaker.goes_on.set()
    talking = NeighbourThreads(speaker, ())
    talking.start()
    assert talking.end(PATIENCE)
    talking.close()
    assert speaker.told == ["ended", "closed"]
