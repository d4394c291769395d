"""The supervisor in a world that is played: races between failing, stopping and time, told as stories."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.played_world import ALL_STOPPED, AT_ONCE, Begin, Stopped, Story

from tidelock.errors import BackendUnavailable
from tidelock.log import EpochLog
from tidelock.recovery import Policy
from tidelock.testing.logs import SCHEMA, covers, publish


class TestFailing:
    def test_only_what_has_failed_is_started_again(self, begin: Begin) -> None:
        play = begin()

        def story() -> Story:
            play.world.fails("left", ValueError("once"), epoch=0)
            yield 1
            assert play.states() == {"numbers": "running", "left": "running", "right": "running"}
            play.stop()
            yield 1

        play.run(story())
        assert play.world.starts == {"numbers": 1, "left": 2, "right": 1}
        assert play.texts("segment failed") == ["in epoch 0: ValueError: once"]
        assert play.texts("segment restart") == ["restart 1, from epoch 0"]
        assert play.states() == ALL_STOPPED

    def test_two_that_fail_at_once_are_both_started_again(self, begin: Begin) -> None:
        play = begin()

        def story() -> Story:
            play.world.fails("left", ValueError("once"), epoch=0)
            play.world.fails("right", ValueError("twice"), epoch=0)
            yield 1
            assert play.states() == {"numbers": "running", "left": "running", "right": "running"}
            play.stop()
            yield 1

        play.run(story())
        assert play.world.starts == {"numbers": 1, "left": 2, "right": 2}
        assert play.world.done[3:7] == ["end left", "end right", "start left", "start right"]
        assert play.kinds().count("segment failed") == 2

    def test_one_that_fails_while_it_starts(self, begin: Begin) -> None:
        play = begin()

        def broken(_: Any) -> None:
            raise ValueError("cannot be built")

        play.world.scripts["left", 1] = broken

        def story() -> Story:
            yield 1
            assert play.state("left") == "running"
            play.stop()
            yield 1

        play.run(story())
        (told,) = play.texts("segment failed")
        assert told.startswith("while starting: ValueError: cannot be built")
        assert play.world.starts["left"] == 2

    def test_one_that_always_fails_is_given_up_and_stops_the_others(self, begin: Begin) -> None:
        play = begin(Policy(attempts=3, first_delay=1.0))

        def story() -> Story:
            for _ in range(3):
                play.world.fails("left", ValueError("always"), epoch=0)
                yield 10

        play.run(story())
        assert play.states() == {"numbers": "stopped", "left": "failed", "right": "stopped"}
        (told,) = play.texts("gave up")
        assert "3 times in a row, the last time at epoch 0: ValueError: always" in told
        assert play.world.starts["left"] == 3
        assert play.supervisor.view.state == "failed"
        assert play.world.done[-3:] == ["end numbers", "end right", "close"]

    def test_it_is_started_again_when_its_delay_is_over(self, begin: Begin) -> None:
        play = begin(Policy(attempts=5, first_delay=8.0, factor=2.0))

        def story() -> Story:
            for delay in (0, 8, 16):
                play.world.fails("left", ValueError("again"), epoch=0)
                starts = play.world.starts["left"]
                if delay:
                    yield delay - 0.5
                    assert (play.state("left"), play.world.starts["left"]) == ("backing off", starts)
                yield 1
                assert (play.state("left"), play.world.starts["left"]) == ("running", starts + 1)
            play.stop()
            yield 1

        play.run(story())

    def test_a_commit_that_is_told_after_the_end_comes_before_the_failure(self, begin: Begin) -> None:
        """Nothing counts as failed twice in a row between which an epoch was committed."""
        play = begin(Policy(attempts=2, first_delay=0.0))

        def story() -> Story:
            world = play.world
            world.fails("left", ValueError("at 0"), epoch=0)
            yield 1
            world.computes("left", 0)
            world.checkpoints["left"][0] = covers(0).last
            world.fails("left", ValueError("at 1"), epoch=1)
            world.tells_commit("left", 0)  # Spark was late with it
            yield 1
            assert (play.state("left"), play.epoch("left")) == ("running", 0)
            play.stop()
            yield 1

        play.run(story())
        assert "gave up" not in play.kinds()
        kinds = [kind for kind in play.kinds() if kind.startswith("segment")]
        assert kinds == [
            "segment failed",
            "segment restart",
            "segment recovered",
            "segment failed",
            "segment restart",
        ]

    def test_an_end_of_which_nobody_hears_is_found(self, begin: Begin) -> None:
        play = begin()

        def story() -> Story:
            play.world.deaf = True
            play.world.fails("left", ValueError("unheard"))
            yield 2
            assert play.world.starts["left"] == 2
            play.stop()
            yield 3

        play.run(story())
        assert play.states() == ALL_STOPPED

    def test_an_outage_is_waited_for_and_not_counted(self, begin: Begin) -> None:
        play = begin(Policy(attempts=1, first_delay=1.0, longest_delay=1.0, patience=60.0))

        def story() -> Story:
            for _ in range(4):
                play.world.fails("left", BackendUnavailable("Redis is away"), epoch=0)
                yield 2
            play.world.commits("left", 0)
            yield 1
            play.stop()
            yield 1

        play.run(story())
        assert (play.states(), play.epoch("left")) == (ALL_STOPPED, 0)
        assert play.kinds().count("outage") == 4


class TestPoison:
    def test_a_poison_epoch_is_set_aside_and_the_rest_goes_on(self, begin: Begin) -> None:
        play = begin(Policy(attempts=2, first_delay=0.0, on_poison="dead-letter"))
        publish(play.log.take_over("numbers"), covers(0), [1, 2, 3])

        def story() -> Story:
            for _ in range(2):
                play.world.fails("left", ValueError("poison"), epoch=0)
                yield 1
            play.world.commits("left", 0)
            yield 1
            assert play.states() == {"numbers": "running", "left": "running", "right": "running"}
            play.stop()
            yield 1

        play.run(story())
        assert play.texts("set aside") == [f"epoch 0: 3 rows are in {play.home.root}/dead"]
        assert play.log.is_set_aside("left", play.log.manifest(covers(0)))
        letters = EpochLog.open(play.home.dead("left", "numbers"))
        assert (letters.header.schema, letters.manifest(covers(0)).rows) == (SCHEMA, 3)
        assert play.world.starts["left"] == 3

    def test_an_epoch_of_a_source_cannot_be_set_aside(self, begin: Begin) -> None:
        play = begin(Policy(attempts=1, on_poison="dead-letter"))

        def story() -> Story:
            play.world.fails("numbers", ValueError("poison"), epoch=0)
            yield 1

        play.run(story())
        assert play.states() == {"numbers": "failed", "left": "stopped", "right": "stopped"}
        (told,) = play.texts("gave up")
        assert "epoch 0 cannot be set aside, because it comes from a source" in told and "poison" in told


class TestStopping:
    def test_a_stop_waits_for_the_epoch_that_is_under_way(self, begin: Begin) -> None:
        play = begin()

        def story() -> Story:
            play.world.begins("numbers", 0)
            play.stop()
            yield 5
            assert play.states() == {"numbers": "stopping", "left": "stopped", "right": "stopped"}
            with pytest.raises(Stopped):
                play.world.begins("left", 0)
            play.world.gates["numbers"].leave(None)
            yield 5
            assert play.world.active("numbers") == [True], "its commit is not known"
            play.world.checkpoints["numbers"][0] = covers(0).last
            play.world.tells_commit("numbers", 0)
            yield 1

        play.run(story())
        assert (play.states(), play.epoch("numbers")) == (ALL_STOPPED, 0)
        assert "segment failed" not in play.kinds()

    def test_one_that_fails_while_a_stop_is_asked_is_stopped(self, begin: Begin) -> None:
        play = begin(AT_ONCE)

        def story() -> Story:
            play.world.begins("left", 0)
            play.stop()
            yield 1
            play.world.gates["left"].leave(ValueError("in its last epoch"))
            play.world.query("left").ends(ValueError("in its last epoch"))
            yield 1

        play.run(story())
        assert play.states() == ALL_STOPPED
        assert play.world.starts["left"] == 1
        assert play.texts("segment failed") == ["in epoch 0: ValueError: in its last epoch"]

    def test_one_that_has_failed_before_the_stop_was_heard_is_stopped_too(self, begin: Begin) -> None:
        play = begin(AT_ONCE)

        def story() -> Story:
            play.stop()
            play.world.fails("left", ValueError("just before"), epoch=0)
            yield 1

        play.run(story())
        assert (play.states(), play.world.starts["left"]) == (ALL_STOPPED, 1)

    def test_a_failure_of_which_nobody_has_heard_before_the_stop_is_told(self, begin: Begin) -> None:
        play = begin(AT_ONCE)

        def story() -> Story:
            yield 0.5
            play.world.deaf = True
            play.world.query("left").ends(ValueError("between two batches"))
            play.stop()
            yield 1

        play.run(story())
        assert play.texts("segment failed") == ["while starting: ValueError: between two batches"]
        assert (play.states(), play.world.starts["left"]) == (ALL_STOPPED, 1)

    def test_a_stop_while_one_backs_off_does_not_wait_for_its_delay(self, begin: Begin) -> None:
        play = begin(Policy(first_delay=1000.0, longest_delay=1000.0))

        def story() -> Story:
            for _ in range(2):
                play.world.fails("left", ValueError("again"), epoch=0)
                yield 1
            assert play.state("left") == "backing off"
            play.stop()
            yield 5000

        play.run(story())
        assert play.world.time < 10
        assert (play.states(), play.world.starts["left"]) == (ALL_STOPPED, 2)

    def test_a_drain_ends_the_head_and_then_who_has_read_all(self, begin: Begin) -> None:
        play = begin()

        def story() -> Story:
            for epoch in (0, 1):
                play.world.commits("numbers", epoch)
            play.world.commits("left", 0)
            yield 1
            play.stop(drain=True)
            yield 1
            assert play.states() == {"numbers": "stopped", "left": "running", "right": "running"}
            assert Path(play.home.draining).exists(), "who reads the last epochs takes less than a batch"
            play.world.commits("left", 1)
            yield 1
            assert play.states() == {"numbers": "stopped", "left": "stopped", "right": "running"}
            for epoch in (0, 1):
                play.world.commits("right", epoch)
            yield 1

        play.run(story())
        assert play.states() == ALL_STOPPED
        assert [play.epoch(name) for name in ("numbers", "left", "right")] == [1, 1, 1]
        assert play.world.done[-4:] == ["end numbers", "end left", "end right", "close"]

    def test_one_that_fails_while_it_drains_is_started_again_and_finishes(self, begin: Begin) -> None:
        play = begin(AT_ONCE)

        def story() -> Story:
            play.world.commits("numbers", 0)
            play.world.commits("right", 0)
            yield 1
            play.stop(drain=True)
            yield 1
            play.world.fails("left", ValueError("once"), epoch=0)
            yield 1
            play.world.commits("left", 0)
            yield 1

        play.run(story())
        assert (play.states(), play.epoch("left")) == (ALL_STOPPED, 0)

    def test_the_last_epoch_ends_a_run(self, begin: Begin) -> None:
        play = begin(last_epoch=0)

        def story() -> Story:
            play.world.commits("numbers", 0)
            yield 1
            for segment in ("left", "right"):
                play.world.commits(segment, 0)
            yield 1

        play.run(story())
        assert play.states() == ALL_STOPPED
        (told,) = play.texts("stop asked")
        assert told.startswith("epoch 0 was to be the last: ")

    def test_a_run_that_takes_what_is_there_ends_when_its_head_has(self, begin: Begin) -> None:
        play = begin(drains=True)

        def story() -> Story:
            play.world.commits("numbers", 0)
            play.world.query("numbers").ends()
            yield 5
            assert play.states() == {"numbers": "running", "left": "running", "right": "running"}
            for segment in ("left", "right"):
                play.world.commits(segment, 0)
            yield 5

        play.run(story())
        assert play.states() == ALL_STOPPED
        (told,) = play.texts("stop asked")
        assert told.startswith("all that was there has gone through: ")
