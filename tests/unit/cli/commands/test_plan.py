"""`tidelock plan`: what it prints of a cutting, and what it refuses before Spark is started."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.cli.homes import cutting, topology

from tidelock.cli import main
from tidelock.cli.command import _parser
from tidelock.cli.commands.plan_pipeline import answer, facts
from tidelock.topology import Plan, cut, mermaid, svg


def print_(options: str = "") -> None:
    answer(cutting(), _parser().parse_args(["plan", "jobs.py", *options.split()]))


def test_people_see_segments_and_reasons(capsys: pytest.CaptureFixture[str]) -> None:
    print_()
    page = capsys.readouterr().out
    assert "trending: 2 segments, 1 log" in page
    assert "└ store  update  [named] ─▶ counts ─▶ store" in page
    assert "[named]  ─▶ store · counts is an anchor of the plan" in page


def test_notes_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    plan = Plan(epochs_per_batch={"counts": 5, "store": 3}, anchors=frozenset({"store"}))
    answer(cut(topology(), plan, {}), _parser().parse_args(["plan", "jobs.py"]))
    page = capsys.readouterr().out
    assert "store   append · 3 epochs a batch" in page
    assert "\nnote  segment counts takes 1 epoch per batch instead of 5" in page


@pytest.mark.parametrize(("kind", "draw"), [("mermaid", mermaid), ("svg", svg)])
def test_a_picture_for_another_program_stands_alone(
    kind: str, draw: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    print_(f"--picture {kind}")
    assert capsys.readouterr().out == f"{draw(cutting())}\n"
    print_(f"--picture {kind} --out {tmp_path}/picture")
    assert (tmp_path / "picture").read_text() == draw(cutting())
    assert f"the picture is in {tmp_path}/picture" in capsys.readouterr().out


def test_machines_get_a_plan_that_can_be_given_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    print_(f"--json --out {tmp_path}/picture.txt")
    told = json.loads(capsys.readouterr().out)
    assert told["pipeline"] == "trending"
    assert told["segments"][1] == {
        "name": "store",
        "operators": ["counts", "store"],
        "inputs": [{"log": "named", "lag": 0}],
        "sources": [],
        "sink": "store",
        "mode": "update",
        "epochs_per_batch": 1,
    }
    assert told["cuts"] == [{"log": "named", "why": "counts is an anchor of the plan"}]
    again = cut(topology(), Plan.from_document(told["plan"], topology()), {})
    assert again.segments == cutting().segments
    assert "2 segments" in (tmp_path / "picture.txt").read_text()


def test_all_notes_are_in_the_facts() -> None:
    plan = Plan(epochs_per_batch={"counts": 5})
    assert facts(cut(topology(), plan, {}))["notes"] == [
        "counts is not the end of a segment, so its 5 epochs per batch are left aside"
    ]


@pytest.mark.parametrize("command", ["plan", "run"])
@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (None, "there is no file"),
        ("1 / 0", "cannot be loaded: line 1: ZeroDivisionError: division by zero"),
        ("import tidelock\nflow = tidelock.Pipeline('trending')\n", "trending"),
    ],
)
def test_a_file_that_cannot_be_is_told_in_one_line(
    command: str,
    text: str | None,
    complaint: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    if text is not None:
        (tmp_path / "jobs.py").write_text(text)
    assert main([command, "jobs.py"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert complaint in said.err
    assert said.err.startswith("tidelock: ")
    assert said.err.count("\n") == 1
    assert not (tmp_path / "trending.tidelock").exists()
