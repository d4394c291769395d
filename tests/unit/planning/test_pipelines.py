"""From a pipeline to a model with its constraints, and from a choice to a plan that Spark can run."""

from __future__ import annotations

import dataclasses
import math
import random
from typing import Any

import pytest
from tests.unit.planning.models import operator as attributes
from tests.unit.topology.shapes import FUNCTION, STATE, WINDOW, chain, groups, operator, pipeline, sink, source

from tidelock.errors import PlanError
from tidelock.planning.choosing import Infeasible
from tidelock.planning.costs import Configuration, costs
from tidelock.planning.model import Model
from tidelock.planning.pipelines import CutFunction, Planned, anchors_of, constrained, costs_of, plan_pipeline
from tidelock.topology import Cutting, Plan, Topology, Traits, cut

PLAIN = {
    "selectivity": 1.0,
    "processing_cost": 1e-3,
    "state_size": 10.0,
    "tuple_size": 1.0,
    "failure_rate": 0.01,
}
SPLIT = pipeline(
    source("a"), operator("b", "a"), operator("c", "b"), operator("d", "b"), sink("y", "c"), sink("z", "d")
)
# The join d computes c and takes b from the log that c reads, too.
JOIN = pipeline(source("a"), operator("b", "a"), operator("c", "b"), operator("d", "b", "c"), sink("z", "d"))
MERGE = pipeline(source("a"), source("s"), operator("b", "a"), operator("d", "b", "s"), sink("z", "d"))
LOOP = pipeline(
    source("a"), operator("b", "a", "c"), operator("c", "b"), operator("d", "c"), sink("z", "d"), c="x long"
)


def measured(topology: Topology, changes: dict[str, dict[str, Any]] | None = None, **fields: Any) -> Model:
    """Attributes as a profile would have them, in which an epoch is a unit of time."""
    operators = tuple(
        dataclasses.replace(
            attributes(node.name, "", PLAIN | (changes or {}).get(node.name, {})),
            inputs=topology.forward_inputs(node.name),
        )
        for node in topology.nodes
    )
    settings = {"scope": "segment", "head_frequency": 1.0, "segment_cost": 0.05, "restart_cost": 1.0} | fields
    return Model(operators, 100.0, 1e-4, **settings)


def cutter(topology: Topology, **traits: Traits) -> CutFunction:
    return lambda plan: cut(topology, plan, traits)


def constraints(topology: Topology, given: Model | None = None, **traits: Traits) -> Model:
    """The model of a pipeline, as the planner of the runtime makes it."""
    batchwise = {name for name, one in traits.items() if one.event_time_state or one.function_state}
    return constrained(given or measured(topology), cut(topology, Plan.one(), traits), frozenset(batchwise))


def planned(topology: Topology, given: Model, budget: float, most: int = 50, **traits: Traits) -> Planned:
    return plan_pipeline(constraints(topology, given, **traits), budget, cutter(topology, **traits), most=most)


def by_name(model: Model, field: str) -> dict[str, Any]:
    return {one.name: getattr(one, field) for one in model.operators}


def names(model: Model, places: frozenset[int]) -> str:
    return "".join(model.operators[place].name for place in sorted(places))


def sizes(cutting: Cutting) -> dict[str, int]:
    return {segment.name: segment.epochs_per_batch for segment in cutting.segments}


# -- constraints


def test_a_plain_chain_has_no_constraints_but_that_its_source_stores_nothing() -> None:
    topology = chain()
    model = constraints(topology)
    assert [one.name for one in model.operators] == [node.name for node in topology.nodes]
    assert by_name(model, "anchor") == dict.fromkeys("abcdz")
    assert by_name(model, "stored_size") == {"a": 0.0, "b": 1.0, "c": 1.0, "d": 1.0, "z": 1.0}
    assert by_name(model, "cut") == dict.fromkeys("abcdz", ())
    assert by_name(model, "every_epoch") == dict.fromkeys("abcdz", False)


def test_the_attributes_and_costs_themselves_stay() -> None:
    given = measured(
        SPLIT, {"b": {"selectivity": 0.3}, "c": {"state_size": 77.0, "commit_cost": 0.2}}, baseline=0.1
    )
    model = constraints(SPLIT, given)
    for field in (*PLAIN, "commit_cost", "input_rate", "inputs"):
        assert by_name(model, field) == by_name(given, field)
    assert dataclasses.replace(model, operators=()) == dataclasses.replace(given, operators=())
    assert model.rates == given.rates


def test_a_model_in_another_order_is_put_into_that_of_the_pipeline() -> None:
    given = measured(SPLIT)
    a, b, c, d, y, z = given.operators
    model = constraints(SPLIT, dataclasses.replace(given, operators=(a, b, d, z, c, y)))
    assert [one.name for one in model.operators] == ["a", "b", "c", "d", "y", "z"]


def test_what_several_operators_read_is_paid_by_the_first_of_them() -> None:
    model = constraints(SPLIT, measured(SPLIT, {"c": {"tuple_size": 3.0}, "d": {"tuple_size": 3.0}}))
    assert by_name(model, "stored_size") == {"a": 0.0, "b": 1.0, "c": 3.0, "d": 0.0, "y": 1.0, "z": 1.0}
    assert model.stores[model.index["d"]] == 0.0
    assert model.fetches[model.index["d"]] == model.fetches[model.index["c"]] > 0.0


def test_operators_behind_a_cut_that_is_forced_are_anchors() -> None:
    model = constraints(SPLIT)
    assert by_name(model, "anchor") == {"a": None, "b": None, "c": True, "d": True, "y": None, "z": None}
    assert names(model, model.forced) == "acd"


def test_an_output_mode_forces_an_anchor() -> None:
    model = constraints(chain(b={"mode": "update"}))
    assert by_name(model, "anchor")["c"] is True


def test_a_join_behind_a_partial_cut_keeps_its_choice_and_reads_that_log_anyway() -> None:
    model = constraints(JOIN)
    assert by_name(model, "cut") == {"a": (), "b": (), "c": (), "d": ("b",), "z": ()}
    assert by_name(model, "anchor") == {"a": None, "b": None, "c": True, "d": None, "z": None}
    assert model.kept[model.index["d"]] == pytest.approx(0.5)
    assert groups(cut(JOIN, Plan.one(), {})) == ["ab", "cdz"]
    assert [names(model, frozenset(part)) for part in model.segments(model.forced)] == ["ab", "cdz"]


def test_a_join_pays_for_the_part_that_is_stored_for_it() -> None:
    model = constraints(JOIN, measured(JOIN, {"c": {"selectivity": 3.0}}))
    assert by_name(model, "stored_size")["d"] == pytest.approx(0.75)


@pytest.mark.parametrize("anchor", [True, False])
def test_what_the_user_declares_of_an_anchor_is_kept(anchor: bool) -> None:
    model = constraints(chain(c={"anchor": anchor}))
    assert by_name(model, "anchor") == {"a": None, "b": None, "c": anchor, "d": None, "z": None}


def test_spark_goes_before_a_user_who_wants_no_anchor() -> None:
    topology = chain(b={"mode": "update"}, c={"anchor": False})
    assert by_name(constraints(topology), "anchor")["c"] is True


def test_what_a_file_says_about_anchors_is_not_what_the_pipeline_says() -> None:
    given = measured(chain(), {"c": {"anchor": True, "stored_size": 9.0, "every_epoch": True}})
    model = constraints(chain(), given)
    assert (model.operators[2].anchor, model.operators[2].stored_size) == (None, 1.0)
    assert model.operators[2].every_epoch is False


@pytest.mark.parametrize("traits", [WINDOW, FUNCTION])
def test_state_that_sees_batches_forces_every_epoch_on_itself_and_all_before_it(traits: Traits) -> None:
    model = constraints(SPLIT, d=traits)
    assert by_name(model, "every_epoch") == {"a": True, "b": True, "c": False, "d": True, "y": False, "z": False}
    assert names(model, model.heads) == "abd"


def test_state_that_only_adds_up_forces_nothing() -> None:
    assert set(by_name(constraints(SPLIT, d=STATE), "every_epoch").values()) == {False}


def test_a_loop_turns_once_an_epoch_and_so_does_what_leads_to_it() -> None:
    model = constraints(LOOP)
    assert by_name(model, "every_epoch") == {"a": True, "b": True, "c": True, "d": False, "z": False}
    assert model.operators[model.index["b"]].inputs == ("a",)


def test_attributes_of_another_pipeline_are_refused_and_it_is_said_what_to_do() -> None:
    given = measured(chain())
    other = pipeline(source("a"), operator("b", "a"), operator("x", "b"), sink("y", "x"))
    with pytest.raises(PlanError) as refused:
        constraints(other, given)
    message = str(refused.value)
    assert message.startswith("the topology file is not one of pipeline trending: ")
    assert "x and y" in message
    assert "c, d and z" in message
    assert message.endswith("Measure it again with `tidelock profile`")


def test_an_operator_that_is_new_or_gone_is_told_alone() -> None:
    given = measured(chain())
    more = dataclasses.replace(given, operators=(*given.operators, attributes("q", "d")))
    less = dataclasses.replace(given, operators=given.operators[:-1])
    with pytest.raises(PlanError, match=r"trending: it has q, too\. Measure it again with `tidelock profile`$"):
        constraints(chain(), more)
    with pytest.raises(PlanError, match=r"trending: z is not in it\. Measure it again with `tidelock profile`$"):
        constraints(chain(), less)


# -- cuttings and their costs


def test_anchors_are_those_who_read_everything_from_logs() -> None:
    model = constraints(JOIN)
    assert names(model, anchors_of(model, cut(JOIN, Plan.one(), {}))) == "ac"
    assert names(model, anchors_of(model, cut(JOIN, Plan(anchors=frozenset("z")), {}))) == "acz"
    assert names(model, anchors_of(model, cut(JOIN, Plan.each(JOIN), {}))) == "abcdz"


def test_the_costs_of_a_cutting_are_those_of_its_anchors_and_batches() -> None:
    model = constraints(chain())
    plan = Plan(anchors=frozenset("cz"), epochs_per_batch={"d": 4, "z": 8})
    cutting = cut(chain(), plan, {})
    assert sizes(cutting) == {"b": 1, "d": 4, "z": 8}
    expected = costs(model, Configuration(frozenset({0, 2, 4}), (1.0, 0.25, 0.125)))
    assert costs_of(model, cutting) == expected
    # Two logs of 100 tuples and a cost of 1e-4; commits of 0.05 + 0.001 for each operator.
    commits = 0.052 + 0.052 / 4 + 0.051 / 8
    assert expected.overhead == pytest.approx(0.02 + commits)


def spent(given: Model, cutting: Cutting) -> float:
    """What a cutting costs, counted by hand: every log is written once, every batch is a commit of its segment."""
    logs = [given.index[one.log] for one in cutting.cuts if cutting.topology.forward_consumers(one.log)]
    writing = sum(given.rates[place] * given.operators[place].selectivity for place in logs) * given.storage_cost
    commits = (
        (given.segment_cost + sum(given.commits[given.index[name]] for name in segment.operators))
        / segment.epochs_per_batch
        for segment in cutting.segments
    )
    return writing + sum(commits)


STORED = {
    "chain": (chain(), "cz"),
    "several readers": (SPLIT, "y"),
    "a join with a log that another pays for": (JOIN, ""),
    "a join that is an anchor": (JOIN, "d"),
    "a source beside a log": (MERGE, "b"),
    "a loop": (LOOP, "z"),
}


@pytest.mark.parametrize("case", STORED)
def test_every_log_is_paid_for_once(case: str) -> None:
    topology, anchors = STORED[case]
    given = measured(topology, {"c": {"selectivity": 3.0}})
    cutting = cut(topology, Plan(anchors=frozenset(anchors)), {})
    assert costs_of(constraints(topology, given), cutting).overhead == pytest.approx(spent(given, cutting))


@pytest.mark.parametrize("budget", [0.1, 0.14, 0.15, 0.16, 0.2, 0.25, 0.5])
def test_a_log_that_only_this_plan_needs_is_paid_from_the_budget(budget: float) -> None:
    """If b reads a log, the source s beside it needs one, too: a query reads sources or logs."""
    failing = {name: {"failure_rate": 1.0} for name in "dz"}
    seldom = {"a": {"selectivity": 0.05}, "b": {"failure_rate": 1.0, "processing_cost": 5e-3}}
    given = measured(MERGE, failing | seldom)
    found = planned(MERGE, given, budget)
    assert found.overhead == pytest.approx(spent(given, found.cutting))
    assert spent(given, found.cutting) <= budget * (1 + 1e-9)


# -- plans


def test_a_generous_budget_cuts_everywhere_and_commits_every_epoch() -> None:
    found = planned(chain(), measured(chain()), 10.0)
    assert groups(found.cutting) == list("abcdz")
    assert set(sizes(found.cutting).values()) == {1}
    assert found.choice.method == "exact"


def test_a_small_budget_cuts_where_it_is_worth_most() -> None:
    """The operator d fails all the time, and what it reads is small."""
    given = measured(chain(), {"c": {"selectivity": 0.01}, "d": {"failure_rate": 5.0}})
    least = costs_of(constraints(chain(), given), cut(chain(), Plan.one(), {})).overhead
    found = planned(chain(), given, least + 0.01)
    assert groups(found.cutting)[0] == "abc"
    assert found.overhead <= least + 0.01


def test_a_budget_that_fits_nothing_is_infeasible() -> None:
    with pytest.raises(Infeasible, match=r"no plan fits a budget of 0\.001"):
        planned(chain(), measured(chain()), 0.001)


def test_what_a_plain_query_costs_is_no_overhead() -> None:
    one = costs_of(constraints(chain()), cut(chain(), Plan.one(), {})).overhead
    found = planned(chain(), measured(chain(), baseline=one), 0.0)
    assert groups(found.cutting) == ["abcdz"]
    assert found.overhead == pytest.approx(0.0)


@pytest.mark.parametrize("anchor", [True, False])
def test_a_plan_keeps_to_what_the_user_declares(anchor: bool) -> None:
    topology = chain(c={"anchor": anchor})
    for budget in (0.2, 10.0):
        found = planned(topology, measured(topology), budget)
        assert ("b" in [one.log for one in found.cutting.cuts]) == anchor
        assert found.cutting.notes == ()


def test_a_method_can_be_chosen() -> None:
    found = plan_pipeline(constraints(chain()), 1.0, cutter(chain()), most=9, method="one-segment")
    assert groups(found.cutting) == ["abcdz"]
    assert found.choice.method == "one-segment"


def test_operators_that_judge_batches_and_what_leads_to_them_take_epochs_one_by_one() -> None:
    topology = chain(b={"anchor": True}, c={"anchor": True}, d={"anchor": True}, z={"anchor": True})
    given = measured(topology, segment_cost=0.2)
    found = planned(topology, given, 0.9, c=WINDOW)
    assert sizes(found.cutting)["a"] == sizes(found.cutting)["b"] == sizes(found.cutting)["c"] == 1
    assert sizes(found.cutting)["z"] > 1
    assert found.cutting.notes == ()


def test_a_reader_takes_whole_entries_of_its_logs() -> None:
    """Left alone, d would take 2 epochs and z 3; z reads what d writes in entries of 2."""
    topology = chain(d={"anchor": True}, z={"anchor": True})
    given = measured(topology, {"z": {"failure_rate": 0.004}})
    found = planned(topology, given, 0.11)
    assert sizes(found.cutting)["d"] > 1
    assert sizes(found.cutting)["z"] % sizes(found.cutting)["d"] == 0


def test_whole_entries_go_with_the_bound_on_batches() -> None:
    """With entries of 3 epochs and batches of at most 4, a reader can take 3, and not 6."""
    topology = chain(d={"anchor": True}, z={"anchor": True})
    for failures in (0.1, 0.03, 0.01, 0.005, 0.001, 0.0005):
        for most in (3, 4, 5, 7):
            given = measured(topology, {"z": {"failure_rate": failures}})
            for budget in (0.12, 0.115, 0.11, 0.105):
                found = planned(topology, given, budget, most=most)
                assert max(sizes(found.cutting).values()) <= most


def test_a_sink_gets_as_many_epochs_at_once_as_it_wants() -> None:
    topology = chain(z={"epochs_per_batch": 5})
    found = planned(topology, measured(topology), 10.0)
    assert sizes(found.cutting)["z"] == 5


def test_a_sink_that_wants_several_epochs_gets_them_from_logs_with_entries_that_fit() -> None:
    topology = chain(d={"anchor": True}, z={"epochs_per_batch": 10})
    for budget in (0.15, 0.11, 0.1, 0.09, 0.08):
        found = planned(topology, measured(topology), budget)
        assert sizes(found.cutting)["z"] == 10
        assert 10 % sizes(found.cutting)["d"] == 0


def test_what_goes_into_a_batch_with_a_window_takes_epochs_one_by_one_too() -> None:
    """In the segment of the window w, the branch f reads the log of e: that log needs an entry for every epoch."""
    topology = pipeline(
        source("a"),
        source("s"),
        operator("w", "a", anchor=True),
        operator("e", "s", anchor=True),
        operator("f", "e", anchor=True),
        operator("d", "w", "f", anchor=False),
        sink("z", "d", anchor=False),
    )
    found = planned(topology, measured(topology), 0.24, w=WINDOW)
    assert groups(found.cutting) == ["a", "s", "e", "wfdz"]
    assert found.cutting.notes == ()
    assert found.overhead == pytest.approx(0.237)  # four segments that commit every epoch, and three logs
    with pytest.raises(Infeasible):
        planned(topology, measured(topology), 0.22, w=WINDOW)


# -- any pipeline


def drawn(seed: int) -> tuple[Topology, dict[str, Traits], Model]:
    """A random pipeline with joins and several readers, some of its operators with state."""
    rng = random.Random(seed)
    letters = "bcdefghijk"[: rng.randint(3, 7)]
    nodes = [source("a")]
    for letter in letters:
        earlier = [node.name for node in nodes]
        nodes.append(operator(letter, *rng.sample(earlier, min(len(earlier), rng.choice([1, 1, 1, 2])))))
    read = {one for node in nodes for one in node.inputs}
    ends = [node.name for node in nodes if node.name not in read]
    topology = pipeline(*nodes, *(sink(f"to_{name}", name) for name in ends))
    traits = {letter: rng.choice([STATE, WINDOW]) for letter in letters if rng.random() < 0.3}
    changes = {
        node.name: {
            "selectivity": rng.uniform(0.2, 1.2),
            "state_size": 10 ** rng.uniform(0, 2.5) if node.name in traits else 0.0,
            "processing_cost": 10 ** rng.uniform(-5, -3),
            "failure_rate": 10 ** rng.uniform(-4, -1),
        }
        for node in topology.nodes
    }
    return topology, traits, measured(topology, changes, segment_cost=rng.uniform(0.01, 0.1))


def budget_of(model: Model, cutting: Cutting, seed: int) -> float:
    return costs_of(model, cutting).overhead + random.Random(seed).uniform(0.01, 0.3)


@pytest.mark.parametrize("seed", range(40))
def test_the_plan_of_any_pipeline_can_be_run_and_keeps_its_promises(seed: int) -> None:
    topology, traits, given = drawn(seed)
    model = constraints(topology, given, **traits)
    one = cut(topology, Plan.one(), traits)
    budget = budget_of(model, one, seed)
    found = plan_pipeline(model, budget, cutter(topology, **traits), most=10**9)
    cutting = found.cutting
    assert found.costs == costs_of(model, cutting)
    assert found.overhead <= budget * (1 + 1e-8)
    assert not [note for note in cutting.notes if "epoch per batch instead" in note]
    least = costs_of(model, one)
    if cutting.segments != one.segments:
        assert found.choice.configuration.anchors <= anchors_of(model, cutting)
    if least.overhead - model.baseline <= budget:
        assert found.costs.recovery <= least.recovery
    size = sizes(cutting)
    for segment in cutting.segments:
        assert size[segment.name] == 1 or not segment.is_head
        assert all(size[segment.name] % size[read.log] == 0 for read in segment.inputs)


@pytest.mark.parametrize("seed", range(40))
def test_the_continuous_choice_is_never_worse_than_one_segment_or_one_for_each(seed: int) -> None:
    """Whole numbers of epochs can lose what frequencies gain, so this holds of the choice before rounding."""
    topology, traits, given = drawn(seed)
    model = constraints(topology, given, **traits)
    simple = [costs_of(model, cut(topology, plan, traits)) for plan in (Plan.one(), Plan.each(topology))]
    for budget in (simple[0].overhead * 1.001, simple[1].overhead * 1.001, simple[1].overhead * 2):
        found = plan_pipeline(model, budget, cutter(topology, **traits), most=10**9)
        fitting = [one.recovery for one in simple if one.overhead <= budget]
        assert found.choice.costs.recovery <= min(fitting, default=math.inf) * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("most", [1, 2, 5])
def test_no_batch_of_any_pipeline_takes_more_than_the_most(seed: int, most: int) -> None:
    topology, traits, given = drawn(seed)
    model = constraints(topology, given, **traits)
    budget = budget_of(model, cut(topology, Plan.one(), traits), seed)
    found = plan_pipeline(model, budget, cutter(topology, **traits), most=most)
    assert max(sizes(found.cutting).values()) <= most


@pytest.mark.parametrize("seed", range(20))
def test_the_plan_of_any_pipeline_pays_for_every_log(seed: int) -> None:
    """Reported costs are those of all the logs there are, also of those that only this plan needs."""
    topology, traits, given = drawn(seed)
    model = constraints(topology, given, **traits)
    some = frozenset(random.Random(seed).sample("bcd", 2))
    for plan in (Plan.one(), Plan.each(topology), Plan(anchors=some)):
        cutting = cut(topology, plan, traits)
        assert costs_of(model, cutting).overhead == pytest.approx(spent(given, cutting))
