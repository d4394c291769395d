"""The topology file: what is read, what is written, and what is refused with the path of the field."""

from __future__ import annotations

import copy
import itertools
import json
from typing import Any

import pytest
from tests.unit.planning.models import CHAIN, DIAMOND, drawn, model, operator

from tidelock.errors import PlanError
from tidelock.planning.document import read_model, write_model
from tidelock.planning.model import Model, Rates

ATTRIBUTES = ("selectivity", "processing_cost", "state_size", "tuple_size", "failure_rate")
DOCUMENT: dict[str, Any] = {
    "input_rate": 3000,
    "storage_cost": 1.6e-6,
    "operators": [
        {
            "name": "tweets",
            "inputs": [],
            "selectivity": 0.5,
            "processing_cost": 1e-5,
            "state_size": 15000,
            "tuple_size": 1,
            "failure_rate": 0.1,
        },
        {
            "name": "words",
            "inputs": ["tweets"],
            "selectivity": 8,
            "processing_cost": 2e-5,
            "state_size": 0,
            "tuple_size": 2,
            "failure_rate": 0.2,
        },
        {
            "name": "counts",
            "inputs": ["words", "tweets"],
            "selectivity": 1,
            "processing_cost": 3e-5,
            "state_size": 20000,
            "tuple_size": 0.1,
            "failure_rate": 0.3,
        },
    ],
}
FULL = model(
    operator("a", "", anchor=True, input_rate=7.0, stored_size=0.0),
    operator("b", "", input_rate=0.0, every_epoch=True),
    operator("c", "ab", anchor=False, cut=("b",), commit_cost=0.25),
    operator("d", "c", stored_size=3.5, commit_cost=0.0),
    segment_cost=0.01,
    restart_cost=2.0,
    scope="segment",
    max_frequency=12.0,
    head_frequency=4.0,
    baseline=0.05,
    rates_of_storage=Rates(log_read=0.002, state_load=0.003),
)


def changed(path: str, value: Any) -> Any:
    """The document with another value at a path such as operators.1.name; ... leaves the field out."""
    document = copy.deepcopy(DOCUMENT)
    *way, last = (int(step) if step.isdecimal() else step for step in path.split("."))
    part: Any = document
    for step in way:
        part = part[step]
    if value is ...:
        del part[last]
    else:
        part[last] = value
    return document


def spelled(path: str) -> str:
    """A path as messages have it."""
    steps = path.split(".")
    return f"operators[{steps[1]}].{steps[2]}" if steps[0] == "operators" else path


def refusal(document: Any) -> str:
    with pytest.raises(PlanError) as refused:
        read_model(document)
    return str(refused.value)


def through_json(given: Model) -> Model:
    return read_model(json.loads(json.dumps(write_model(given), allow_nan=False)))


# -- reading and writing


def test_a_topology_file_gives_numbers_names_and_the_defaults() -> None:
    found = read_model(DOCUMENT)
    assert (found.input_rate, found.storage_cost) == (3000.0, 1.6e-6)
    assert [one.name for one in found.operators] == ["tweets", "words", "counts"]
    assert [one.inputs for one in found.operators] == [(), ("tweets",), ("words", "tweets")]
    for one, part in zip(found.operators, DOCUMENT["operators"], strict=True):
        assert {name: getattr(one, name) for name in ATTRIBUTES} == {name: part[name] for name in ATTRIBUTES}
        assert (one.anchor, one.input_rate, one.stored_size, one.commit_cost) == (None, None, None, None)
        assert (one.cut, one.every_epoch) == ((), False)
    assert (found.segment_cost, found.restart_cost, found.baseline) == (0.0, 0.0, 0.0)
    assert (found.max_frequency, found.head_frequency) == (None, None)
    assert (found.scope, found.rates_of_storage, found.storage) == ("path", Rates(), None)


def test_every_number_is_a_float_however_it_is_written() -> None:
    found = read_model(DOCUMENT)
    numbers = [found.input_rate, *(getattr(one, name) for one in found.operators for name in ATTRIBUTES)]
    assert {type(number) for number in numbers} == {float}


@pytest.mark.parametrize(
    "given",
    [FULL, CHAIN, DIAMOND, drawn("dag", 1, n=9), drawn("tree", 2, scope="segment", head_frequency=2.0)],
    ids=["all fields", "chain", "diamond", "random dag", "random tree"],
)
def test_what_is_written_is_read_as_the_same_model(given: Model) -> None:
    assert through_json(given) == given
    assert write_model(through_json(given)) == write_model(given)


def test_every_optional_field_is_written() -> None:
    document = write_model(FULL)
    assert {name: value for name, value in document.items() if name != "operators"} == {
        "input_rate": 100.0,
        "storage_cost": 0.01,
        "segment_cost": 0.01,
        "restart_cost": 2.0,
        "scope": "segment",
        "baseline": 0.05,
        "log_read_cost": 0.002,
        "state_load_cost": 0.003,
        "max_frequency": 12.0,
        "head_frequency": 4.0,
    }
    first, second, third, fourth = document["operators"]
    assert (first["anchor"], first["input_rate"], first["stored_size"]) == (True, 7.0, 0.0)
    assert (second["input_rate"], second["every_epoch"]) == (0.0, True)
    assert (third["anchor"], third["cut"], third["commit_cost"]) == (False, ["b"], 0.25)
    assert (fourth["stored_size"], fourth["commit_cost"]) == (3.5, 0.0)


def test_what_was_not_given_is_not_written() -> None:
    document = write_model(read_model(DOCUMENT))
    assert set(document) == {
        "input_rate",
        "storage_cost",
        "segment_cost",
        "restart_cost",
        "scope",
        "operators",
    }
    assert {name for part in document["operators"] for name in part} == {"name", "inputs", *ATTRIBUTES}


def test_unknown_fields_are_left_alone() -> None:
    document = copy.deepcopy(DOCUMENT)
    document.update(measured={"when": "in May"}, operator=[], units="seconds")
    document["operators"][0].update(sources=["a guess"], state_sizes=-1)
    assert read_model(document) == read_model(DOCUMENT)


@pytest.mark.parametrize("field", ["anchor", "input_rate", "stored_size", "commit_cost"])
def test_null_is_as_good_as_nothing_for_an_operator(field: str) -> None:
    assert read_model(changed(f"operators.0.{field}", None)) == read_model(DOCUMENT)


@pytest.mark.parametrize("field", ["max_frequency", "head_frequency", "log_read_cost", "state_load_cost"])
def test_null_is_as_good_as_nothing_for_the_file(field: str) -> None:
    assert read_model(changed(field, None)) == read_model(DOCUMENT)


def test_a_source_may_leave_out_its_inputs() -> None:
    assert read_model(changed("operators.0.inputs", ...)) == read_model(DOCUMENT)


# -- the order


def ordered(*parts: tuple[str, str]) -> str:
    """The order in which operators with names of one letter end up."""
    operators = [{**DOCUMENT["operators"][0], "name": name, "inputs": list(inputs)} for name, inputs in parts]
    return "".join(one.name for one in read_model({**DOCUMENT, "operators": operators}).operators)


@pytest.mark.parametrize(
    "parts",
    [
        [("z", ""), ("y", "z"), ("a", "y")],
        [("z", ""), ("y", ""), ("b", "y"), ("a", "z")],
        [("d", ""), ("c", "d"), ("b", "d"), ("a", "bc")],
    ],
)
def test_an_order_that_has_inputs_first_is_kept(parts: list[tuple[str, str]]) -> None:
    assert ordered(*parts) == "".join(name for name, _ in parts)


def test_inputs_that_come_later_are_put_first() -> None:
    assert ordered(("c", "b"), ("b", "a"), ("a", "")) == "abc"
    assert ordered(("d", "bc"), ("a", ""), ("c", "a"), ("b", "a")) == "acbd"
    assert ordered(("b", "a"), ("x", ""), ("a", ""), ("y", "x")) == "xaby"


def test_a_sorted_model_is_written_in_its_order_and_stays_there() -> None:
    document = {**DOCUMENT, "operators": list(reversed(DOCUMENT["operators"]))}
    found = read_model(document)
    assert [one.name for one in found.operators] == ["tweets", "words", "counts"]
    assert through_json(found) == found


# -- what is no topology


@pytest.mark.parametrize("document", [[], 3, "operators", None, True])
def test_what_is_no_object(document: Any) -> None:
    assert refusal(document).startswith("topology: a JSON object is needed, not ")


@pytest.mark.parametrize("operators", [..., None, [], {}, "tweets", 3])
def test_a_topology_without_operators(operators: Any) -> None:
    assert refusal(changed("operators", operators)) == (
        "operators: a topology has a list of at least one operator"
    )


@pytest.mark.parametrize("part", [None, "tweets", 3, []])
def test_an_operator_that_is_no_object(part: Any) -> None:
    assert refusal(changed("operators.1", part)).startswith("operators[1]: a JSON object is needed, not ")


REQUIRED = ["input_rate", "storage_cost", *(f"operators.1.{name}" for name in ATTRIBUTES)]
NUMBERS = [
    *REQUIRED,
    "segment_cost",
    "restart_cost",
    "log_read_cost",
    "state_load_cost",
    "baseline",
    "max_frequency",
    "head_frequency",
    "operators.0.input_rate",
    "operators.1.stored_size",
    "operators.2.commit_cost",
]


@pytest.mark.parametrize("path", REQUIRED)
@pytest.mark.parametrize("value", [..., None])
def test_a_number_that_is_missing(path: str, value: Any) -> None:
    assert refusal(changed(path, value)).startswith(f"{spelled(path)}: this field is missing")


@pytest.mark.parametrize("path", NUMBERS)
@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), float("-inf"), -1, -1e-9, True, False, "3", [], {}, 10**400, 1e101]
)
def test_what_is_no_number(path: str, value: Any) -> None:
    message = refusal(changed(path, value))
    assert message.startswith(f"{spelled(path)}: a finite number of at least 0 is needed, not ")
    assert len(message) < 130


@pytest.mark.parametrize("name", [..., None, "", 3, ["tweets"]])
def test_an_operator_without_a_name(name: Any) -> None:
    assert refusal(changed("operators.1.name", name)).startswith("operators[1].name: every operator has a name")


def test_a_name_that_is_used_twice_is_told_with_both_places() -> None:
    message = refusal(changed("operators.2.name", "tweets"))
    assert message == "operators[2].name: 'tweets' is also the name of operators[0]"


@pytest.mark.parametrize("inputs", [None, "tweets", 3, {}, [3], [None], ["tweets", ["words"]]])
def test_inputs_that_are_no_list_of_names(inputs: Any) -> None:
    assert refusal(changed("operators.1.inputs", inputs)).startswith("operators[1].inputs: a list of operators'")


def test_an_input_that_is_not_there_is_told_with_the_nearest_name() -> None:
    message = refusal(changed("operators.2.inputs", ["words", "tweet"]))
    assert message == "operators[2].inputs[1]: there is no operator 'tweet'; did you mean 'tweets'?"


def test_an_input_that_is_like_no_other_is_told_with_all_names() -> None:
    message = refusal(changed("operators.2.inputs", ["zzz"]))
    assert message.startswith("operators[2].inputs[0]: there is no operator 'zzz'; ")
    assert all(name in message for name in ("tweets", "words", "counts"))


def test_an_input_that_is_read_twice() -> None:
    message = refusal(changed("operators.2.inputs", ["words", "words"]))
    assert message.startswith("operators[2].inputs: counts reads one operator twice")


def test_an_operator_that_reads_itself() -> None:
    message = refusal(changed("operators.1.inputs", ["words"]))
    assert message.startswith("operators[1].inputs: a cycle, words -> words: ")


def test_a_cycle_is_told_with_the_names_in_it_and_no_others() -> None:
    message = refusal(changed("operators.1.inputs", ["tweets", "counts"]))
    path, _, rest = message.partition(": a cycle, ")
    circle = rest.partition(": ")[0].split(" -> ")
    assert path in ("operators[1].inputs", "operators[2].inputs")
    assert circle[0] == circle[-1] == DOCUMENT["operators"][int(path[10])]["name"]
    assert set(circle) == {"words", "counts"}


def test_a_cycle_is_told_in_the_direction_in_which_data_would_flow() -> None:
    """As in the message for a pipeline: a -> b says that b reads a."""
    parts = {"a": ["c"], "b": ["a"], "c": ["b"]}
    operators = [{**DOCUMENT["operators"][0], "name": name, "inputs": inputs} for name, inputs in parts.items()]
    circle = refusal({**DOCUMENT, "operators": operators}).split(": ")[1].removeprefix("a cycle, ").split(" -> ")
    assert all(before in parts[after] for before, after in itertools.pairwise(circle))


@pytest.mark.parametrize("anchor", [1, 0, "true", "yes", [], 1.0])
def test_an_anchor_that_is_neither_true_nor_false(anchor: Any) -> None:
    message = refusal(changed("operators.1.anchor", anchor))
    assert message == f"operators[1].anchor: true, false or null is needed, not {anchor!r}"


def test_a_source_cannot_be_kept_from_being_an_anchor() -> None:
    message = refusal(changed("operators.0.anchor", False))
    assert message.startswith("operators[0].anchor: tweets is a source")
    assert read_model(changed("operators.0.anchor", True)).operators[0].anchor is True


def test_only_a_source_has_an_input_rate() -> None:
    assert refusal(changed("operators.1.input_rate", 5)).startswith(
        "operators[1].input_rate: only a source has one"
    )
    assert read_model(changed("operators.0.input_rate", 5)).rates[0] == 5.0


@pytest.mark.parametrize("scope", ["paths", "", None, 3, ["path"], "Segment"])
def test_a_scope_that_is_none(scope: Any) -> None:
    assert refusal(changed("scope", scope)) == f"scope: 'path' or 'segment' is needed, not {scope!r}"


@pytest.mark.parametrize("cut", ["words", None, 3, {}, ["word"], ["counts"], [3], [["words"]]])
def test_a_cut_that_is_no_list_of_inputs(cut: Any) -> None:
    message = refusal(changed("operators.2.cut", cut))
    assert message.startswith("operators[2].cut: a list of some of the inputs of counts is needed, not ")


def test_a_cut_that_names_an_input_twice() -> None:
    assert refusal(changed("operators.2.cut", ["words", "words"])).startswith("operators[2].cut: ")


@pytest.mark.parametrize("value", ["yes", 1, 0, []])
def test_every_epoch_that_is_neither_true_nor_false(value: Any) -> None:
    assert refusal(changed("operators.1.every_epoch", value)).startswith("operators[1].every_epoch: ")


@pytest.mark.parametrize("field", ["max_frequency", "head_frequency"])
def test_a_frequency_of_nothing_has_no_plan_and_is_refused(field: str) -> None:
    assert refusal(changed(field, 0)).startswith(f"{field}: ")


def test_a_long_value_is_told_in_short() -> None:
    assert len(refusal(changed("scope", "s" * 1000))) < 100
