"""Where steps end: at the job's own pace, epoch by epoch, with subjects that are fast, slow or silent."""

from __future__ import annotations

from tidelock.log.merging import BEHIND, MOST, Pace, Waiting, ahead, is_full, newer, next_position, silent

BOTH = {"a": 0, "b": 0}


def numbers(first: int, last: int) -> list[int]:
    return list(range(first, last + 1))


class TestAtItsOwnPace:
    def test_everything_that_is_there_is_taken(self) -> None:
        step = next_position({"a": 3, "b": 3}, {"a": [3, 4, 7], "b": [2, 3]}, Pace({}))
        assert step == {"a": 7, "b": 3}

    def test_not_before_the_interval_is_over(self) -> None:
        assert next_position({"a": 3}, {"a": [4]}, Pace({}, due=False)) is None

    def test_nothing_new_is_no_step(self) -> None:
        assert next_position({"a": 3, "b": -1}, {"a": [2, 3], "b": []}, Pace({})) is None

    def test_nobody_is_followed(self) -> None:
        assert next_position({}, {}, Pace({"a": 0})) is None


class TestEpochByEpoch:
    def test_one_entry_of_each_also_if_the_interval_is_not_over(self) -> None:
        ends = {"a": [4, 5], "b": [4, 5, 6]}
        assert next_position({"a": 3, "b": 3}, ends, Pace(BOTH, due=False)) == {"a": 4, "b": 4}

    def test_an_entry_of_several_epochs_is_taken_whole(self) -> None:
        assert next_position({"a": 3}, {"a": [7, 8]}, Pace({"a": 0})) == {"a": 7}

    def test_a_silent_subject_is_waited_for(self) -> None:
        assert next_position({"a": 3, "b": 3}, {"a": [4, 5], "b": [3]}, Pace(BOTH)) is None

    def test_without_patience_the_others_are_taken_alone(self) -> None:
        step = next_position({"a": 3, "b": 3}, {"a": [4, 5], "b": [3]}, Pace(BOTH, impatient=True))
        assert step == {"a": 5, "b": 3}

    def test_without_patience_and_nothing_to_take(self) -> None:
        assert next_position({"a": 3, "b": 3}, {"a": [3], "b": [3]}, Pace(BOTH, impatient=True)) is None

    def test_all_take_part_although_patience_is_over(self) -> None:
        step = next_position({"a": 3, "b": 3}, {"a": [4, 5], "b": [4, 5]}, Pace(BOTH, impatient=True))
        assert step == {"a": 4, "b": 4}

    def test_a_fast_subject_is_shared_out_among_the_epochs_of_a_slow_one(self) -> None:
        at, ends = {"a": -1, "b": -1}, {"a": numbers(0, 6), "b": [0, 1, 2]}
        steps = []
        while (step := next_position(at, ends, Pace({"a": -1, "b": -1}))) is not None:
            steps.append((step["a"], step["b"]))
            at = step
        assert steps == [(1, 0), (3, 1), (6, 2)], "7 entries over 3 epochs, and nothing is left"

    def test_a_subject_that_is_not_aligned_gives_what_it_has(self) -> None:
        step = next_position({"a": 3, "c": 3}, {"a": [4, 5], "c": [4, 5, 6]}, Pace({"a": 0}))
        assert step == {"a": 4, "c": 6}

    def test_who_is_far_behind_takes_many_at_once_and_ends_on_an_epoch(self) -> None:
        for there in (BEHIND - 1, BEHIND, MOST, MOST + 50):
            ends = {"a": numbers(1, there), "b": numbers(1, 2 * there)}
            step = next_position({"a": 0, "b": 0}, ends, Pace(BOTH))
            taken = 1 if there < BEHIND else min(there, MOST)
            assert step == {"a": taken, "b": 2 * taken}


class TestTheStart:
    """Up to its start epoch a subject is taken as before; there it changes over."""

    def test_nothing_behind_it_is_taken_before_it_is_reached(self) -> None:
        assert next_position({"a": 3}, {"a": numbers(4, 9)}, Pace({"a": 7})) == {"a": 7}
        assert next_position({"a": 7}, {"a": numbers(4, 9)}, Pace({"a": 7})) == {"a": 8}

    def test_the_interval_counts_before_it(self) -> None:
        assert next_position({"a": 3}, {"a": [4, 5]}, Pace({"a": 7}, due=False)) is None

    def test_it_may_lie_inside_an_entry(self) -> None:
        assert next_position({"a": 3}, {"a": [5, 9, 10]}, Pace({"a": 7})) == {"a": 5}
        assert next_position({"a": 5}, {"a": [5, 9, 10]}, Pace({"a": 7})) == {"a": 9}

    def test_one_subject_may_be_there_before_the_other(self) -> None:
        ends = {"a": numbers(1, 9), "b": numbers(1, 9)}
        assert next_position({"a": 7, "b": 3}, ends, Pace({"a": 7, "b": 6})) == {"a": 8, "b": 6}

    def test_the_other_one_may_be_silent(self) -> None:
        ends = {"a": numbers(1, 9), "b": numbers(1, 3)}
        assert next_position({"a": 7, "b": 3}, ends, Pace({"a": 7, "b": 6})) == {"a": 8, "b": 3}

    def test_subjects_of_others_do_not_matter(self) -> None:
        assert next_position({"a": 3}, {"a": [4, 5]}, Pace({"x": 0})) == {"a": 5}


class TestWaiting:
    def over(self, waiting: Waiting, now: float, *missed: str, pending: bool = True) -> bool:
        return waiting.is_over(frozenset(missed), pending=pending, now=now, patience=10)

    def test_it_begins_when_something_is_pending(self) -> None:
        waiting = Waiting()
        assert not self.over(waiting, 0, "a", "b", pending=False)
        assert not self.over(waiting, 1000, "b"), "nothing was held up so far"
        assert not self.over(waiting, 1009, "b")
        assert self.over(waiting, 1010, "b")

    def test_who_was_given_up_is_not_waited_for_again_until_it_is_back(self) -> None:
        waiting = Waiting()
        self.over(waiting, 0, "b")
        assert self.over(waiting, 10, "b")
        waiting.went_without(frozenset("b"))
        assert not self.over(waiting, 10, "a", "b", pending=False)
        assert self.over(waiting, 11, "b"), "at once"
        waiting.went_without(frozenset("b"))
        assert not self.over(waiting, 12, "a"), "b is back, and a is another one"
        assert not self.over(waiting, 13, "b"), "so b is waited for as ever"

    def test_a_step_of_all_forgives(self) -> None:
        waiting = Waiting()
        waiting.went_without(frozenset("b"))
        waiting.all_went()
        assert not self.over(waiting, 0, "b")

    def test_the_time_may_be_over_although_nobody_is_silent(self) -> None:
        waiting = Waiting()
        assert not self.over(waiting, 0)
        assert self.over(waiting, 10), "an agreed position that does not come"
        waiting.went_without(frozenset())
        assert not self.over(waiting, 11), "nobody is to blame, so the next one is waited for"


class TestAgreedPositions:
    def test_the_first_that_lies_ahead_in_every_subject(self) -> None:
        agreed = [{"a": 1, "b": 1}, {"a": 2, "b": 4}, {"a": 3, "b": 5}]
        assert ahead({"a": 1, "b": 1}, agreed) == {"a": 2, "b": 4}
        assert ahead({"a": 2, "b": 1}, agreed) == {"a": 3, "b": 5}, "no step stands still in a subject"
        assert ahead({"a": 3, "b": 1}, agreed) is None

    def test_who_is_far_behind_goes_further(self) -> None:
        agreed = [{"a": n} for n in range(150)]
        assert ahead({"a": 150 - BEHIND}, agreed) == {"a": 151 - BEHIND}
        assert ahead({"a": 149 - BEHIND}, agreed) == {"a": 149}
        assert ahead({"a": 9}, agreed) == {"a": 9 + MOST}

    def test_full_steps_and_the_newer_of_two(self) -> None:
        assert is_full({"a": 1, "c": 1}, {"a": 2, "c": 1}, ["a", "x"])
        assert not is_full({"a": 1, "b": 1}, {"a": 2, "b": 1}, ["a", "b"])
        assert newer({"a": 1, "b": 5}, {"a": 3, "b": 2}) == {"a": 3, "b": 5}

    def test_who_is_silent(self) -> None:
        assert silent({"a": 3, "b": 3}, {"a": [3, 4], "b": [3]}, ["a", "b", "x"]) == {"b"}
