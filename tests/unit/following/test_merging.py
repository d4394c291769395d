"""Where steps end: at the job's own pace, epoch by epoch, with subjects that are fast, slow or silent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from tidelock.following.merging import (
    BEHIND,
    MOST,
    Pace,
    Position,
    SilenceClock,
    Times,
    ahead,
    newer,
    next_position,
    silent,
    steps_ahead,
)

BOTH = {"a": 0, "b": 0}


def each_second(log: str, end: int) -> float:
    """Epoch n of every log was published at second n."""
    return float(end)


def step_of(
    position: Position, ends: Mapping[str, Sequence[int]], pace: Pace, times: Times = each_second
) -> Position | None:
    return next_position(position, ends, pace, times)


def paced(log: str, end: int, **seconds: float) -> float:
    """Logs that take so many seconds for each epoch."""
    return end * seconds[log]


def numbers(first: int, last: int) -> list[int]:
    return list(range(first, last + 1))


class TestAtItsOwnPace:
    def test_everything_that_is_there_is_taken(self) -> None:
        step = step_of({"a": 3, "b": 3}, {"a": [3, 4, 7], "b": [2, 3]}, Pace({}))
        assert step == {"a": 7, "b": 3}

    def test_not_before_the_interval_is_over(self) -> None:
        assert step_of({"a": 3}, {"a": [4]}, Pace({}, due=False)) is None

    def test_nothing_new_is_no_step(self) -> None:
        assert step_of({"a": 3, "b": -1}, {"a": [2, 3], "b": []}, Pace({})) is None

    def test_nobody_is_followed(self) -> None:
        assert step_of({}, {}, Pace({"a": 0})) is None


class TestEpochByEpoch:
    def test_one_entry_of_each_also_if_the_interval_is_not_over(self) -> None:
        ends = {"a": [4, 5], "b": [4, 5, 6]}
        assert step_of({"a": 3, "b": 3}, ends, Pace(BOTH, due=False)) == {"a": 4, "b": 4}

    def test_an_entry_of_several_epochs_is_taken_whole(self) -> None:
        assert step_of({"a": 3}, {"a": [7, 8]}, Pace({"a": 0})) == {"a": 7}

    def test_a_silent_subject_is_waited_for(self) -> None:
        assert step_of({"a": 3, "b": 3}, {"a": [4, 5], "b": [3]}, Pace(BOTH)) is None

    def test_without_patience_the_others_are_taken_alone(self) -> None:
        step = step_of({"a": 3, "b": 3}, {"a": [4, 5], "b": [3]}, Pace(BOTH, impatient=True))
        assert step == {"a": 4, "b": 3}

    def test_without_patience_and_nothing_to_take(self) -> None:
        assert step_of({"a": 3, "b": 3}, {"a": [3], "b": [3]}, Pace(BOTH, impatient=True)) is None

    def test_all_take_part_although_patience_is_over(self) -> None:
        step = step_of({"a": 3, "b": 3}, {"a": [4, 5], "b": [4, 5]}, Pace(BOTH, impatient=True))
        assert step == {"a": 4, "b": 4}

    def test_of_a_fast_subject_goes_what_was_there_when_the_slow_one_published(self) -> None:
        at, ends = {"a": 0, "b": 0}, {"a": numbers(1, 8), "b": [1, 2, 3]}
        steps = []
        while (step := step_of(at, ends, Pace(BOTH), partial(paced, a=1, b=2.5))) is not None:
            steps.append((step["a"], step["b"]))
            at = step
        assert steps == [(2, 1), (5, 2), (7, 3)]

    def test_a_subject_that_is_not_aligned_gives_what_it_has(self) -> None:
        step = step_of({"a": 3, "c": 3}, {"a": [4, 5], "c": [4, 5, 6]}, Pace({"a": 0}))
        assert step == {"a": 4, "c": 6}

    def test_who_is_far_behind_and_may_merge_takes_many_at_once_and_ends_on_an_epoch(self) -> None:
        for there in (BEHIND - 1, BEHIND, MOST, MOST + 50):
            ends = {"a": numbers(1, there), "b": numbers(1, 2 * there)}
            taken = 1 if there < BEHIND else min(there, MOST)
            times = partial(paced, a=2, b=1)
            assert step_of({"a": 0, "b": 0}, ends, Pace(BOTH), times) == {"a": 1, "b": 2}, "one by one"
            assert step_of({"a": 0, "b": 0}, ends, Pace(BOTH, merges=True), times) == {"a": taken, "b": 2 * taken}
            proposed = steps_ahead({"a": 0, "b": 0}, ends, times, merges=True)
            assert proposed == [{"a": n, "b": 2 * n} for n in range(1, taken + 1)], "others go through all of them"
            assert steps_ahead({"a": 0, "b": 0}, ends, times, merges=False) == proposed[:1]
        assert steps_ahead({"a": 0, "b": 0}, {"a": [1], "b": []}, each_second, merges=True) == []

    def test_a_local_step_is_one_epoch_too(self) -> None:
        ends = {"a": numbers(1, 50), "b": []}
        assert step_of({"a": 0, "b": 0}, ends, Pace(BOTH, impatient=True)) == {"a": 1, "b": 0}
        assert step_of({"a": 0, "b": 0}, ends, Pace(BOTH, impatient=True, merges=True)) == {"a": 50, "b": 0}


class TestTheStart:
    """Up to its start epoch a subject is taken as before; there it changes over."""

    def test_nothing_behind_it_is_taken_before_it_is_reached(self) -> None:
        assert step_of({"a": 3}, {"a": numbers(4, 9)}, Pace({"a": 7})) == {"a": 7}
        assert step_of({"a": 7}, {"a": numbers(4, 9)}, Pace({"a": 7})) == {"a": 8}

    def test_the_interval_counts_before_it(self) -> None:
        assert step_of({"a": 3}, {"a": [4, 5]}, Pace({"a": 7}, due=False)) is None

    def test_it_may_lie_inside_an_entry(self) -> None:
        assert step_of({"a": 3}, {"a": [5, 9, 10]}, Pace({"a": 7})) == {"a": 5}
        assert step_of({"a": 5}, {"a": [5, 9, 10]}, Pace({"a": 7})) == {"a": 9}

    def test_one_subject_may_be_there_before_the_other(self) -> None:
        ends = {"a": numbers(1, 9), "b": numbers(1, 9)}
        assert step_of({"a": 7, "b": 3}, ends, Pace({"a": 7, "b": 6})) == {"a": 8, "b": 6}

    def test_the_other_one_may_be_silent(self) -> None:
        ends = {"a": numbers(1, 9), "b": numbers(1, 3)}
        assert step_of({"a": 7, "b": 3}, ends, Pace({"a": 7, "b": 6})) == {"a": 8, "b": 3}

    def test_subjects_of_others_do_not_matter(self) -> None:
        assert step_of({"a": 3}, {"a": [4, 5]}, Pace({"x": 0})) == {"a": 5}


class TestWaiting:
    def over(self, waiting: SilenceClock, now: float, *missed: str, pending: bool = True) -> bool:
        return waiting.is_over(frozenset(missed), pending=pending, now=now, patience=10)

    def test_it_begins_when_something_is_pending(self) -> None:
        waiting = SilenceClock()
        assert not self.over(waiting, 0, "a", "b", pending=False)
        assert not self.over(waiting, 1000, "b"), "nothing was held up so far"
        assert not self.over(waiting, 1009, "b")
        assert self.over(waiting, 1010, "b")

    def test_who_was_given_up_is_not_waited_for_again_until_it_is_back(self) -> None:
        waiting = SilenceClock()
        self.over(waiting, 0, "b")
        assert self.over(waiting, 10, "b")
        waiting.went_without(frozenset("b"))
        assert not self.over(waiting, 10, "a", "b", pending=False)
        assert self.over(waiting, 11, "b"), "at once"
        waiting.went_without(frozenset("b"))
        assert not self.over(waiting, 12, "a"), "b is back, and a is another one"
        assert not self.over(waiting, 13, "b"), "so b is waited for as ever"

    def test_a_step_of_all_forgives(self) -> None:
        waiting = SilenceClock()
        waiting.went_without(frozenset("b"))
        waiting.all_went()
        assert not self.over(waiting, 0, "b")

    def test_the_time_may_be_over_although_nobody_is_silent(self) -> None:
        waiting = SilenceClock()
        assert not self.over(waiting, 0)
        assert self.over(waiting, 10), "an agreed position that does not come"
        waiting.went_without(frozenset())
        assert not self.over(waiting, 11), "nobody is to blame, so the next one is waited for"


class TestAgreedPositions:
    def test_the_first_that_lies_ahead_in_every_subject(self) -> None:
        agreed = [{"a": 1, "b": 1}, {"a": 2, "b": 4}, {"a": 3, "b": 5}]
        assert ahead({"a": 1, "b": 1}, agreed, merges=True) == {"a": 2, "b": 4}
        assert ahead({"a": 2, "b": 1}, agreed, merges=True) == {"a": 3, "b": 5}, (
            "no step stands still in a subject"
        )
        assert ahead({"a": 3, "b": 1}, agreed, merges=True) is None

    def test_who_is_far_behind_goes_further(self) -> None:
        agreed = [{"a": n} for n in range(150)]
        assert ahead({"a": 150 - BEHIND}, agreed, merges=True) == {"a": 151 - BEHIND}
        assert ahead({"a": 149 - BEHIND}, agreed, merges=True) == {"a": 149}
        assert ahead({"a": 9}, agreed, merges=True) == {"a": 9 + MOST}
        assert ahead({"a": 9}, agreed, merges=False) == {"a": 10}, "who may not merge goes through all of them"

    def test_the_newer_of_two(self) -> None:
        assert newer({"a": 1, "b": 5}, {"a": 3, "b": 2}) == {"a": 3, "b": 5}

    def test_who_is_silent(self) -> None:
        assert silent({"a": 3, "b": 3}, {"a": [3, 4], "b": [3]}, ["a", "b", "x"]) == {"b"}
