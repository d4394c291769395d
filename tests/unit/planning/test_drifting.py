"""When a plan no longer fits: what has changed, and the model as it is now."""

from __future__ import annotations

import dataclasses

import pytest
from tests.unit.planning.models import model
from tests.unit.planning.models import operator as attributes
from tests.unit.topology.shapes import chain, operator, pipeline, sink, source

from tidelock.planning.drifting import THRESHOLD, Drifted, Measured, drift
from tidelock.planning.model import Model
from tidelock.topology import Cutting, Plan, Segment, cut

MEGABYTE = 1e6

# The source a makes b 100 rows; b keeps half of them; c makes four of each.
CUTTING = cut(chain(), Plan(anchors=frozenset("cd")), {})
MODEL = model(
    attributes("a", "", state_size=0.0),
    attributes("b", "a", selectivity=0.5, state_size=0.0),
    attributes("c", "b", selectivity=4.0, state_size=8 * MEGABYTE),
    attributes("d", "c", state_size=2 * MEGABYTE),
    attributes("z", "d", state_size=6 * MEGABYTE, commit_cost=0.5),
)
PLANNED = {
    "b": Measured(100.0, 0.0),
    "c": Measured(50.0, 8 * MEGABYTE),
    "z": Measured(200.0, 8 * MEGABYTE),
}


def seen(**changes: Measured) -> dict[str, Measured]:
    return PLANNED | changes


def incoming(given: Model, segment: Segment) -> float:
    """The rows that come into a segment, from sources and logs."""
    logs = [given.index[read.log] for read in segment.inputs]
    return sum(given.rates[given.index[name]] for name in segment.sources) + sum(
        given.rates[place] * given.operators[place].selectivity for place in logs
    )


def state(given: Model, segment: Segment) -> float:
    return sum(given.operators[given.index[name]].state_size for name in segment.operators)


def told(changes: list[Drifted]) -> list[tuple[str, str]]:
    return [(change.segment, change.attribute) for change in changes]


def check_reproduces(given: Model, cutting: Cutting, measured: dict[str, Measured]) -> None:
    for name, expected in measured.items():
        assert incoming(given, cutting.segment(name)) == pytest.approx(expected.rows_per_second)
        assert state(given, cutting.segment(name)) == pytest.approx(expected.state_bytes)


def test_the_cutting_of_these_tests_is_as_the_model_has_it() -> None:
    assert CUTTING.order == ("b", "c", "z")
    check_reproduces(MODEL, CUTTING, PLANNED)


# -- nothing to tell


def test_what_is_as_it_was_planned_is_no_drift() -> None:
    assert drift(MODEL, CUTTING, PLANNED) == ([], MODEL)


def test_what_is_not_measured_is_as_it_was_planned() -> None:
    assert drift(MODEL, CUTTING, {}) == ([], MODEL)


@pytest.mark.parametrize("factor", [THRESHOLD * 0.999, 1 / THRESHOLD * 1.001, 1.2, 0.8])
def test_below_the_threshold_there_is_no_drift(factor: float) -> None:
    measured = {
        name: Measured(one.rows_per_second * factor, one.state_bytes * factor) for name, one in PLANNED.items()
    }
    assert drift(MODEL, CUTTING, measured) == ([], MODEL)


def test_rows_that_do_not_come_say_nothing_about_what_will() -> None:
    measured = {name: dataclasses.replace(one, rows_per_second=0.0) for name, one in PLANNED.items()}
    assert drift(MODEL, CUTTING, measured) == ([], MODEL)


def test_rows_where_none_were_planned_have_no_ratio() -> None:
    silent = dataclasses.replace(MODEL, input_rate=0.0)
    changes, _ = drift(silent, CUTTING, PLANNED)
    assert changes == []


def test_a_small_state_makes_no_difference_however_it_grows() -> None:
    small = dataclasses.replace(
        MODEL, operators=tuple(dataclasses.replace(one, state_size=10.0) for one in MODEL.operators)
    )
    measured = {name: Measured(one.rows_per_second, 1e5) for name, one in PLANNED.items()}
    assert drift(small, CUTTING, measured) == ([], small)


# -- rows


@pytest.mark.parametrize("factor", [1.6, 10.0, 0.6, 0.01])
def test_a_source_that_gives_more_or_less_changes_the_rate_of_the_head(factor: float) -> None:
    measured = {
        name: dataclasses.replace(one, rows_per_second=one.rows_per_second * factor)
        for name, one in PLANNED.items()
    }
    changes, now = drift(MODEL, CUTTING, measured)
    assert changes == [Drifted("b", "rows per second", 100.0, pytest.approx(100.0 * factor))]
    check_reproduces(now, CUTTING, measured)
    assert now.operators[0].input_rate == pytest.approx(100.0 * factor)
    assert now.operators[1:] == MODEL.operators[1:]
    assert now.input_rate == MODEL.input_rate


def test_a_later_segment_that_gets_more_changes_the_selectivity_before_it() -> None:
    measured = seen(c=Measured(100.0, 8 * MEGABYTE), z=Measured(400.0, 8 * MEGABYTE))
    changes, now = drift(MODEL, CUTTING, measured)
    assert changes == [Drifted("c", "rows per second", 50.0, 100.0)]
    assert now.operators[1].selectivity == pytest.approx(1.0)
    check_reproduces(now, CUTTING, measured)
    assert [one for place, one in enumerate(now.operators) if place != 1] == [
        one for place, one in enumerate(MODEL.operators) if place != 1
    ]


def test_a_change_is_told_where_it_begins_and_where_it_ends() -> None:
    """Twice the rows come in, and what is passed on stays what it was."""
    measured = seen(b=Measured(200.0, 0.0))
    changes, now = drift(MODEL, CUTTING, measured)
    assert changes == [
        Drifted("b", "rows per second", 100.0, 200.0),
        Drifted("c", "rows per second", pytest.approx(100.0), 50.0),
    ]
    check_reproduces(now, CUTTING, measured)


def test_a_segment_that_is_not_measured_follows_the_one_before_it() -> None:
    changes, now = drift(MODEL, CUTTING, {"b": Measured(300.0, 0.0)})
    assert told(changes) == [("b", "rows per second")]
    assert incoming(now, CUTTING.segment("z")) == pytest.approx(600.0)
    assert state(now, CUTTING.segment("z")) == 8 * MEGABYTE


def test_the_sources_of_a_head_grow_together() -> None:
    topology = pipeline(source("a"), source("b"), operator("c", "a", "b"), sink("z", "c"))
    given = model(
        attributes("a", "", input_rate=30.0, state_size=0.0),
        attributes("b", "", state_size=0.0),
        attributes("c", "ab", state_size=0.0),
        attributes("z", "c", state_size=0.0),
    )
    cutting = cut(topology, Plan.one(), {})
    changes, now = drift(given, cutting, {"z": Measured(260.0, 0.0)})
    assert changes == [Drifted("z", "rows per second", 130.0, 260.0)]
    assert [one.input_rate for one in now.operators[:2]] == [pytest.approx(60.0), pytest.approx(200.0)]


def test_two_readers_of_a_log_that_agree_are_one_change() -> None:
    topology = pipeline(source("a"), operator("b", "a"), sink("y", "b"), sink("z", "b"))
    edges = {"a": "", "b": "a", "y": "b", "z": "b"}
    given = model(*(attributes(name, inputs, state_size=0.0) for name, inputs in edges.items()))
    cutting = cut(topology, Plan.one(), {})
    measured = {"b": Measured(100.0, 0.0), "y": Measured(300.0, 0.0), "z": Measured(300.0, 0.0)}
    changes, now = drift(given, cutting, measured)
    assert told(changes) == [("y", "rows per second")]
    assert now.operators[1].selectivity == pytest.approx(3.0)
    check_reproduces(now, cutting, measured)


# -- state


def test_a_state_that_grows_grows_in_every_operator_and_costs_more_to_commit() -> None:
    measured = seen(z=Measured(200.0, 24 * MEGABYTE))
    changes, now = drift(MODEL, CUTTING, measured)
    assert changes == [Drifted("z", "bytes of state", 8 * MEGABYTE, 24 * MEGABYTE)]
    check_reproduces(now, CUTTING, measured)
    assert [one.state_size for one in now.operators[3:]] == pytest.approx([6 * MEGABYTE, 18 * MEGABYTE])
    assert [one.commit_cost for one in now.operators[3:]] == [None, pytest.approx(1.5)]
    assert now.operators[:3] == MODEL.operators[:3]


def test_a_state_that_shrinks_is_told_too() -> None:
    measured = seen(c=Measured(50.0, 4 * MEGABYTE))
    changes, now = drift(MODEL, CUTTING, measured)
    assert told(changes) == [("c", "bytes of state")]
    check_reproduces(now, CUTTING, measured)


def test_a_state_where_there_was_none_belongs_to_the_last_operator() -> None:
    measured = seen(b=Measured(100.0, 5 * MEGABYTE))
    changes, now = drift(MODEL, CUTTING, measured)
    assert changes == [Drifted("b", "bytes of state", 0.0, 5 * MEGABYTE)]
    assert [one.state_size for one in now.operators[:2]] == [0.0, 5 * MEGABYTE]
    check_reproduces(now, CUTTING, measured)


def test_a_new_state_of_a_segment_with_a_sink_belongs_to_what_the_sink_takes() -> None:
    stateless = dataclasses.replace(
        MODEL, operators=tuple(dataclasses.replace(one, state_size=0.0) for one in MODEL.operators)
    )
    _, now = drift(stateless, CUTTING, {"z": Measured(200.0, 5 * MEGABYTE)})
    assert [one.state_size for one in now.operators] == [0.0, 0.0, 0.0, 5 * MEGABYTE, 0.0]


def test_a_new_state_costs_something_to_commit() -> None:
    """A profile says 0 for the commits of an operator that keeps no state; that does not outlive the state."""
    operators = tuple(
        dataclasses.replace(one, commit_cost=0.0) if one.name == "b" else one for one in MODEL.operators
    )
    _, now = drift(dataclasses.replace(MODEL, operators=operators), CUTTING, {"b": Measured(100.0, 5 * MEGABYTE)})
    assert now.commits[1] == pytest.approx(MODEL.storage_cost * 5 * MEGABYTE)


# -- both, and again


def test_rows_and_state_of_all_segments_are_told_together() -> None:
    measured = {
        "b": Measured(400.0, 3 * MEGABYTE),
        "c": Measured(20.0, 80 * MEGABYTE),
        "z": Measured(20.0, 2 * MEGABYTE),
    }
    changes, now = drift(MODEL, CUTTING, measured)
    assert told(changes) == [
        (name, attribute) for name in ("b", "c", "z") for attribute in ("rows per second", "bytes of state")
    ]
    check_reproduces(now, CUTTING, measured)
    assert drift(now, CUTTING, measured) == ([], now)


def test_nothing_else_of_the_model_changes() -> None:
    given = dataclasses.replace(MODEL, baseline=0.1, head_frequency=2.0, segment_cost=0.3, scope="segment")
    _, now = drift(given, CUTTING, seen(b=Measured(1000.0, 0.0)))
    assert dataclasses.replace(now, operators=given.operators) == given
    for before, after in zip(given.operators, now.operators, strict=True):
        kept = {"input_rate": None, "selectivity": 1.0, "state_size": 0.0, "commit_cost": None}
        assert dataclasses.replace(before, **kept) == dataclasses.replace(after, **kept)


def test_a_change_is_told_in_a_sentence() -> None:
    changes, _ = drift(MODEL, CUTTING, seen(b=Measured(1234.5, 0.0), c=Measured(617.0, 8 * MEGABYTE)))
    assert str(changes[0]) == "segment b: 1.23e+03 rows per second, planned for 100"
