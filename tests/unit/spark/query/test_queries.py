"""The settings that a start is lent, also if it hangs with them."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest
from tests.waiting import PATIENCE, eventually

from tidelock.running.attempts import Attempt
from tidelock.running.gates import SegmentGate
from tidelock.spark.query.queries import Lending

USERS = {"polling": "10", "kept": "100"}


class Conf:
    """The settings of a session."""

    def __init__(self) -> None:
        self.now = dict(USERS)

    def get(self, name: str) -> str:
        return self.now[name]

    def set(self, name: str, value: str) -> None:
        self.now[name] = value


class Start:
    """A start that hangs inside Spark, with what it was lent, until the test lets it go."""

    def __init__(self, lending: Lending, spark: Any, settings: dict[str, str]) -> None:
        self.attempt = Attempt(SegmentGate(lambda: True))
        self.inside = threading.Event()
        self.wakes = threading.Event()
        self._lending = lending
        self._spark = spark
        self._settings = settings
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        with (
            self.attempt.turn(threading.Semaphore(1)),
            self._lending.lent(self._spark, self._settings),
        ):
            self.inside.set()
            self.wakes.wait()

    def ends(self) -> None:
        self.wakes.set()
        self.thread.join(PATIENCE)
        assert not self.thread.is_alive()


@pytest.fixture
def spark() -> Any:
    return SimpleNamespace(conf=Conf())


def test_settings_are_lent_and_put_back(spark: Any) -> None:
    lending = Lending()
    with lending.lent(spark, {"polling": "30"}):
        assert spark.conf.now == {**USERS, "polling": "30"}
    assert spark.conf.now == USERS


def test_a_start_that_hangs_hinders_no_other_one_after_it_was_given_up(spark: Any) -> None:
    lending = Lending()
    hanging = Start(lending, spark, {"polling": "30", "kept": "900"})
    assert hanging.inside.wait(PATIENCE)
    other = Start(lending, spark, {"polling": "30"})
    eventually(lambda: other.attempt._waits_since is not None, "it waits, which does not count")
    assert not other.inside.is_set()

    hanging.attempt.abandon()
    assert other.inside.wait(PATIENCE), "it has its turn"
    assert spark.conf.now == {**USERS, "polling": "30"}, "what the other one had was put back"
    hanging.ends()
    assert spark.conf.now == {**USERS, "polling": "30"}, "one that wakes up takes nothing away"
    other.ends()
    assert spark.conf.now == USERS


def test_the_last_one_that_hangs_leaves_nothing_behind(spark: Any) -> None:
    lending = Lending()
    hanging = Start(lending, spark, {"polling": "30"})
    assert hanging.inside.wait(PATIENCE)
    lending.clear()
    assert spark.conf.now["polling"] == "30", "somebody waits for it"
    hanging.attempt.abandon()
    lending.clear()
    assert spark.conf.now == USERS
    hanging.ends()
    assert spark.conf.now == USERS


def test_one_that_wakes_up_puts_back_what_it_was_lent(spark: Any) -> None:
    lending = Lending()
    hanging = Start(lending, spark, {"polling": "30"})
    assert hanging.inside.wait(PATIENCE)
    hanging.attempt.abandon()
    hanging.ends()
    assert spark.conf.now == USERS


def test_a_session_that_is_gone_keeps_nobody_from_starting(spark: Any) -> None:
    lending = Lending()
    hanging = Start(lending, spark, {"polling": "30"})
    assert hanging.inside.wait(PATIENCE)
    hanging.attempt.abandon()

    def gone(name: str, value: str) -> None:
        raise ConnectionError("nobody answers")

    spark.conf.set = gone
    another = SimpleNamespace(conf=Conf())
    with lending.lent(another, {"polling": "30"}):
        assert another.conf.now["polling"] == "30"
    hanging.ends()
