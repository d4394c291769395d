"""What hangs is cut off in a world that is played: starts, batches, commits, and the stops behind them."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from tests.played_world import ALL_STOPPED, AT_ONCE, HANG_AFTER, Begin, Stopped, Story, hang


def test_a_batch_that_hangs_is_cut_off_with_its_epoch(begin: Begin) -> None:
    play = begin()

    def story() -> Story:
        play.world.commits("left", 0)
        play.world.begins("left", 1)
        yield HANG_AFTER - 1
        assert play.world.starts["left"] == 1
        yield 3
        assert play.state("left") == "running"
        play.stop()
        yield 1

    play.run(story())
    assert play.texts("segment failed") == [f"in epoch 1: epoch 1 did not end within {HANG_AFTER:g} s"]
    assert play.world.active("left") == [False, False]
    assert play.world.starts["left"] == 2


def test_an_epoch_that_spark_does_not_commit_is_cut_off(begin: Begin) -> None:
    play = begin()

    def story() -> Story:
        play.world.computes("left", 0)
        yield HANG_AFTER + 2
        assert play.world.starts["left"] == 2
        play.stop()
        yield 1

    play.run(story())
    told = f"epoch 0 was computed, but Spark did not commit it within {HANG_AFTER:g} s"
    assert play.texts("segment failed") == [f"while starting: {told}"]


def test_one_whose_commit_was_not_told_is_not_cut_off(begin: Begin) -> None:
    play = begin()

    def story() -> Story:
        play.world.deaf = True
        play.world.commits("left", 0)
        yield HANG_AFTER + 2
        assert (play.epoch("left"), play.world.starts["left"]) == (0, 1)
        play.stop()
        yield 1

    play.run(story())
    assert "segment failed" not in play.kinds()


def test_a_query_that_cannot_be_stopped_ends_the_run(begin: Begin) -> None:
    play = begin()

    def story() -> Story:
        play.world.begins("left", 0)
        play.world.query("left").stuck = True
        yield HANG_AFTER + 2

    play.run(story())
    (told,) = play.texts("gave up")
    assert "epoch 0 did not end within" in told and "its code cannot be interrupted" in told
    assert play.states() == {"numbers": "stopped", "left": "failed", "right": "stopped"}


def test_a_start_that_hangs_is_cut_off_and_made_again_and_comes_up_late(begin: Begin) -> None:
    play = begin()

    def late(starting: Any) -> None:
        hang()
        with suppress(Stopped):
            play.world.comes_up("left")(starting)
        starting.check()

    play.world.scripts["left", 1] = late

    def story() -> Story:
        yield HANG_AFTER - 1
        assert play.state("left") == "starting"
        yield 3
        assert (play.state("left"), play.world.active("left")) == ("running", [True])
        play.world.wake()
        yield 1
        assert play.world.active("left") == [True, False], "the one that came too late is stopped"
        play.stop()
        yield 1

    play.run(story())
    assert play.texts("segment failed") == [f"while starting: its query was not up within {HANG_AFTER:g} s"]
    assert play.world.starts["left"] == 2
    assert play.world.active("left") == [False, False]


def test_one_that_hangs_behind_its_query_is_stopped_there(begin: Begin) -> None:
    play = begin()

    def behind(starting: Any) -> None:
        play.world.comes_up("left")(starting)
        hang()

    play.world.scripts["left", 1] = behind

    def story() -> Story:
        yield HANG_AFTER + 2
        assert (play.state("left"), play.world.active("left")) == ("running", [False, True])
        play.stop()
        yield 1

    play.run(story())
    assert play.kinds().count("segment failed") == 1


def test_one_that_always_hangs_is_given_up_and_the_run_ends(begin: Begin) -> None:
    play = begin(AT_ONCE)
    for attempt in (1, 2, 3):
        play.world.scripts["left", attempt] = lambda _: hang()

    def story() -> Story:
        yield 4 * HANG_AFTER

    play.run(story())
    assert play.supervisor.view.state == "failed"
    (told,) = play.texts("gave up")
    assert "3 times in a row" in told and "was not up within" in told
    assert all(play.world.turns.acquire(blocking=False) for _ in range(3)), "nobody holds a turn"


@pytest.mark.parametrize("wakes", [True, False])
def test_one_that_hangs_before_its_turn_is_cut_off_too(begin: Begin, wakes: bool) -> None:
    """As behind the lock of a log whose holder is stopped."""
    play = begin()
    play.world.before_turns["left", 1] = hang

    def story() -> Story:
        yield HANG_AFTER + 2
        assert play.state("left") == "running"
        if wakes:
            play.world.wake()
        yield 1
        play.stop()
        yield 1

    play.run(story())
    assert play.world.done.count("start left") == 1, "the first one has gone no further"
    assert play.texts("segment failed") == [f"while starting: its query was not up within {HANG_AFTER:g} s"]


@pytest.mark.parametrize("where", ["before its turn", "before its query", "behind its query"])
def test_a_stop_does_not_wait_for_a_start_that_hangs(begin: Begin, where: str) -> None:
    play = begin()

    def hanging(starting: Any) -> None:
        if where == "behind its query":
            play.world.comes_up("left")(starting)
        hang()

    if where == "before its turn":
        play.world.before_turns["left", 1] = hang
    else:
        play.world.scripts["left", 1] = hanging

    def story() -> Story:
        play.stop()
        yield 5

    play.run(story())
    assert play.world.time < 5
    assert play.states() == ALL_STOPPED
    assert not any(play.world.active("left"))


def test_a_query_that_comes_up_behind_a_stop_is_stopped(begin: Begin) -> None:
    play = begin()

    def late(starting: Any) -> None:
        hang()
        play.world.comes_up("left")(starting)

    play.world.scripts["left", 1] = late

    def story() -> Story:
        play.stop()
        yield 5

    play.run(story())  # what hangs is woken up when the run has ended
    assert (play.states(), play.world.active("left")) == (ALL_STOPPED, [False])
