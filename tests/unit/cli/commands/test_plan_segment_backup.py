"""`tidelock plan --segment-backup FILE`: what is read, what is printed, and what is refused."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tidelock.cli.commands.plan_segment_backup import answer_segment_backup
from tidelock.cli.exits import BAD, GOOD, IMPOSSIBLE, exit_code
from tidelock.errors import PlanError

EXAMPLE = Path(__file__).parents[4] / "examples" / "segment_backup.json"
PAGE = Path(__file__).parents[4] / "docs" / "segment-backup-costs.md"
DOCUMENT = json.loads(EXAMPLE.read_text(encoding="utf-8"))
DELAYS, SIZES, PRICES = (tuple(DOCUMENT[group]) for group in ("delays", "sizes", "prices"))


@pytest.fixture
def written(tmp_path: Path) -> Callable[[Any], Path]:
    """Write a document into a file."""

    def write(document: Any) -> Path:
        path = tmp_path / "application.json"
        path.write_text(json.dumps(document), encoding="utf-8")
        return path

    return write


def changed(path: str, value: Any) -> Any:
    """The example with another value at a path such as nodes.1.name; ... leaves the field out."""
    document = copy.deepcopy(DOCUMENT)
    *way, last = (int(step) if step.isdecimal() else step for step in path.split("."))
    part = document
    for step in way:
        part = part[step]
    if value is ...:
        del part[last]
    else:
        part[last] = value
    return document


# -- answers


def test_people_see_nodes_windows_delay_and_costs(capsys: pytest.CaptureFixture[str]) -> None:
    assert answer_segment_backup(EXAMPLE, None, as_json=False) == GOOD
    page = capsys.readouterr().out
    assert "7 nodes, 3 connectors, blocks of 27 tuples" in page
    assert "[tweets] ─▶ parse ─▶ [english] ─▶ words ─▶ known ─▶ counts ─▶ [store]" in page
    assert "tweets      english             2.02 tuples" in page
    assert "recovery delay  0.89775 s, of at most 0.9 s" in page
    for part in ("computation", "network", "storage", "total"):
        assert f"\n{part} " in page


def test_the_documentation_shows_what_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    answer_segment_backup(EXAMPLE, None, as_json=False)
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    shown = PAGE.read_text(encoding="utf-8")
    assert "\n".join(lines).strip() in shown
    assert EXAMPLE.read_text(encoding="utf-8").strip() in shown


def test_machines_get_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    assert answer_segment_backup(EXAMPLE, None, as_json=True) == GOOD
    told = json.loads(capsys.readouterr().out)
    assert told["feasible"] is True
    assert told["connectors"] == ["tweets", "english", "store"]
    assert told["block_length"] == 27
    assert told["recovery_delay"] == pytest.approx(0.7 + 0.0145 * 2 + 0.0125 * 27 / 2)
    assert told["recovery_delay"] == pytest.approx(0.89775)
    assert told["max_recovery_delay"] == 0.9
    cost = told["cost"]
    assert cost["total"] == pytest.approx(cost["computation"] + cost["network"] + cost["storage"])
    assert cost["network"] == pytest.approx(1e-11 * told["overhead"]["communication"])
    assert set(told["overhead"]) == {"time", "communication", "storage"}
    assert [window["connector"] for window in told["pending_windows"]] == ["tweets", "english"]
    assert all(window["tuples"] > 0 for window in told["pending_windows"])


def test_a_given_bound_goes_before_the_one_in_the_file(
    written: Callable[[Any], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    for document in (DOCUMENT, changed("max_recovery_delay", ...)):
        assert answer_segment_backup(written(document), 2.0, as_json=True) == GOOD
        told = json.loads(capsys.readouterr().out)
        assert told["connectors"] == ["tweets", "store"]
        assert told["max_recovery_delay"] == 2.0


def test_a_bound_out_of_reach_is_an_answer_for_machines(capsys: pytest.CaptureFixture[str]) -> None:
    assert answer_segment_backup(EXAMPLE, 0.6, as_json=True) == BAD
    assert json.loads(capsys.readouterr().out) == {
        "feasible": False,
        "least_recovery_delay": pytest.approx(0.738375),
    }


def test_a_bound_out_of_reach_is_told_to_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(lambda: answer_segment_backup(EXAMPLE, 0.6, as_json=False)) == IMPOSSIBLE
    told = capsys.readouterr()
    assert told.out == ""
    assert "tidelock: no configuration recovers within 0.6 s: the least recovery delay is 0.738375 s" in told.err


def test_a_queue_without_end_is_told(written: Callable[[Any], Path]) -> None:
    with pytest.raises(PlanError, match=r"known gets 45 tuples per second .* and can process 40 "):
        answer_segment_backup(written(changed("nodes.4.processing_delay", 0.025)), None, as_json=True)


# -- files


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"there is no file .*nothing\.json"):
        answer_segment_backup(tmp_path / "nothing.json", None, as_json=True)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="cannot be read: Is a directory"):
        answer_segment_backup(tmp_path, None, as_json=True)


@pytest.mark.parametrize("content", [b"", b"{", b"nodes: 3", b"\xff\xfe", b"[" * 200_000])
def test_a_file_that_is_not_json(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "application.json"
    path.write_bytes(content)
    with pytest.raises(PlanError, match=r"application\.json is not JSON: "):
        answer_segment_backup(path, None, as_json=True)


# -- fields

NUMBERS = [
    "tuple_frequency",
    "nodes.0.processing_delay",
    "nodes.1.processing_delay",
    "nodes.6.output_ratio",
    *(f"delays.{name}" for name in DELAYS),
    *(f"sizes.{name}" for name in SIZES),
    *(f"prices.{name}" for name in PRICES),
    "max_recovery_delay",
]


def spelled(path: str) -> str:
    """A path as messages have it."""
    steps = path.split(".")
    return f"nodes[{steps[1]}].{steps[2]}" if steps[0] == "nodes" else path


@pytest.mark.parametrize("path", NUMBERS)
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1, "3", True, [], 10**400])
def test_what_is_no_number(path: str, value: Any, written: Callable[[Any], Path]) -> None:
    with pytest.raises(PlanError) as refused:
        answer_segment_backup(written(changed(path, value)), None, as_json=True)
    assert str(refused.value).startswith(f"{spelled(path)}: a number from 0 to 1e+100 is needed, not ")
    assert len(str(refused.value)) < 150


@pytest.mark.parametrize("path", [path for path in NUMBERS if path != "nodes.0.processing_delay"])
def test_a_number_that_is_missing(path: str, written: Callable[[Any], Path]) -> None:
    with pytest.raises(PlanError) as refused:
        answer_segment_backup(written(changed(path, ...)), None, as_json=True)
    assert str(refused.value).startswith(f"{spelled(path)}: ")
    assert "this field is missing" in str(refused.value)


def test_a_missing_bound_can_be_given_on_the_command_line(written: Callable[[Any], Path]) -> None:
    with pytest.raises(PlanError, match="here or with --max-recovery-delay"):
        answer_segment_backup(written(changed("max_recovery_delay", None)), None, as_json=True)


@pytest.mark.parametrize(
    ("path", "value", "complaint"),
    [
        ("tuple_frequency", 0, "tuple_frequency: a number above 0 is needed, not 0"),
        ("nodes.2.output_ratio", 0, "nodes[2].output_ratio: a number above 0 is needed, not 0"),
        ("nodes.0.output_ratio", 2, "nodes[0].output_ratio: the ratio of the spout is 1, not 2"),
        ("nodes", ..., "nodes: a list of at least two nodes is needed"),
        ("nodes", {}, "nodes: a list of at least two nodes is needed"),
        ("nodes", [{"name": "tweets"}], "nodes: a list of at least two nodes is needed"),
        ("nodes.0", "tweets", "nodes[0]: a JSON object is needed, not 'tweets'"),
        ("nodes.3", None, "nodes[3]: a JSON object is needed"),
        ("nodes.3.name", ..., "nodes[3].name: every node has a name"),
        ("nodes.3.name", "", "nodes[3].name: every node has a name"),
        ("nodes.3.name", 3, "nodes[3].name: every node has a name"),
        ("nodes.3.name", "parse", "nodes[3].name: 'parse' is also the name of nodes[1]"),
        ("delays", ..., "delays: a JSON object is needed, and this field is missing"),
        ("sizes", 3, "sizes: a JSON object is needed, not 3"),
        ("prices", [], "prices: a JSON object is needed, not []"),
    ],
)
def test_what_is_no_application(path: str, value: Any, complaint: str, written: Callable[[Any], Path]) -> None:
    with pytest.raises(PlanError) as refused:
        answer_segment_backup(written(changed(path, value)), None, as_json=True)
    assert str(refused.value).startswith(complaint)


@pytest.mark.parametrize("document", [[], 3, "nodes", None])
def test_what_is_no_object(document: Any, written: Callable[[Any], Path]) -> None:
    with pytest.raises(PlanError, match="application: a JSON object is needed"):
        answer_segment_backup(written(document), 2.0, as_json=True)


def test_replaying_takes_time(written: Callable[[Any], Path]) -> None:
    delays = {**DOCUMENT["delays"], "read": 0, "transmit": 0, "normal_tuple": 0}
    with pytest.raises(PlanError, match="delays: read, transmit and normal_tuple are all 0"):
        answer_segment_backup(written(changed("delays", delays)), None, as_json=True)


def test_fields_of_the_spout_that_say_nothing_and_notes_are_left_alone(
    written: Callable[[Any], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    spout = {"name": "tweets", "processing_delay": 5, "output_ratio": 1, "measured": "in May"}
    assert answer_segment_backup(written(changed("nodes.0", spout)), None, as_json=True) == GOOD
    assert json.loads(capsys.readouterr().out)["block_length"] == 27
