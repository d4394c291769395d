"""The supervisor looks when it matters, and else waits until it is told something; what it meets ends nothing."""

from __future__ import annotations

import errno

import pytest
from tests.played_world import AT_ONCE, Begin, Story, hang

from tidelock.errors import BackendUnavailable
from tidelock.recovery import Policy
from tidelock.testing.logs import covers


def test_in_quiet_it_looks_at_spark_once_a_second_and_at_nothing_else(begin: Begin) -> None:
    play = begin()

    def story() -> Story:
        yield 0
        before, looks = play.world.takes, len(play.world.looks)
        yield 60
        assert 59 <= len(play.world.looks) - looks <= 60
        assert play.world.takes - before <= 61
        play.stop()
        yield 1

    play.run(story())


@pytest.mark.parametrize("hang_after", [0.25, 2.0, 601.5])
def test_what_hangs_is_cut_off_when_its_time_is_over(begin: Begin, hang_after: float) -> None:
    play = begin(hang_after=hang_after)

    def story() -> Story:
        yield 3.7
        play.world.begins("left", 0)
        yield hang_after + 1
        play.stop()
        yield 1

    play.run(story())
    assert play.world.times["end left"][0] == pytest.approx(3.7 + hang_after, abs=0.01)


def test_a_start_that_hangs_is_made_again_when_its_time_is_over(begin: Begin) -> None:
    play = begin(hang_after=7.3)
    play.world.scripts["left", 1] = lambda _: hang()

    def story() -> Story:
        yield 9
        play.stop()
        yield 1

    play.run(story())
    assert play.world.times["start left"] == [0.0, pytest.approx(7.3, abs=0.01)]


def test_it_is_started_again_in_the_moment_of_its_retry(begin: Begin) -> None:
    play = begin(Policy(first_delay=4.25))

    def story() -> Story:
        for pause in (3, 8):
            play.world.fails("left", ValueError("again"), epoch=0)
            yield pause
        play.stop()
        yield 1

    play.run(story())
    assert play.world.times["start left"] == [0.0, 0.0, 3 + 4.25]


def test_an_end_a_commit_and_a_stop_that_are_told_are_answered_at_once(begin: Begin) -> None:
    play = begin(AT_ONCE)

    def story() -> Story:
        yield 0.5
        play.world.query("left").ends(ValueError("of no batch"))
        yield 0.1
        play.world.computes("numbers", 0)
        yield 0.1
        play.stop()
        yield 0.1
        play.world.checkpoints["numbers"][0] = covers(0).last
        play.world.tells_commit("numbers", 0)
        yield 1

    play.run(story())
    times = play.world.times
    assert times["start left"] == [0.0, 0.5]
    assert times["end right"] == [pytest.approx(0.7)]
    assert times["end numbers"] == [pytest.approx(0.8)]
    assert times["close"] == [pytest.approx(0.8)]


def test_the_end_behind_a_batch_that_failed_is_soon_found_though_nobody_tells_it(begin: Begin) -> None:
    play = begin(AT_ONCE)

    def story() -> Story:
        yield 0.2
        play.world.deaf = True
        play.world.begins("left", 0)
        play.world.gates["left"].leave(ValueError("once"))
        yield 0.25
        play.world.query("left").ends(ValueError("once"))
        yield 0.25
        assert play.world.starts["left"] == 2
        play.stop()
        yield 3

    play.run(story())
    assert play.world.times["start left"][1] <= 0.2 + 0.25 + 0.11


def test_without_any_word_of_spark_a_second_is_enough(begin: Begin) -> None:
    play = begin(AT_ONCE)

    def story() -> Story:
        play.world.deaf = True
        yield 10.5
        play.world.query("left").ends(ValueError("of no batch"))
        yield 1
        assert play.world.starts["left"] == 2
        play.world.commits("left", 0)
        yield 1.1
        assert play.epoch("left") == 0
        play.stop()
        yield 3

    play.run(story())


def test_what_shows_how_spark_is_does_not_end_a_run(begin: Begin) -> None:
    play = begin()

    def story() -> Story:
        play.world.losing = ConnectionError("nobody answers")
        yield 5
        play.world.losing = None
        yield 5
        play.stop()
        yield 1

    play.run(story())
    assert len(play.texts("status failed")) == len(play.texts("status recovered")) == 1
    assert play.supervisor.view.state == "stopped"


def test_a_checkpoint_that_cannot_be_read_is_told_once_and_ends_nothing(begin: Begin) -> None:
    play = begin()

    def story() -> Story:
        play.world.deaf, play.world.unreadable = True, OSError(errno.EIO, "Input/output error")
        play.world.commits("left", 0)
        yield 10
        assert play.epoch("left") == -1
        play.world.unreadable = None
        yield 2
        assert play.epoch("left") == 0
        play.stop()
        yield 1

    play.run(story())
    (told,) = play.texts("status failed")
    assert "Input/output error" in told
    assert play.texts("status recovered") == ["the checkpoints can be read again"]


def test_a_jvm_that_is_gone_ends_the_run_in_one_sentence(begin: Begin) -> None:
    play = begin()

    def story() -> Story:
        play.world.gone, play.world.losing = True, ConnectionRefusedError("nobody listens")
        yield 5

    with pytest.raises(BackendUnavailable, match=r"^Spark's JVM is gone.*start it again"):
        play.run(story())
    assert play.world.time < 5
    assert play.world.done[-1] == "close"
    assert not any(play.world.active(name)[0] for name in ("numbers", "left", "right"))
