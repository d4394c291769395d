"""A store that is away is asked again."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from tidelock.errors import BackendUnavailable, LogCorrupt
from tidelock.recovery import Policy
from tidelock.running.retrying import patiently

QUICK = Policy(first_delay=0.001, longest_delay=0.001)


def failing(times: int, failure: Exception) -> Callable[[], str]:
    left = iter(range(times))

    def ask() -> str:
        if next(left, None) is not None:
            raise failure
        return "here"

    return ask


def test_it_is_asked_until_it_answers() -> None:
    assert patiently(failing(5, BackendUnavailable("away")), QUICK, threading.Event()) == "here"


def test_patience_ends() -> None:
    with pytest.raises(BackendUnavailable):
        patiently(
            failing(10**6, BackendUnavailable("away")),
            Policy(first_delay=0.001, longest_delay=0.001, patience=0.01),
            threading.Event(),
        )


def test_nobody_waits_when_all_is_over() -> None:
    over = threading.Event()
    over.set()
    assert patiently(failing(1, BackendUnavailable("away")), Policy(), over) is None


def test_damage_is_not_waited_for() -> None:
    with pytest.raises(LogCorrupt):
        patiently(failing(1, LogCorrupt("torn")), QUICK, threading.Event())
