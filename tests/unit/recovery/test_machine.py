"""Stories of the supervising machine: what fails, who is restarted, who never notices."""

from __future__ import annotations

import pytest

from tidelock.epochs import BEFORE_FIRST, Epoch
from tidelock.errors import InternalError, PipelineError
from tidelock.recovery import (
    Action,
    EpochCommitted,
    Fact,
    Failure,
    GiveUp,
    InputsReady,
    Link,
    Machine,
    Policy,
    QueryEnded,
    QueryFailed,
    QueryStarted,
    SegmentState,
    SetAside,
    SetAsideDone,
    Shape,
    StartSegment,
    StopAsked,
    StopSegment,
    TimePassed,
)
from tidelock.recovery.life import REMEMBERED_FAILURES

CHAIN: Shape = {"a": (), "b": (Link("a"),), "c": (Link("b"),)}


class Story:
    """A machine, a clock, and facts told one after the other."""

    def __init__(self, shape: Shape = CHAIN, policy: Policy | None = None, *, running: bool = True) -> None:
        self.machine = Machine(shape, policy or Policy())
        self.now = 0.0
        for segment in shape if running else ():
            assert self.tell(InputsReady(segment)) == (StartSegment(segment, 1),)
            assert self.tell(QueryStarted(segment)) == ()

    def tell(self, fact: Fact) -> tuple[Action, ...]:
        actions = self.machine.handle(fact, self.now)
        self.machine.validate()
        return actions

    def commit(self, segment: str, epoch: int) -> tuple[Action, ...]:
        return self.tell(EpochCommitted(segment, Epoch(epoch)))

    def fail(
        self, segment: str, epoch: int | None = 0, *, final: bool = False, outage: bool = False
    ) -> tuple[Action, ...]:
        return self.tell(QueryFailed(segment, None if epoch is None else Epoch(epoch), "boom", final, outage))

    def wait(self) -> tuple[Action, ...]:
        """Until the machine wants to be woken."""
        wake_at = self.machine.wake_at()
        assert wake_at is not None
        self.now = wake_at
        return self.tell(TimePassed())

    def states(self) -> str:
        return " ".join(self.machine.state(segment).value for segment in self.segments)

    @property
    def segments(self) -> list[str]:
        return list(self.machine._lives)


class TestStart:
    def test_each_segment_starts_when_its_logs_are_there(self) -> None:
        story = Story(running=False)
        assert story.states() == "waiting waiting waiting"
        assert story.tell(InputsReady("c")) == (StartSegment("c", 1),)
        assert story.states() == "waiting waiting starting"
        assert story.tell(InputsReady("c")) == ()

    def test_a_commit_proves_that_a_query_runs(self) -> None:
        story = Story(running=False)
        story.tell(InputsReady("a"))
        story.commit("a", 0)
        assert story.machine.state("a") is SegmentState.RUNNING

    def test_epochs_of_an_earlier_run_are_known_before_the_start(self) -> None:
        story = Story(running=False)
        assert story.machine.epoch("a") == BEFORE_FIRST
        story.commit("a", 7)
        assert (story.machine.state("a"), story.machine.epoch("a")) == (SegmentState.WAITING, 7)

    def test_what_can_never_start_is_given_up_before_it(self) -> None:
        story = Story(running=False)
        (gave_up,) = story.fail("b", None, final=True)
        assert gave_up == GiveUp("b", "segment 'b' cannot be started: boom")
        assert story.states() == "stopped failed stopped"


class TestAnOperatorFails:
    def test_once_and_only_its_segment_restarts(self) -> None:
        story = Story()
        story.commit("b", 4)
        story.now = 10.0
        assert story.fail("b", 5) == ()
        assert story.states() == "running backing off running"
        assert story.wait() == (StartSegment("b", 2),)
        assert story.now == 10.0, "it is tried again at once"
        story.tell(QueryStarted("b"))
        story.commit("b", 5)
        assert (story.states(), story.machine.restarts("b")) == ("running running running", 1)
        assert story.machine.failures("b") == [Failure(10.0, Epoch(5), "boom")]
        assert story.machine.last_error("b") == "boom"
        assert story.machine.last_error("a") is None

    def test_again_and_again_with_commits_in_between(self) -> None:
        story = Story()
        times = 5 * REMEMBERED_FAILURES
        for epoch in range(times):
            story.commit("b", epoch)
            before = story.now
            assert story.fail("b", epoch + 1) == ()
            assert story.wait() == (StartSegment("b", 2),)
            assert story.now == before
        assert story.machine.restarts("b") == times
        kept = [failure.epoch for failure in story.machine.failures("b")]
        assert kept == list(range(times - REMEMBERED_FAILURES + 1, times + 1)), "the newest are remembered"

    def test_always_and_the_pipeline_stops_with_its_story(self) -> None:
        story = Story()
        delays = []
        for attempt in (2, 3):
            before = story.now
            story.fail("b", 5)
            assert story.wait() == (StartSegment("b", attempt),)
            delays.append(story.now - before)
        assert delays == [0.0, 1.0]
        told = "segment 'b' failed 3 times in a row, the last time at epoch 5: boom"
        assert story.fail("b", 5) == (GiveUp("b", told), StopSegment("a"), StopSegment("c"))
        assert story.machine.gave_up == ("b", told)
        assert not story.machine.done
        story.tell(QueryEnded("a"))
        story.fail("c")
        assert story.states() == "stopped failed stopped"
        assert story.machine.done

    def test_an_epoch_committed_before_does_not_end_the_row(self) -> None:
        story = Story(policy=Policy(attempts=2))
        story.commit("b", 4)
        story.fail("b", 5)
        story.wait()
        story.commit("b", 4)
        assert isinstance(story.fail("b", 5)[0], GiveUp)

    def test_a_commit_told_after_the_failure_makes_it_the_first_of_its_row(self) -> None:
        story = Story(policy=Policy(attempts=3))
        story.fail("b", 5)
        story.wait()
        story.fail("b", 6)
        story.commit("b", 5)
        assert story.wait() == (StartSegment("b", 2),)

    def test_for_good(self) -> None:
        story = Story()
        gave_up, *stops = story.fail("a", None, final=True)
        assert gave_up == GiveUp("a", "segment 'a' failed and cannot be retried: boom")
        assert stops == [StopSegment("b"), StopSegment("c")]

    def test_two_at_once_restart_each_in_its_time(self) -> None:
        story = Story()
        story.fail("a")
        story.now = 0.2
        story.fail("c")
        assert story.states() == "backing off running backing off"
        assert story.wait() == (StartSegment("a", 2),)
        assert story.wait() == (StartSegment("c", 2),)

    def test_giving_up_ends_the_patience_with_others(self) -> None:
        story = Story()
        story.fail("a")
        assert [type(action) for action in story.fail("c", final=True)] == [GiveUp, StopSegment]
        assert story.states() == "stopped stopping failed"
        assert story.machine.wake_at() is None


class TestAStoreIsAway:
    def test_it_is_waited_for_and_no_epoch_counts_as_poison(self) -> None:
        story = Story(policy=Policy(attempts=2, on_poison="dead-letter"))
        story.commit("b", 4)
        delays = []
        for _ in range(8):
            before = story.now
            assert story.fail("b", 5, outage=True) == ()
            assert story.wait() == (StartSegment("b", 1),), "no attempt was used up"
            delays.append(story.now - before)
        assert delays == [0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
        story.commit("b", 5)
        assert story.states() == "running running running"

    def test_longer_than_the_patience_and_the_pipeline_stops_with_its_story(self) -> None:
        story = Story(policy=Policy(patience=2.9))
        for _ in range(3):
            assert story.fail("b", outage=True) == ()
            story.wait()
        assert story.now == 3.0
        gave_up, *stops = story.fail("b", outage=True)
        assert isinstance(gave_up, GiveUp)
        assert "has waited 3 s for a store or server" in gave_up.story
        assert "patience of 2.9 s: boom" in gave_up.story
        assert "start the pipeline again" in gave_up.story
        assert stops == [StopSegment("a"), StopSegment("c")]

    def test_a_commit_ends_the_outage(self) -> None:
        story = Story(policy=Policy(patience=3.0))
        for epoch in range(20):
            assert story.fail("b", epoch, outage=True) == ()
            assert story.wait() == (StartSegment("b", 1),)
            story.now += 1.0
            story.commit("b", epoch)
        assert story.now > 3.0

    def test_a_commit_told_after_it_lets_the_outage_begin_with_its_newest_failure(self) -> None:
        story = Story(policy=Policy(patience=3.0))
        story.fail("b", 5, outage=True)
        story.wait()
        story.now = 2.9
        story.fail("b", 6, outage=True)
        story.commit("b", 5)
        story.wait()
        story.now = 5.8
        assert story.fail("b", 6, outage=True) == ()

    def test_it_neither_lengthens_nor_ends_a_row_of_failures(self) -> None:
        story = Story()
        for outage in (False, True, True, False, True):
            assert story.fail("b", 5, outage=outage) == ()
            story.wait()
        told = "segment 'b' failed 3 times in a row, the last time at epoch 5: boom"
        assert story.fail("b", 5)[0] == GiveUp("b", told)

    def test_what_cannot_be_retried_is_not_waited_for(self) -> None:
        story = Story()
        assert isinstance(story.fail("b", outage=True, final=True)[0], GiveUp)


class TestPoison:
    POLICY = Policy(attempts=2, on_poison="dead-letter")

    def poisoned(self) -> Story:
        story = Story(policy=self.POLICY)
        story.commit("b", 4)
        story.fail("b", 5)
        story.wait()
        assert story.fail("b", 5) == (SetAside("b", Epoch(5)),)
        return story

    def test_the_epoch_is_set_aside_and_the_segment_goes_on(self) -> None:
        story = self.poisoned()
        assert story.states() == "running backing off running"
        assert story.machine.wake_at() is None
        done = SetAsideDone("b", Epoch(5))
        assert story.tell(done) == (StartSegment("b", 1),)
        assert story.tell(done) == (), "told twice"
        story.commit("b", 5)
        assert story.fail("b", 6) == ()
        assert story.tell(done) == (), "told late"

    def test_an_epoch_that_fails_without_its_input_is_given_up(self) -> None:
        story = self.poisoned()
        story.tell(SetAsideDone("b", Epoch(5)))
        assert story.fail("b", 5) == (), "that may have been chance"
        story.wait()
        told = "segment 'b' failed at epoch 5 although its input was set aside: boom"
        assert story.fail("b", 5)[0] == GiveUp("b", told)

    def test_another_epoch_is_another_poison(self) -> None:
        story = self.poisoned()
        story.tell(SetAsideDone("b", Epoch(5)))
        story.commit("b", 5)
        story.fail("b", 6)
        story.wait()
        assert story.fail("b", 6) == (SetAside("b", Epoch(6)),)

    def test_an_unknown_epoch_cannot_be_set_aside(self) -> None:
        story = Story(policy=self.POLICY)
        story.fail("b", None)
        story.wait()
        (gave_up, *_) = story.fail("b", None)
        assert gave_up == GiveUp(
            "b", "segment 'b' failed 2 times in a row, the last time at an unknown epoch: boom"
        )

    def test_a_dead_letter_log_that_fails_for_good(self) -> None:
        story = self.poisoned()
        assert story.fail("b", 5) == (), "the same failure, told twice"
        assert isinstance(story.fail("b", 5, final=True)[0], GiveUp)

    def test_a_stop_does_not_wait_for_it(self) -> None:
        story = self.poisoned()
        assert story.tell(StopAsked(drain=False)) == (StopSegment("a"), StopSegment("c"))
        assert story.tell(SetAsideDone("b", Epoch(5))) == ()
        assert story.machine.state("b") is SegmentState.STOPPED


class TestStop:
    def test_at_the_next_boundary(self) -> None:
        story = Story()
        stop = StopAsked(drain=False)
        assert story.tell(stop) == (StopSegment("a"), StopSegment("b"), StopSegment("c"))
        assert story.tell(stop) == ()
        story.commit("b", 9)
        for segment in CHAIN:
            story.tell(QueryEnded(segment))
        assert story.machine.done
        assert (story.machine.gave_up, story.machine.epoch("b")) == (None, 9)

    def test_while_backing_off_or_waiting(self) -> None:
        story = Story(running=False)
        story.tell(InputsReady("a"))
        story.fail("a")
        story.tell(InputsReady("b"))
        assert story.tell(StopAsked(drain=False)) == (StopSegment("b"),)
        assert story.states() == "stopped stopping stopped"
        assert story.tell(InputsReady("c")) == ()
        assert story.tell(QueryStarted("b")) == ()
        assert story.tell(QueryEnded("b")) == ()
        assert story.machine.done

    def test_a_failure_while_stopping_is_an_end_that_is_remembered(self) -> None:
        story = Story()
        story.tell(StopAsked(drain=False))
        assert story.fail("b", final=True) == ()
        assert story.machine.state("b") is SegmentState.STOPPED
        assert story.machine.last_error("b") == "boom"


class TestDrain:
    def test_segments_end_down_the_topology_when_they_have_read_all(self) -> None:
        story = Story()
        story.commit("a", 5)
        story.commit("b", 4)
        assert story.tell(StopAsked(drain=True)) == (StopSegment("a"),)
        story.commit("a", 6)
        story.commit("b", 5)
        assert story.tell(QueryEnded("a")) == ()
        assert story.commit("b", 6) == (StopSegment("b"),)
        assert story.commit("c", 5) == ()
        assert story.tell(QueryEnded("b")) == ()
        assert story.commit("c", 6) == (StopSegment("c"),)
        story.tell(QueryEnded("c"))
        assert story.machine.done

    def test_a_failing_consumer_is_restarted_until_it_has_read_all(self) -> None:
        story = Story()
        story.commit("a", 5)
        story.commit("b", 4)
        story.fail("b", 5)
        assert story.tell(StopAsked(drain=True)) == (StopSegment("a"),)
        assert story.tell(QueryEnded("a")) == ()
        assert story.wait() == (StartSegment("b", 2),)
        assert story.commit("b", 5) == (StopSegment("b"),)

    def test_a_failing_consumer_that_has_read_all_is_stopped(self) -> None:
        story = Story({"a": (), "b": (Link("a"),)})
        story.commit("a", 5)
        story.commit("b", 5)
        story.fail("b", 6)
        story.tell(StopAsked(drain=True))
        assert story.tell(QueryEnded("a")) == ()
        assert story.machine.done

    def test_a_failing_head_is_not_started_only_to_be_stopped(self) -> None:
        story = Story()
        story.commit("a", 5)
        story.fail("a", 6)
        assert story.tell(StopAsked(drain=True)) == ()
        assert story.states() == "stopped running running"

    def test_a_head_that_fails_while_stopping_lets_the_drain_go_on(self) -> None:
        story = Story()
        story.tell(StopAsked(drain=True))
        assert story.fail("a") == (StopSegment("b"),)

    def test_a_stop_cuts_it_short(self) -> None:
        story = Story()
        story.commit("a", 5)
        story.tell(StopAsked(drain=True))
        assert story.tell(StopAsked(drain=False)) == (StopSegment("b"), StopSegment("c"))
        assert story.tell(StopAsked(drain=True)) == ()

    def test_what_never_started_has_nothing_to_drain(self) -> None:
        story = Story(running=False)
        assert story.tell(StopAsked(drain=True)) == ()
        assert story.machine.done

    def test_a_waiting_segment_still_reads_what_is_there(self) -> None:
        story = Story(running=False)
        story.tell(InputsReady("a"))
        story.commit("a", 2)
        story.tell(StopAsked(drain=True))
        story.tell(QueryEnded("a"))
        assert story.states() == "stopped waiting waiting"
        assert story.tell(InputsReady("b")) == (StartSegment("b", 1),)
        assert story.commit("b", 2) == (StopSegment("b"),)

    def test_sources_of_different_paces_end_at_the_last_common_epoch(self) -> None:
        story = Story({"fast": (), "slow": (), "join": (Link("fast"), Link("slow"))})
        story.commit("fast", 9)
        story.commit("slow", 7)
        story.tell(StopAsked(drain=True))
        story.tell(QueryEnded("fast"))
        assert story.commit("join", 6) == ()
        assert story.tell(QueryEnded("slow")) == ()
        assert story.commit("join", 7) == (StopSegment("join"),)

    def test_a_loop_does_not_hold_it_up(self) -> None:
        story = Story({"join": (Link("rank", lag=1),), "rank": (Link("join"),)})
        story.commit("join", 3)
        assert story.tell(StopAsked(drain=True)) == (StopSegment("join"),)
        story.tell(QueryEnded("join"))
        assert story.commit("rank", 3) == (StopSegment("rank"),)


class TestASourceEnds:
    def test_those_behind_it_end_when_all_their_upstreams_have(self) -> None:
        story = Story({"a": (), "b": (), "only-a": (Link("a"),), "both": (Link("a"), Link("b"))})
        for segment in ("a", "b", "only-a"):
            story.commit(segment, 3)
        assert story.tell(QueryEnded("a")) == (StopSegment("only-a"),)
        assert story.states() == "stopped running stopping running"
        assert story.commit("both", 3) == ()
        assert story.tell(QueryEnded("b")) == (StopSegment("both"),)

    def test_an_end_before_the_start_was_told(self) -> None:
        story = Story({"a": ()}, running=False)
        story.tell(InputsReady("a"))
        story.tell(QueryEnded("a"))
        assert story.machine.done


class TestFactsThatCannotBe:
    @pytest.mark.parametrize(
        "fact", [QueryStarted("b"), QueryEnded("b"), QueryFailed("b", None, "?"), SetAsideDone("b", Epoch(1))]
    )
    def test_about_a_segment_that_was_never_started(self, fact: Fact) -> None:
        with pytest.raises(InternalError, match=r"segment 'b'.*its last facts: at 0 waiting"):
            Story(running=False).tell(fact)

    @pytest.mark.parametrize("state", ["running", "backing off", "stopping"])
    def test_an_epoch_set_aside_that_nobody_asked_for(self, state: str) -> None:
        story = Story()
        if state == "backing off":
            story.fail("b")
        if state == "stopping":
            story.tell(StopAsked(drain=False))
        assert story.machine.state("b").value == state
        with pytest.raises(InternalError, match="nobody asked to set epoch 3 aside"):
            story.tell(SetAsideDone("b", Epoch(3)))

    def test_an_unknown_segment(self) -> None:
        with pytest.raises(InternalError, match="no segment 'x', only a, b, c"):
            Story().tell(InputsReady("x"))

    def test_late_facts_after_the_end_change_nothing(self) -> None:
        story = Story()
        story.fail("b", final=True)
        for fact in (InputsReady("b"), QueryStarted("b"), QueryEnded("b"), QueryFailed("b", None, "late")):
            assert story.tell(fact) == ()
        assert story.machine.state("b") is SegmentState.FAILED
        assert len(story.machine.failures("b")) == 1

    def test_a_shape_out_of_order(self) -> None:
        with pytest.raises(InternalError, match="'b' comes before an upstream segment: a"):
            Machine({"b": (Link("a"),), "a": ()}, Policy())


class TestValidate:
    """Broken on purpose: the checks see it."""

    def test_a_segment_that_waits_for_nothing(self) -> None:
        machine = Story().machine
        machine._lives["b"].state = SegmentState.BACKING_OFF
        with pytest.raises(InternalError, match="waits for 0 things"):
            machine.validate()

    def test_a_row_without_failures(self) -> None:
        machine = Story().machine
        machine._lives["b"]._row = 1
        with pytest.raises(InternalError, match="1 failures in a row out of 0"):
            machine.validate()

    def test_a_failure_that_nobody_knows(self) -> None:
        machine = Story().machine
        machine._lives["b"].state = SegmentState.FAILED
        with pytest.raises(InternalError, match="failed segments"):
            machine.validate()

    @pytest.mark.parametrize("drain", [False, True])
    def test_a_segment_that_survives_a_stop(self, drain: bool) -> None:
        story = Story()
        story.tell(StopAsked(drain))
        story.machine._lives["a"].state = SegmentState.RUNNING
        with pytest.raises(InternalError, match="'a' is running although it has to end"):
            story.machine.validate()


@pytest.mark.parametrize(
    "options",
    [{"attempts": 0}, {"first_delay": -1.0}, {"factor": 0.5}, {"longest_delay": 0.1}, {"on_poison": "ignore"}],
)
def test_a_policy_has_to_make_sense(options: dict[str, object]) -> None:
    with pytest.raises(PipelineError):
        Policy(**options)  # type: ignore[arg-type]
