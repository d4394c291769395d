"""How many epochs a batch takes, and where it has to be one."""

from tests.unit.topology.shapes import (
    CLOCK,
    FUNCTION,
    GROUPED,
    STATE,
    WINDOW,
    chain,
    cut_one,
    operator,
    pipeline,
    sink,
    source,
)

from tidelock.topology import Cutting, Plan, Topology, Traits, cut, why_one_by_one

FOUR = dict.fromkeys("abcdz", 4)


def cut_each(topology: Topology, epochs: dict[str, int], **traits: Traits) -> Cutting:
    plan = Plan.each(topology)
    return cut(topology, Plan(plan.anchors, plan.copies, epochs), traits)


def sizes(cutting: Cutting) -> dict[str, int]:
    return {segment.name: segment.epochs_per_batch for segment in cutting.segments}


def test_every_segment_but_a_head_gets_what_the_plan_says() -> None:
    cutting = cut_each(chain(), FOUR, c=STATE)
    assert sizes(cutting) == {"a": 1, "b": 4, "c": 4, "d": 4, "z": 4}
    assert cutting.notes == (
        "segment a takes 1 epoch per batch instead of 4: it reads a source, and its batches are the epochs",
    )


def test_nothing_before_event_time_state_takes_several() -> None:
    cutting = cut_each(chain(), FOUR, a=CLOCK, c=WINDOW)
    assert sizes(cutting) == {"a": 1, "b": 1, "c": 1, "d": 4, "z": 4}
    assert (
        "segment b takes 1 epoch per batch instead of 4: what is late for c is judged batch by batch"
        in cutting.notes
    )


def test_nothing_before_a_function_with_state_takes_several() -> None:
    cutting = cut_each(chain(), {"c": 2, "z": 2}, d=FUNCTION)
    assert sizes(cutting) == {"a": 1, "b": 1, "c": 1, "d": 1, "z": 2}
    assert cutting.notes == (
        "segment c takes 1 epoch per batch instead of 2: the function of d is called batch by batch",
    )


def test_nothing_before_a_function_of_groups_takes_several() -> None:
    assert sizes(cut_each(chain(), FOUR, c=GROUPED)) == {"a": 1, "b": 1, "c": 1, "d": 4, "z": 4}


def test_a_loop_and_what_leads_to_it_turn_once_per_epoch() -> None:
    topology = pipeline(
        source("a"),
        operator("b", "a"),
        operator("c", "b", "d"),
        operator("d", "c"),
        sink("z", "d"),
        d="id long",
    )
    cutting = cut_each(topology, FOUR)
    assert sizes(cutting) == {"a": 1, "b": 1, "c": 1, "d": 1, "z": 4}
    assert any(note.endswith("c is part of a loop, which turns once per epoch") for note in cutting.notes)


def test_the_plan_wins_over_the_sink() -> None:
    topology = chain(z={"epochs_per_batch": 4})
    assert sizes(cut_one(topology)) == {"d": 1, "z": 4}
    assert sizes(cut(topology, Plan(epochs_per_batch={"z": 2}), {})) == {"d": 1, "z": 2}


def test_a_wish_for_what_is_no_segment_is_told() -> None:
    cutting = cut(chain(), Plan(epochs_per_batch={"c": 2}), {})
    assert cutting.notes == ("c is not the end of a segment, so its 2 epochs per batch are left aside",)


class TestAnAlignedJob:
    """Whether it may take several epochs at once is no wish: it has to make no difference."""

    def why(self, topology: Topology, *timed: str, **traits: Traits) -> str | None:
        return why_one_by_one(cut(topology, Plan.each(topology), traits), traits, ["a"], timed, ["y"])

    def test_rows_that_are_only_changed_may_come_together(self) -> None:
        assert self.why(chain()) is None

    def test_event_time_is_judged_batch_by_batch(self) -> None:
        assert self.why(chain(), "made.rows") == (
            "event time comes with made.rows, and what is late is judged batch by batch"
        )
        assert self.why(chain(), b=CLOCK) == "what is late for b is judged batch by batch"

    def test_state_lets_out_one_row_per_key_and_batch(self) -> None:
        for state in (STATE, FUNCTION):
            assert self.why(chain(), c=state) == "c keeps state, and what it gives depends on the batches"

    def test_a_function_that_sees_a_batch_together_sees_it_epoch_by_epoch(self) -> None:
        assert self.why(chain(), c=GROUPED) == "a function of c sees the rows of a batch together"

    def test_state_that_the_subject_does_not_reach_does_not_matter(self) -> None:
        topology = pipeline(
            source("a"), sink("x", "a"), source("other"), operator("sums", "other"), sink("z", "sums")
        )
        assert self.why(topology, sums=STATE) is None

    def test_a_sink_that_stores_epochs_gets_each_for_itself(self) -> None:
        why = "the sink y gets the rows of each epoch for themselves"
        assert self.why(pipeline(source("a"), operator("b", "a"), sink("y", "b"))) == why
        assert self.why(pipeline(source("a"), sink("x", "a"), source("other"), sink("y", "other"))) is None

    def test_a_loop_turns_once_per_epoch(self) -> None:
        topology = pipeline(source("a"), operator("c", "a", "d"), operator("d", "c"), sink("z", "d"), d="id long")
        assert str(self.why(topology)).endswith("is part of a loop, which turns once per epoch")

    def test_followers_of_its_own_may_depend_on_its_epochs(self) -> None:
        topology = chain(b={"subject": "made.again"})
        assert self.why(topology) == "b is published as made.again, and its followers may depend on its epochs"
