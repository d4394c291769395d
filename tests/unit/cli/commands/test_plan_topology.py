"""`tidelock plan --topology FILE --budget B`: answers, refusals and exit codes, without any Spark."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.planning.models import CHAIN, DIAMOND, TREE, drawn

from tidelock.cli.command import main
from tidelock.cli.exits import BAD, GOOD, IMPOSSIBLE
from tidelock.planning.choosing import METHODS, PlanSettings, choose, least_budget
from tidelock.planning.document import write_model
from tidelock.planning.model import Model

EXAMPLE = Path(__file__).parents[4] / "examples" / "segment_backup.json"

Write = Callable[[Any], str]
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def written(tmp_path: Path) -> Write:
    """Write a model, a document or a text into a topology file."""

    def write(content: Any) -> str:
        path = tmp_path / "topology.json"
        document = write_model(content) if isinstance(content, Model) else content
        path.write_text(document if isinstance(document, str) else json.dumps(document), encoding="utf-8")
        return str(path)

    return write


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")


def plan(*options: object) -> int:
    return main(["plan", *map(str, options)])


def answered(capsys: Capture) -> Any:
    """The one JSON object that was printed; no value in it is NaN or infinite."""
    told = capsys.readouterr()
    assert told.err == ""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(told.out, parse_constant=refuse)


def refused(capsys: Capture) -> str:
    """What was told on standard error: one sentence, and no stack trace."""
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("tidelock: ")
    assert "Traceback" not in told.err
    assert told.err.count("\n") == 1
    return told.err


# -- answers for machines


@pytest.mark.parametrize("given", [CHAIN, TREE, DIAMOND, drawn("dag", 3, n=8)])
def test_machines_get_the_contract(given: Model, written: Write, capsys: Capture) -> None:
    budget = least_budget(given)[0] + 2.0
    assert plan("--topology", written(given), "--budget", budget, "--json") == GOOD
    told = answered(capsys)
    choice = choose(given, budget)
    assert (told["feasible"], told["method"], told["budget"], told["gap"]) == (True, "exact", budget, 0.0)
    assert told["overhead"] == pytest.approx(choice.costs.overhead)
    assert told["expected_recovery_time"] == pytest.approx(choice.costs.recovery)
    assert told["planning_seconds"] >= 0
    members = given.segments(choice.configuration.anchors)
    assert [segment["operators"] for segment in told["segments"]] == [
        [given.operators[place].name for place in part] for part in members
    ]
    for segment, frequency in zip(told["segments"], choice.configuration.frequencies, strict=True):
        assert set(segment["anchors"]) <= set(segment["operators"])
        assert segment["frequency"] == pytest.approx(frequency)
    assert not {"reasons", "comparison"} & set(told)


def test_a_file_as_the_design_has_it_is_enough(written: Write, capsys: Capture) -> None:
    document = {
        "input_rate": 3000,
        "storage_cost": 1.6e-6,
        "operators": [
            {
                "name": "split",
                "inputs": [],
                "selectivity": 0.5,
                "processing_cost": 1e-5,
                "state_size": 15000,
                "tuple_size": 1,
                "failure_rate": 0.1,
            }
        ],
    }
    assert plan("--topology", written(document), "--budget", "0.1", "--json") == GOOD
    told = answered(capsys)
    # 3000 tuples are stored for 0.0048; the rest of the budget commits 15000 for 0.024.
    frequency = (0.1 - 0.0048) / 0.024
    assert told["segments"] == [
        {"anchors": ["split"], "operators": ["split"], "frequency": pytest.approx(frequency)}
    ]
    assert told["overhead"] == pytest.approx(0.1)
    assert told["expected_recovery_time"] == pytest.approx(0.1 * (0.024 + (0.03 + 0.0048) / frequency))


def test_a_commit_that_costs_nothing_has_no_frequency(written: Write, capsys: Capture) -> None:
    document = write_model(CHAIN)
    for part in document["operators"]:
        part["state_size"] = 0.0
    assert plan("--topology", written(document), "--budget", "2.5", "--json") == GOOD
    assert {segment["frequency"] for segment in answered(capsys)["segments"]} == {None}


def test_a_share_can_be_given_in_percent(written: Write, capsys: Capture) -> None:
    assert plan("--topology", written(CHAIN), "--budget", "400%", "--json") == GOOD
    assert answered(capsys)["budget"] == 4.0


def test_a_budget_that_fits_nothing_is_an_answer_for_machines(written: Write, capsys: Capture) -> None:
    assert plan("--topology", written(CHAIN), "--budget", "10%", "--json") == BAD
    told = answered(capsys)
    assert (told["feasible"], told["budget"], told["operator"]) == (False, 0.1, "a")
    assert told["least_budget"] == pytest.approx(2.0)
    assert "it has to be above 2" in told["reason"]


def test_a_method_that_finds_nothing_is_an_answer_for_machines_too(written: Write, capsys: Capture) -> None:
    given = ["--topology", written(CHAIN), "--budget", "2.9", "--method", "each-segment", "--json"]
    assert plan(*given) == BAD
    told = answered(capsys)
    assert (told["feasible"], told["method"], told["least_budget"]) == (False, "each-segment", None)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_can_be_asked(method: str, written: Write, capsys: Capture) -> None:
    assert plan("--topology", written(CHAIN), "--budget", "6", "--method", method, "--json") == GOOD
    told = answered(capsys)
    assert told["method"] == method
    assert told["expected_recovery_time"] == pytest.approx(choose(CHAIN, 6.0, method).costs.recovery)


def test_the_tree_method_takes_steps_frequencies_and_the_largest(written: Write, capsys: Capture) -> None:
    options = ["--method", "tree-dp", "--steps", 20, "--frequencies", 15, "--max-frequency", 7.5]
    assert plan("--topology", written(TREE), "--budget", "6", *options, "--json") == GOOD
    told = answered(capsys)
    expected = choose(TREE, 6.0, "tree-dp", PlanSettings(steps=20, frequencies=15, max_frequency=7.5))
    assert told["expected_recovery_time"] == pytest.approx(expected.costs.recovery)
    assert [segment["frequency"] for segment in told["segments"]] == list(expected.configuration.frequencies)
    for segment in told["segments"]:
        assert segment["frequency"] * 15 / 7.5 == pytest.approx(round(segment["frequency"] * 15 / 7.5))


def test_machines_get_reasons_and_a_comparison_if_they_ask(written: Write, capsys: Capture) -> None:
    assert plan("--topology", written(TREE), "--budget", "3.2", "--json", "--explain", "--compare") == GOOD
    told = answered(capsys)
    assert [reason["operator"] for reason in told["reasons"]] == ["a", "b", "c"]
    assert [set(reason) for reason in told["reasons"]] == [{"operator", "anchor", "why"}] * 3
    assert told["reasons"][0]["anchor"] is True
    assert told["reasons"][0]["why"].startswith("a source")
    found = {one["method"]: one for one in told["comparison"]}
    assert list(found) == ["exact", "tree-dp", "one-segment", "each-segment"]
    assert found["exact"]["expected_recovery_time"] == told["expected_recovery_time"]
    assert found["exact"]["overhead"] == told["overhead"]
    assert found["exact"]["segments"] == len(told["segments"])
    for one in found.values():
        assert one["feasible"] is False or one["expected_recovery_time"] >= told["expected_recovery_time"] * 0.999


def test_a_comparison_says_of_a_method_that_it_finds_nothing(written: Write, capsys: Capture) -> None:
    assert plan("--topology", written(CHAIN), "--budget", "2.9", "--json", "--compare") == GOOD
    found = {one["method"]: one for one in answered(capsys)["comparison"]}
    assert found["each-segment"]["feasible"] is False
    assert "each-segment finds no plan" in found["each-segment"]["reason"]


# -- answers for people


def test_people_see_segments_overhead_and_recovery(written: Write, capsys: Capture) -> None:
    assert plan("--topology", written(CHAIN), "--budget", "4") == GOOD
    told = capsys.readouterr()
    choice = choose(CHAIN, 4.0)
    assert told.err == ""
    header, *rest = told.out.splitlines()
    assert header.split() == ["segment", "anchors", "operators", "commits", "overhead", "recovery"]
    assert len(rest) == len(CHAIN.segments(choice.configuration.anchors)) + 1
    assert rest[-1] == (
        f"overhead {choice.costs.overhead:.4g} of a budget of 4; "
        f"expected recovery time {choice.costs.recovery:.4g} (exact, proven optimal)"
    )


def test_people_see_reasons_and_a_comparison_if_they_ask(written: Write, capsys: Capture) -> None:
    assert plan("--topology", written(CHAIN), "--budget", "2.9", "--explain", "--compare") == GOOD
    page = capsys.readouterr().out
    assert "a source: its input is where everything can be replayed from" in page
    assert "storing its input costs 0.5, and with" in page
    for method in METHODS:
        assert f"\n{method} " in page
    assert "no plan" in page


def test_people_are_told_a_commit_that_costs_nothing(written: Write, capsys: Capture) -> None:
    document = write_model(CHAIN)
    for part in document["operators"]:
        part["state_size"] = 0.0
    assert plan("--topology", written(document), "--budget", "2.5") == GOOD
    assert " any " in capsys.readouterr().out


def test_names_that_look_like_markup_are_shown_as_they_are(written: Write, capsys: Capture) -> None:
    document = write_model(CHAIN)
    document["operators"][0]["name"] = "[bold]"
    document["operators"][1]["inputs"] = ["[bold]"]
    assert plan("--topology", written(document), "--budget", "4", "--explain") == GOOD
    assert capsys.readouterr().out.count("[bold]") >= 2


def test_a_budget_that_fits_nothing_is_told_to_people(written: Write, capsys: Capture) -> None:
    assert plan("--topology", written(CHAIN), "--budget", "1") == IMPOSSIBLE
    assert refused(capsys) == (
        "tidelock: no plan fits a budget of 1: it has to be above 2, most of which a costs\n"
    )


# -- files

JSON = pytest.mark.parametrize("form", [["--json"], []], ids=["json", "people"])


@JSON
def test_a_file_that_is_not_there(form: list[str], tmp_path: Path, capsys: Capture) -> None:
    assert plan("--topology", tmp_path / "no.json", "--budget", "1", *form) == IMPOSSIBLE
    message = refused(capsys)
    assert f"there is no topology file {tmp_path / 'no.json'}" in message
    assert "tidelock profile" in message


@JSON
def test_a_directory_is_no_file(form: list[str], tmp_path: Path, capsys: Capture) -> None:
    assert plan("--topology", tmp_path, "--budget", "1", *form) == IMPOSSIBLE
    assert str(tmp_path) in refused(capsys)


@JSON
@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"operators: 3", b'{"input_rate": 1,}', b"\xff\xfe", b"[" * 200_000, b"[" + b"9" * 5000 + b"]"],
    ids=["empty", "half", "yaml", "comma", "bytes", "deep", "digits"],
)
def test_a_file_that_is_not_json(content: bytes, form: list[str], tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "topology.json"
    path.write_bytes(content)
    assert plan("--topology", path, "--budget", "1", *form) == IMPOSSIBLE
    assert f"{path} is not JSON: " in refused(capsys)


@JSON
@pytest.mark.parametrize(
    ("path", "value", "complaint"),
    [
        ("input_rate", -1, "input_rate: a finite number of at least 0 is needed, not -1"),
        ("storage_cost", float("nan"), "storage_cost: a finite number of at least 0 is needed, not nan"),
        ("operators", [], "operators: a topology has a list"),
        ("operators.1.selectivity", "much", "operators[1].selectivity: a finite number"),
        ("operators.1.inputs", ["x"], "operators[1].inputs[0]: there is no operator 'x'"),
        ("operators.2.name", "a", "operators[2].name: 'a' is also the name of operators[0]"),
        ("operators.0.inputs", ["c"], "operators["),
    ],
)
def test_a_field_that_is_wrong_is_told_with_the_file_and_its_path(
    path: str, value: Any, complaint: str, form: list[str], written: Write, capsys: Capture
) -> None:
    document = write_model(CHAIN)
    *way, last = (int(step) if step.isdecimal() else step for step in path.split("."))
    part: Any = document
    for step in way:
        part = part[step]
    part[last] = value
    file = written(document)
    assert plan("--topology", file, "--budget", "5", *form) == IMPOSSIBLE
    assert refused(capsys).startswith(f"tidelock: {file}: {complaint}")


@pytest.mark.parametrize("document", ["[]", "3", '"operators"', "null"])
def test_a_file_with_something_else(document: str, written: Write, capsys: Capture) -> None:
    assert plan("--topology", written(document), "--budget", "5", "--json") == IMPOSSIBLE
    assert "topology: a JSON object is needed" in refused(capsys)


# -- options


@pytest.mark.parametrize("options", [[], ["--json"], ["--budget", "0.1"], ["--topology", "t.json"]])
def test_neither_a_pipeline_nor_a_topology_with_a_budget(options: list[str], capsys: Capture) -> None:
    assert plan(*options) == IMPOSSIBLE
    assert "name a pipeline (FILE.py), or a topology and a budget" in refused(capsys)


@pytest.mark.parametrize("budget", ["-1", "-10%", "nan", "inf", "much", "", "%"])
def test_what_is_no_budget(budget: str, written: Write, capsys: Capture) -> None:
    with pytest.raises(SystemExit) as left:
        plan("--topology", written(CHAIN), f"--budget={budget}")
    assert left.value.code == IMPOSSIBLE
    told = capsys.readouterr()
    assert told.out == ""
    assert f"{budget!r} is not a share of time, such as 0.1 or 10%" in told.err


def test_minus_one_is_refused_as_a_word_of_its_own(written: Write, capsys: Capture) -> None:
    with pytest.raises(SystemExit) as left:
        plan("--topology", written(CHAIN), "--budget", "-1")
    assert left.value.code == IMPOSSIBLE
    assert "'-1' is not a share of time" in capsys.readouterr().err


def test_a_plan_and_a_budget_are_two_questions(written: Write, capsys: Capture) -> None:
    assert plan("--topology", written(CHAIN), "--budget", "4", "--plan", "one") == IMPOSSIBLE
    assert "--plan says the plan and --budget asks for one" in refused(capsys)


@pytest.mark.parametrize("options", [["--explain"], ["--compare"], ["--method", "chain-dp"]])
def test_what_is_about_a_budget_needs_one(options: list[str], capsys: Capture) -> None:
    assert plan("jobs.py", *options) == IMPOSSIBLE
    assert "add --budget 0.1" in refused(capsys)


@pytest.mark.parametrize(
    "options", [["jobs.py", "--budget", "0.1"], ["jobs.py"], ["--topology", "t.json", "--budget", "0.1"]]
)
def test_to_apply_a_plan_needs_a_home_and_a_pipeline(options: list[str], capsys: Capture) -> None:
    assert plan(*options, "--apply") == IMPOSSIBLE
    assert "--apply changes the plan of a home: name the pipeline and give --home DIR" in refused(capsys)


def test_a_home_without_its_pipeline_cannot_get_a_plan(written: Write, tmp_path: Path, capsys: Capture) -> None:
    given = ["--topology", written(CHAIN), "--budget", "4", "--apply", "--home", tmp_path]
    assert plan(*given) == IMPOSSIBLE
    assert "--apply changes the plan of a home: name the pipeline" in refused(capsys)


@JSON
def test_a_method_that_does_not_fit_says_what_to_do(form: list[str], written: Write, capsys: Capture) -> None:
    assert plan("--topology", written(TREE), "--budget", "4", "--method", "chain-dp", *form) == IMPOSSIBLE
    assert "chain-dp plans chains, but b and c read a: use the method exact" in refused(capsys)


def test_a_method_that_there_is_not(written: Write, capsys: Capture) -> None:
    with pytest.raises(SystemExit) as left:
        plan("--topology", written(CHAIN), "--budget", "4", "--method", "guess")
    assert left.value.code == IMPOSSIBLE
    told = capsys.readouterr().err
    assert all(method in told for method in ("guess", *METHODS))


@pytest.mark.parametrize("option", ["--steps", "--frequencies"])
@pytest.mark.parametrize("value", ["0", "-1", "2.5", "many"])
def test_a_number_of_steps_that_is_none(option: str, value: str, written: Write, capsys: Capture) -> None:
    with pytest.raises(SystemExit) as left:
        plan("--topology", written(TREE), "--budget", "4", "--method", "tree-dp", f"{option}={value}")
    assert left.value.code == IMPOSSIBLE
    assert f"{value!r} is not a whole number of at least 1" in capsys.readouterr().err


@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf"])
def test_a_largest_frequency_that_is_none(value: str, written: Write, capsys: Capture) -> None:
    given = ["--topology", written(TREE), "--budget", "4", "--method", "tree-dp", f"--max-frequency={value}"]
    assert plan(*given) == IMPOSSIBLE
    assert "max_frequency: a finite number above 0 is needed" in refused(capsys)


# -- the cost model of Segment Backup


def test_the_example_of_segment_backup_is_answered(capsys: Capture) -> None:
    assert plan("--segment-backup", EXAMPLE, "--json") == GOOD
    told = answered(capsys)
    assert told["feasible"] is True
    assert (told["connectors"], told["block_length"]) == (["tweets", "english", "store"], 27)


def test_a_delay_out_of_reach_is_an_answer_for_machines(capsys: Capture) -> None:
    assert plan("--segment-backup", EXAMPLE, "--max-recovery-delay", "0.6", "--json") == BAD
    assert answered(capsys) == {"feasible": False, "least_recovery_delay": pytest.approx(0.738375)}
    assert plan("--segment-backup", EXAMPLE, "--max-recovery-delay", "0.6") == IMPOSSIBLE
    assert "no configuration recovers within 0.6 s" in refused(capsys)


def test_an_application_that_is_not_there(tmp_path: Path, capsys: Capture) -> None:
    assert plan("--segment-backup", tmp_path / "no.json", "--json") == IMPOSSIBLE
    assert f"there is no file {tmp_path / 'no.json'}" in refused(capsys)
