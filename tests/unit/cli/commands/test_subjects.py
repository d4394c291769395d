"""`tidelock subjects` and `tidelock align`, as a person and a program see them; no Spark."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.integration.subjects import COLUMNS, HandMade

from tidelock.alignment.combining import Combiner
from tidelock.alignment.directory import Directory, Job, Subject
from tidelock.alignment.machine import Commanded, Progressed, Source
from tidelock.cli import main
from tidelock.coordination import Tree, open_tree
from tidelock.epochs import Epoch
from tidelock.log import EpochLog


@pytest.fixture
def tree(coordinator: str) -> Tree:
    with open_tree(coordinator) as tree:
        yield tree


@pytest.fixture
def known(tree: Tree) -> Directory:
    return Directory(tree)


@pytest.fixture
def subject(tmp_path: Path, coordinator: str) -> HandMade:
    made = HandMade(tmp_path, "made.numbers", coordinator)
    made.publish([1], [2, 3], [4])
    return made


def follower(**more: Any) -> Job:
    return Job("sums", "/home/of/sums", "id", {"made.numbers": "sums.numbers"}, (), ("sums",), **more)


def said(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    assert main(list(words)) == code
    told = capsys.readouterr()
    return told.out if code == 0 else told.err


def test_nothing_is_published(capsys: pytest.CaptureFixture[str], coordinator: str) -> None:
    assert said(capsys, "subjects") == f"nothing is published in {coordinator}\n"
    assert json.loads(said(capsys, "subjects", "--json")) == {"coordinator": coordinator, "subjects": []}


def test_subjects_are_listed(subject: HandMade, known: Directory, capsys: pytest.CaptureFixture[str]) -> None:
    known.enter(follower())
    words = said(capsys, "subjects").split()
    assert words[-6:] == ["made.numbers", "0", "to", "2", "maker-of-made.numbers", "sums"]


def test_a_subject_is_shown_with_the_epochs_of_those_who_follow(
    subject: HandMade, known: Directory, capsys: pytest.CaptureFixture[str]
) -> None:
    known.enter(follower())
    known.report("sums", Source.of(["made.numbers"], ["made.numbers"]))
    known.keep_epochs("sums", [{"epoch": [7, 7], "taken": {"made.numbers": [0, 1]}, "segment": "sums"}])
    subject.log.move_cursor("sums.numbers", Epoch(1))
    lines = [line.split() for line in said(capsys, "subjects", "show", "made.numbers").splitlines()]
    assert ["sums", "yes", "aligned", "1", "1", "1,", "or", "up", "to", "100"] in lines
    rows = [line for line in lines if "committed" in line]
    assert [(line[0], line[2]) for line in rows] == [("0", "1"), ("1", "2"), ("2", "1")]
    assert [line[5:] for line in rows] == [["7"], ["7"], []]
    facts = json.loads(said(capsys, "subjects", "show", "made.numbers", "--last", "1", "--json"))
    assert [entry["epoch"] for entry in facts["epochs"]] == [[2, 2]]
    assert facts["columns"] == [{"name": "n", "type": "long"}]
    assert [(c["epochs_per_batch"], c["one_by_one"]) for c in facts["consumers"]] == [(100, None)]


def test_a_consumer_that_takes_epochs_one_by_one_is_shown_with_the_reason(
    subject: HandMade, known: Directory, capsys: pytest.CaptureFixture[str]
) -> None:
    known.enter(follower(one_by_one="what is late for windows is judged batch by batch"))
    assert "all there are" in said(capsys, "subjects", "show", "made.numbers"), "it is not aligned"
    known.report("sums", Source.of(["made.numbers"], ["made.numbers"]))
    shown = " ".join(said(capsys, "subjects", "show", "made.numbers").split())
    assert "however far behind: what is late for windows is judged batch by batch" in shown
    facts = json.loads(said(capsys, "subjects", "show", "made.numbers", "--json"))
    assert [(c["epochs_per_batch"], c["one_by_one"]) for c in facts["consumers"]] == [
        (1, "what is late for windows is judged batch by batch")
    ]


def test_an_epoch_of_several_producers_is_shown_before_it_is_there(
    tmp_path: Path, coordinator: str, known: Directory, capsys: pytest.CaptureFixture[str]
) -> None:
    parts = [HandMade(tmp_path, name, coordinator) for name in ("left", "right")]
    log = EpochLog.create(f"file:{tmp_path}/shared", COLUMNS, name="both")
    for part in parts:
        known.publish(Subject("both", log.url, COLUMNS, shared=True), part.name, part.log.url)
        part.publish([1])
    assert Combiner(log, patience=10, recalled=lambda _: None).step({part.name: part.log for part in parts})
    parts[1].publish([2])
    facts = json.loads(said(capsys, "subjects", "show", "both", "--json"))
    assert [(entry["epoch"], entry["state"]) for entry in facts["epochs"]] == [
        ([0, 0], "committed"),
        ([1, 1], "pre-committed"),
    ]
    assert "left not yet, right 1" in said(capsys, "subjects", "show", "both")


def test_a_job_is_forgotten_and_nobody_waits_for_it(
    subject: HandMade, known: Directory, tree: Tree, coordinator: str, capsys: pytest.CaptureFixture[str]
) -> None:
    job = follower()
    subject.log.move_cursor("sums.numbers", Epoch(1))
    with open_tree(coordinator) as running:
        Directory(running).enter(job)
        assert "job sums runs" in said(capsys, "subjects", "forget", "sums", code=2)
    assert said(capsys, "subjects", "forget", "sums") == (
        "sums is forgotten; made.numbers no longer wait for it\n"
    )
    assert subject.log.cursors() == {}
    assert known.jobs() == {}
    assert "there is no job sums" in said(capsys, "subjects", "forget", "sums", code=2)


class Played:
    """A job that obeys, without a query."""

    def __init__(self, known: Directory, subject: HandMade) -> None:
        self._known, self._subject = known, subject
        self._over = threading.Event()
        self._source = Source.of([subject.name])
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._over.wait(0.02):
            command, _ = self._known.command("sums")
            if command is not None:
                self._source = self._source.handle(Commanded(command))
            ends = [covers.last for covers in self._subject.log.ranges()]
            self._source = self._source.handle(Progressed(self._subject.name, ends[-1], ends))
            self._known.report("sums", self._source)
            if self._source.aligned:
                self._subject.publish([0])

    def __enter__(self) -> Played:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


def test_a_job_is_led_to_its_subjects_and_back(
    subject: HandMade, known: Directory, capsys: pytest.CaptureFixture[str]
) -> None:
    known.enter(follower())
    with Played(known, subject):
        *before, last = said(capsys, "align", "sums").splitlines()
        assert [word for word in ("unaligned", "catching up", "ready") if word in before] == before
        assert last == "aligned: made.numbers from epoch 3"
        assert said(capsys, "align", "sums") == f"{last}\n", "nothing is left to do"
        told = json.loads(said(capsys, "align", "sums", "--abort", "--json"))
    assert (told["state"], told["done"], told["runs"]) == ("unaligned", True, True)


def test_a_job_that_does_not_run_is_told_when_it_does(
    subject: HandMade, known: Directory, coordinator: str, capsys: pytest.CaptureFixture[str]
) -> None:
    job = follower()
    with open_tree(coordinator) as stopped:
        Directory(stopped).enter(job)
    assert main(["align", "sums", "--timeout", "0.5"]) == 1
    assert "job sums does not run, so it is still unaligned" in capsys.readouterr().err
    known.enter(job)
    with Played(known, subject):
        assert main(["align", "sums", "--json"]) == 0


def test_what_a_user_may_get_wrong(
    subject: HandMade, known: Directory, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "there is no job sums" in said(capsys, "align", "sums", code=2)
    known.enter(Job("lonely", "/home", "id", {}, ()))
    assert "job lonely follows no subject" in said(capsys, "align", "lonely", code=2)
    known.enter(Job("wide", "/home", "id", {"made.numbers": "wide.numbers"}, (), ("left", "right")))
    assert "in several segments (left, right)" in said(capsys, "align", "wide", code=2)
    assert "no coordination backend" in said(capsys, "subjects", "--coordinator", "nowhere:x", code=2)
