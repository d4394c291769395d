"""Plans, and plans as JSON documents."""

import json
from typing import Any

import pytest
from tests.unit.topology.shapes import STATE, chain, groups, operator, pipeline, sink, source

from tidelock.errors import PlanError
from tidelock.topology import Plan, cut

MERGE = pipeline(source("a"), operator("b", "a"), source("c"), operator("d", "b", "c"), sink("z", "d"))
SPLIT = pipeline(
    source("a"), operator("b", "a"), operator("c", "b"), operator("d", "b"), sink("y", "c"), sink("z", "d")
)


def test_one_asks_for_nothing_and_each_for_everything() -> None:
    assert Plan.one() == Plan()
    assert Plan.each(chain()).anchors == {"b", "c", "d", "z"}


def test_a_document_says_what_a_cutting_is() -> None:
    cutting = cut(SPLIT, Plan(copies=frozenset("b"), epochs_per_batch={"z": 3}), {"d": STATE})
    document = Plan.to_document(cutting)
    assert document == {
        "segments": [
            {"anchors": [], "operators": ["a"], "epochs_per_batch": 1},
            {"anchors": ["b"], "operators": ["b", "c", "y"], "epochs_per_batch": 1},
            {"anchors": ["b"], "operators": ["b", "d", "z"], "epochs_per_batch": 3},
        ],
        "copies": ["b"],
    }
    again = Plan.from_document(json.loads(json.dumps(document)), SPLIT)
    assert cut(SPLIT, again, {"d": STATE}).segments == cutting.segments


def test_what_feeds_only_a_copy_may_be_a_copy_too() -> None:
    topology = pipeline(source("s"), operator("a", "s"), *SPLIT.nodes[1:])
    cutting = cut(topology, Plan(copies=frozenset("ab")), {})
    assert groups(cutting) == ["s", "abcy", "abdz"]
    document = Plan.to_document(cutting)
    assert document["copies"] == ["a", "b"]
    assert cut(topology, Plan.from_document(document, topology), {}).segments == cutting.segments


def test_anchors_follow_from_the_groups() -> None:
    plan = Plan.from_document({"segments": [{"operators": ["a", "b"]}, {"operators": ["c", "d", "z"]}]}, chain())
    assert plan == Plan(anchors=frozenset("c"))


def test_a_group_may_read_one_input_and_compute_the_other() -> None:
    fields = {"segments": [{"operators": ["a", "b"]}, {"operators": ["c", "d", "z"], "epochs_per_batch": 1}]}
    plan = Plan.from_document(fields, MERGE)
    assert plan == Plan(logs=frozenset("b"), epochs_per_batch={"z": 1})
    cutting = cut(MERGE, plan, {})
    assert groups(cutting) == ["ab", "c", "dz"]
    (note,) = cutting.notes
    assert note.startswith("the plan has no cut behind c, but there is one: z also reads the log of b")


def test_anchors_alone_are_enough() -> None:
    plan = Plan.from_document({"segments": [{"anchors": ["c"], "frequency": 0.2}], "overhead": 0.1}, chain())
    assert plan == Plan(anchors=frozenset("c"))


def test_a_refusal_wins_over_a_group() -> None:
    topology = chain(c={"anchor": False})
    plan = Plan.from_document({"segments": [{"operators": ["a", "b"]}, {"operators": ["c", "d", "z"]}]}, topology)
    assert groups(cut(topology, plan, {})) == ["abcdz"]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ([], r"^plan: expected an object"),
        ({}, r"^segments: expected a list, found None"),
        ({"segments": ["a"]}, r"^segments\[0\]: expected an object, found 'a'"),
        ({"segments": [{}]}, r"^segments\[0\]: name the segment's operators"),
        ({"segments": [{"operators": "a"}]}, r"^segments\[0\].operators: expected a list"),
        ({"segments": [{"operators": []}]}, r"^segments\[0\].operators: a segment has at least one"),
        ({"segments": [{"operators": ["a", "bb"]}]}, r"^segments\[0\].operators\[1\]: .* has no 'bb'"),
        ({"segments": [{"operators": [["a"]]}]}, r"^segments\[0\].operators\[0\]: .* has no \['a'\]"),
        ({"segments": [{"anchors": [7]}]}, r"^segments\[0\].anchors\[0\]: .* has no 7"),
        ({"segments": [], "copies": ["q"]}, r"^copies\[0\]: pipeline trending has no 'q'"),
        (
            {"segments": [{"operators": ["a"]}, {"operators": ["a", "b"]}]},
            r"^segments\[1\].operators: 'a' is in segments\[0\] already",
        ),
        *(
            (
                {"segments": [{"operators": ["a"], "epochs_per_batch": bad}]},
                r"^segments\[0\].epochs_per_batch: .* is not a whole number of at least 1",
            )
            for bad in (0, 1.5, "2", True)
        ),
        (
            {"segments": [{"anchors": ["b"], "epochs_per_batch": 2}]},
            r"^segments\[0\].operators: needed to know which segment takes 2",
        ),
    ],
)
def test_a_bad_document_is_named_by_its_path(fields: Any, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        Plan.from_document(fields, chain())
