"""How many epochs a batch takes, and where it has to be one."""

from tests.unit.topology.shapes import (
    CLOCK,
    FUNCTION,
    STATE,
    WINDOW,
    chain,
    cut_one,
    operator,
    pipeline,
    sink,
    source,
)

from tidelock.topology import Cutting, Plan, Topology, Traits, cut

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
