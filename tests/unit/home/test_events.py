"""Telling what happens: from many threads, without room, and to a listener that fails."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.hammering import hammer

from tidelock.errors import BackendUnavailable, PipelineError
from tidelock.home.events import Events, RunEvent, Trouble
from tidelock.home.home import Home


class SmallHome(Home):
    """A home that has room, or has not."""

    full = False

    def add_event(self, fields: Mapping[str, Any]) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        super().add_event(fields)

    def kinds(self) -> list[str]:
        return [event["kind"] for event in self.events()]


@pytest.fixture
def home(tmp_path: Path) -> SmallHome:
    return SmallHome(tmp_path)


@pytest.fixture
def told() -> list[RunEvent]:
    return []


def test_threads_that_tell_at_once_lose_nothing(home: SmallHome, told: list[RunEvent]) -> None:
    events = Events(home, told.append)
    hammer(*[lambda: events.add("alignment", None, "x")] * 4, lambda: len(events.newest), seconds=0.5)
    assert len(told) == len(home.events()) > 4
    assert list(events.newest) == told[-20:], "the same order for all"
    assert [event["at"] for event in home.events()] == [event.at for event in told]


def test_no_room_is_told_once_and_ends_nothing(home: SmallHome, told: list[RunEvent]) -> None:
    events = Events(home, told.append)
    events.add("run started", None, "x")
    home.full = True
    for _ in range(3):
        events.add("segment failed", "s", "x")
        events.home_fails(OSError(errno.ENOSPC, "No space left on device"))
    events.home_works()
    home.full = False
    events.home_works()
    events.home_works()
    events.add("run ended", None, "x")
    kinds = ["run started", "home not writable", *["segment failed"] * 3, "home writable", "run ended"]
    assert [event.kind for event in told] == [event.kind for event in events.newest] == kinds
    assert "No space left on device" in told[1].text
    assert "3 events" in told[-2].text
    assert home.kinds() == ["run started", "home writable", "run ended"]


def test_a_listener_that_fails_ends_nothing(home: SmallHome, caplog: pytest.LogCaptureFixture) -> None:
    def fail(event: RunEvent) -> None:
        raise ValueError("the user's own")

    Events(home, fail).add("run started", None, "x")
    assert home.kinds() == ["run started"]
    assert "the listener failed" in caplog.text


def test_a_listener_may_tell_something_itself(home: SmallHome) -> None:
    def answer(event: RunEvent) -> None:
        if event.kind == "run started":
            events.add("alignment", None, "x")

    events = Events(home, answer)
    events.add("run started", None, "x")
    assert home.kinds() == ["run started", "alignment"]


def test_a_trouble_is_told_when_it_begins_and_when_it_is_over(home: SmallHome) -> None:
    trouble = Trouble(Events(home), "backup failed", "backup recovered")
    trouble.over("x")
    for number in range(100):
        trouble.met(BackendUnavailable(f"no answer at {number}"))
        trouble.met(PipelineError(f"another home at {number}"))
    assert [event["text"] for event in home.events()] == ["no answer at 0", "another home at 0"]
    trouble.over("fresh")
    trouble.over("fresh")
    trouble.met(BackendUnavailable("no answer"))
    assert home.kinds() == ["backup failed", "backup failed", "backup recovered", "backup failed"]
