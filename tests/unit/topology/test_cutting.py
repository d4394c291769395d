"""The rules of cutting, one by one, and the four substructures of Segment Backup, section 3.3."""

from dataclasses import replace

import pytest
from tests.unit.topology.shapes import (
    CLOCK,
    FUNCTION,
    STATE,
    TIMED_FUNCTION,
    WINDOW,
    chain,
    cut_one,
    groups,
    operator,
    pipeline,
    sink,
    source,
    why,
)

from tidelock.errors import PipelineError, PlanError
from tidelock.topology import Input, Plan, Traits, cut

SPLIT = (source("a"), operator("b", "a"), operator("c", "b"), operator("d", "b"), sink("y", "c"), sink("z", "d"))
MERGE = (source("a"), source("b"), operator("c", "a"), operator("d", "c", "b"), sink("z", "d"))
SILENT = Traits(silenced=frozenset("b"))
LOOP = (source("a"), operator("b", "a", "c"), operator("c", "b"), sink("z", "c"))


# -- the four substructures


def test_linear_is_one_segment_unless_asked_for_more() -> None:
    (only,) = cut_one(chain()).segments
    assert (only.name, only.operators, only.inputs) == ("z", ("a", "b", "c", "d", "z"), ())
    assert (only.sources, only.sink, only.writes, only.is_head) == (("a",), "z", None, True)
    cutting = cut(chain(), Plan(anchors=frozenset("c")), {})
    assert groups(cutting) == ["ab", "cdz"]
    head, rest = cutting.segments
    assert (head.name, head.writes, head.sink) == ("b", "b", None)
    assert (rest.inputs, rest.sources, rest.is_head) == ((Input("b"),), (), False)


def test_splitting_stores_what_is_read_twice() -> None:
    cutting = cut_one(pipeline(*SPLIT))
    assert groups(cutting) == ["ab", "cy", "dz"]
    assert [one.name for one in cutting.readers("b")] == ["y", "z"]
    assert why(cutting, "b") == "c and d read b, and a query has one output only"


def test_merging_needs_no_cut() -> None:
    (only,) = cut_one(pipeline(*MERGE)).segments
    assert only.sources == ("a", "b")


def test_mixed_split_and_merge() -> None:
    topology = pipeline(
        source("a"), operator("b", "a"), operator("c", "a"), operator("d", "b", "c"), sink("z", "d")
    )
    cutting = cut_one(topology)
    assert groups(cutting) == ["a", "bcdz"]
    assert groups(cut(topology, Plan.each(topology), {})) == ["a", "b", "c", "d", "z"]


# -- rule 1: anchors


def test_an_anchor_stores_all_its_inputs() -> None:
    cutting = cut(pipeline(*MERGE), Plan(anchors=frozenset("d")), {})
    assert groups(cutting) == ["b", "ac", "dz"]
    assert why(cutting, "c") == "d is an anchor of the plan"


def test_an_operator_may_declare_itself_an_anchor() -> None:
    cutting = cut_one(chain(c={"anchor": True}))
    assert groups(cutting) == ["ab", "cdz"]
    assert why(cutting, "b") == "c is declared as an anchor"


def test_an_operator_may_refuse_to_be_an_anchor() -> None:
    topology = chain(c={"anchor": False})
    cutting = cut(topology, Plan.each(topology), {})
    assert groups(cutting) == ["a", "bc", "d", "z"]
    assert cutting.notes[0] == "c is no anchor although the plan has it as one: it is declared anchor=False"


def test_rules_win_over_a_refusal_and_say_so() -> None:
    cutting = cut_one(chain(b={"mode": "update"}, c={"anchor": False}))
    assert groups(cutting) == ["ab", "cdz"]
    assert cutting.notes == (
        "c is declared anchor=False and reads b from a log all the same: "
        "b gives its rows in update mode, which only the end of a query can do",
    )


def test_a_sink_that_wants_several_epochs_reads_a_log() -> None:
    cutting = cut_one(chain(z={"epochs_per_batch": 4}))
    assert groups(cutting) == ["abcd", "z"]
    assert [one.epochs_per_batch for one in cutting.segments] == [1, 4]
    assert why(cutting, "d") == "z takes 4 epochs at once, so it reads a log"


# -- rule 2: several readers, and copies


def test_a_copy_is_computed_in_each_readers_segment() -> None:
    topology = pipeline(source("s"), operator("a", "s", anchor=True), *SPLIT[1:])
    cutting = cut(topology, Plan(copies=frozenset("b")), {})
    assert groups(cutting) == ["s", "a", "bcy", "bdz"]
    assert why(cutting, "a") == "the segments y and z need a, and a query has one output only"


def test_what_feeds_a_copy_is_stored_even_with_one_reader() -> None:
    cutting = cut(pipeline(*SPLIT), Plan(copies=frozenset("b")), {})
    assert groups(cutting) == ["a", "bcy", "bdz"]


def test_a_copy_whose_readers_share_a_segment_stays_one() -> None:
    topology = pipeline(
        source("a"), operator("b", "a"), operator("c", "b"), operator("d", "b", "c"), sink("z", "d")
    )
    assert groups(cut(topology, Plan(copies=frozenset("b")), {})) == ["abcdz"]


def test_an_anchor_wins_over_a_copy() -> None:
    cutting = cut(pipeline(*SPLIT), Plan(copies=frozenset("b"), anchors=frozenset("c")), {})
    assert groups(cutting) == ["ab", "cy", "dz"]
    assert "b is stored and not copied: c is an anchor of the plan" in cutting.notes


@pytest.mark.parametrize(
    ("name", "traits", "message"),
    [
        ("a", {}, "cannot copy a: it is a source"),
        ("z", {}, "cannot copy z: it is a sink"),
        ("b", {"b": STATE}, "cannot copy b: it keeps state"),
        ("d", {}, "cannot copy d: it is published as public.d"),
        ("f", {}, "cannot copy f: it is fed back"),
    ],
)
def test_what_cannot_be_copied(name: str, traits: dict[str, Traits], message: str) -> None:
    topology = pipeline(
        source("a"),
        operator("b", "a"),
        operator("d", "b", subject="public.d"),
        operator("f", "b", "f"),
        sink("z", "d"),
        f="id long",
    )
    with pytest.raises(PlanError, match=message):
        cut(topology, Plan(copies=frozenset({name})), traits)


# -- rules 3 and 4: subjects, feedback and modes


def test_a_subject_is_stored() -> None:
    cutting = cut_one(chain(b={"subject": "trending.topics"}))
    assert groups(cutting) == ["ab", "cdz"]
    assert why(cutting, "b") == "b is published as trending.topics"


def test_feedback_is_stored_and_read_an_epoch_later() -> None:
    cutting = cut_one(pipeline(*LOOP, c="id long"))
    assert groups(cutting) == ["a", "bc", "z"]
    assert cutting.segment("c").inputs == (Input("a"), Input("c", 1))
    assert why(cutting, "c") == "c is fed back into b"
    assert why(cutting, "a") == "c also reads the log of c, and a query reads sources or logs"
    assert [one.name for one in cutting.readers("c")] == ["c", "z"]


def test_update_ends_a_segment_before_an_operator() -> None:
    cutting = cut_one(chain(c={"mode": "update"}))
    assert groups(cutting) == ["abc", "dz"]
    assert [one.mode for one in cutting.segments] == ["update", "append"]
    assert "update mode, which only the end of a query can do" in why(cutting, "c")


def test_update_goes_into_a_sink_without_a_cut() -> None:
    (only,) = cut_one(chain(d={"mode": "complete"})).segments
    assert only.mode == "complete"
    assert only.result == "d"


def test_a_sink_that_reads_a_log_appends() -> None:
    cutting = cut(chain(d={"mode": "update"}), Plan(anchors=frozenset("z")), {})
    assert [(one.name, one.mode) for one in cutting.segments] == [("d", "update"), ("z", "append")]
    assert cutting.segment("z").result == "z"


# -- rule 5: sources or logs


def test_a_source_beside_a_log_is_stored() -> None:
    cutting = cut(pipeline(*MERGE), Plan(logs=frozenset("c")), {})
    assert sorted(groups(cutting)) == ["ac", "b", "dz"]
    assert why(cutting, "b") == "z also reads the log of c, and a query reads sources or logs"


def test_a_cut_that_separates_them_anyway_spares_the_source() -> None:
    topology = pipeline(
        source("a"), source("s"), operator("l", "s"), operator("f", "a"), operator("j", "f", "l"), sink("z", "j")
    )
    cutting = cut(topology, Plan(logs=frozenset("l")), {"f": FUNCTION, "j": FUNCTION})
    assert sorted(groups(cutting)) == ["af", "jz", "sl"]


# -- rules 6 and 7: state


def test_in_update_mode_only_the_end_keeps_state() -> None:
    cutting = cut_one(chain(d={"mode": "update"}), b=STATE, d=STATE)
    assert groups(cutting) == ["ab", "cdz"]
    assert why(cutting, "b") == "b keeps state, and in a query in update mode only the end, d, may do so"


def test_in_append_mode_state_may_follow_state() -> None:
    assert groups(cut_one(chain(), b=WINDOW, c=WINDOW, d=FUNCTION)) == ["abcdz"]


def test_no_state_after_event_time_state_in_a_function() -> None:
    cutting = cut_one(chain(), b=TIMED_FUNCTION, d=STATE)
    assert groups(cutting) == ["ab", "cdz"]
    assert why(cutting, "b") == "b keeps event-time state in a function, so d may not keep state after it"


def test_one_function_with_state_per_query() -> None:
    cutting = cut_one(chain(), b=FUNCTION, c=FUNCTION, d=FUNCTION)
    assert groups(cutting) == ["ab", "c", "dz"]
    assert why(cutting, "b") == "b and c both keep state in a function, and Spark allows one in a query"


# -- rule 8: watermarks


def test_a_foreign_watermark_in_the_query_needs_a_cut() -> None:
    cutting = cut_one(pipeline(*MERGE), a=CLOCK, c=WINDOW, b=CLOCK)
    assert "ac" in groups(cutting)
    assert why(cutting, "c") == "Spark has one watermark per query, and c would have to wait for that of b"


def test_watermarks_that_all_feed_the_state_are_fine() -> None:
    (only,) = cut_one(pipeline(*MERGE), a=CLOCK, b=CLOCK, d=WINDOW).segments
    assert only.name == "z"


def test_a_log_carries_the_watermark_of_its_ancestors() -> None:
    topology = pipeline(
        source("a"),
        source("b"),
        operator("l", "b"),
        operator("c", "a"),
        operator("d", "c"),
        operator("j", "d", "l"),
        sink("z", "j"),
    )
    plan = Plan(logs=frozenset({"l", "c"}))
    assert "dz" not in groups(cut(topology, plan, {"d": WINDOW}))
    cutting = cut(topology, plan, {"d": WINDOW, "b": CLOCK})
    assert why(cutting, "d").endswith("d would have to wait for that of l")
    for none in ({"a": CLOCK}, {"b": replace(CLOCK, mute=True)}, {"b": CLOCK, "l": SILENT}):
        assert not [one for one in cut(topology, plan, {"d": WINDOW, **none}).cuts if one.log == "d"]


def test_a_back_edge_carries_no_event_time() -> None:
    topology = pipeline(
        source("a"), operator("b", "a"), operator("c", "b", "d"), operator("d", "c"), sink("z", "d"), d="id long"
    )
    cutting = cut(topology, Plan(logs=frozenset("a")), {"a": CLOCK, "b": WINDOW})
    assert groups(cutting) == ["a", "bcd", "z"]


def test_a_watermark_is_declared_once() -> None:
    with pytest.raises(
        PipelineError, match=r"operator d declares a watermark, but b before it .* declare it once"
    ):
        cut_one(chain(), b=CLOCK, d=CLOCK)


def test_a_watermark_that_does_not_get_through_is_declared_again_behind() -> None:
    hidden = replace(TIMED_FUNCTION, silenced=frozenset("b"))
    cut_one(chain(), b=CLOCK, c=hidden, d=CLOCK)
    inside = replace(CLOCK, silenced=frozenset("c"), apart=frozenset("c"))
    cut_one(chain(), b=CLOCK, d=inside)
    with pytest.raises(PipelineError, match="operator d declares a watermark, but c before it"):
        cut_one(chain(), b=CLOCK, c=replace(CLOCK, apart=frozenset("b")), d=CLOCK)


# -- rule 9: dead letters


def test_dead_letters_need_sources_that_stand_alone() -> None:
    cutting = cut_one(chain(), dead_letters=True)
    assert groups(cutting) == ["a", "bcdz"]
    assert why(cutting, "a") == "a stands alone, so that its rows can be set aside"


# -- what a cutting tells


def test_cuts_are_in_order_and_segments_are_found_by_name() -> None:
    cutting = cut(chain(), Plan.each(chain()), {})
    assert [one.log for one in cutting.cuts] == ["a", "b", "c", "d"]
    assert cutting.order == ("a", "b", "c", "d", "z")
    assert cutting.segment("c").writes == "c"
    with pytest.raises(PlanError, match="no segment 'x'; there are: a, b, c, d, z"):
        cutting.segment("x")


def test_a_plan_that_is_overridden_is_told_so() -> None:
    topology = chain(c={"mode": "update"})
    assert cut_one(topology).notes == ()
    (note,) = cut(topology, Plan(anchors=frozenset("b")), {}).notes
    assert note.startswith("the plan has no cut behind c, but there is one: c gives its rows in update mode")


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (Plan(anchors=frozenset({"count"})), "the plan's anchors name 'count', which pipeline trending lacks"),
        (Plan(copies=frozenset({"count"})), "the plan's copies name 'count'"),
        (Plan(logs=frozenset({"count"})), "the plan's logs name 'count'"),
        (Plan(epochs_per_batch={"count": 2}), "the plan's epochs_per_batch name 'count'"),
        (Plan(epochs_per_batch={"z": 0}), "segment z 0 epochs per batch: use 1 or more"),
        (Plan(logs=frozenset("z")), "cannot store z: it is a sink"),
    ],
)
def test_a_plan_that_does_not_fit(plan: Plan, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        cut(chain(), plan, {})
