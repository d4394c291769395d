"""The directory of jobs and subjects in a shared tree: who may have which name, and what is left behind."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tidelock.alignment.directory import Directory, Job, Subject
from tidelock.alignment.machine import Abort, Align, AlignmentState, CatchUp, Commanded, Source, Unknown
from tidelock.coordination import EmbeddedTree, Tree
from tidelock.credentials import Credentials, credentials_for
from tidelock.errors import LogCorrupt, PipelineError


@pytest.fixture
def tree(coordinator: str) -> Iterator[Tree]:
    with EmbeddedTree.from_url(coordinator, 30.0) as opened:
        yield opened


@pytest.fixture
def known(tree: Tree) -> Directory:
    return Directory(tree)


def job(name: str, follows: str = "", publishes: str = "", identity: str = "1", segments: int = 1) -> Job:
    names = tuple(f"s{n}" for n in range(segments))
    return Job(name, f"/homes/{name}", identity, {s: f"{name}.{s}" for s in follows}, tuple(publishes), names)


def subject(name: str, endpoint: str = "file:/a", *, shared: bool = False) -> Subject:
    return Subject(name, endpoint, {"type": "struct"}, shared)


def has_run(coordinator: str, job: Job) -> None:
    """The job was there, and its process has ended."""
    with EmbeddedTree.from_url(coordinator, 30.0) as gone:
        Directory(gone).enter(job)


class TestSubjects:
    def test_they_are_found_by_name(self, known: Directory) -> None:
        known.publish(subject("t"), "one", "file:/one")
        known.publish(subject("s"), "one", "file:/one")
        assert [s.name for s in known.subjects()] == ["s", "t"]
        assert known.subject("s") == subject("s")
        assert known.producers("s") == {"one": "file:/one"}

    def test_they_are_places_without_credentials(self, known: Directory, tree: Tree) -> None:
        known.publish(subject("s", "redis://me:s3cret@h/0/s"), "one", "redis://me:s3cret@h/0/one")
        assert known.subject("s").endpoint == "redis://h/0/s"
        assert known.producers("s") == {"one": "redis://h/0/one"}
        for path in ("/subjects/s", "/subjects/s/producers/one"):
            assert b"s3cret" not in tree.get(path).data

    def test_those_of_0_1_0_hold_passwords_and_are_found_and_replaced(self, known: Directory, tree: Tree) -> None:
        fields = {"endpoint": "redis://me:s3cret@h/0/s", "schema": {"type": "struct"}, "shared": True}
        tree.create("/subjects/s", json.dumps(fields).encode(), make_parents=True)
        own = json.dumps({**fields, "log": "redis://me:s3cret@h/0/one"}).encode()
        tree.create("/subjects/s/producers/one", own, make_parents=True)
        assert known.subject("s").endpoint == "redis://h/0/s"
        assert credentials_for("redis://h/0/s") == Credentials("me", "s3cret")
        known.publish(subject("s", "redis://h/0/s", shared=True), "two", "redis://h/0/two")
        known.publish(subject("s", "redis://h/0/s", shared=True), "one", "redis://h/0/one")
        assert known.producers("s") == {"one": "redis://h/0/one", "two": "redis://h/0/two"}
        for path in ("/subjects/s", "/subjects/s/producers/one"):
            assert b"s3cret" not in tree.get(path).data

    def test_one_that_nobody_publishes(self, known: Directory) -> None:
        with pytest.raises(PipelineError, match=r"no subject s: start the job .* Published so far: nothing"):
            known.subject("s")
        known.publish(subject("t"), "one", "file:/one")
        with pytest.raises(PipelineError, match="Published so far: t"):
            known.subject("s")

    def test_a_name_that_is_taken(self, known: Directory) -> None:
        known.publish(subject("s"), "one", "file:/one")
        with pytest.raises(PipelineError, match=r"s is published by one already, into file:/a: choose another"):
            known.publish(subject("s", "file:/b"), "two", "file:/two")
        with pytest.raises(PipelineError, match="share it with"):
            known.publish(subject("s", "file:/b", shared=True), "two", "file:/two")
        assert known.producers("s") == {"one": "file:/one"}
        assert known.subject("s") == subject("s")

    def test_the_same_job_may_publish_again_and_elsewhere(self, known: Directory) -> None:
        for endpoint in ("file:/a", "file:/a", "file:/b"):
            known.publish(subject("s", endpoint), "one", endpoint)
        assert known.subject("s").endpoint == "file:/b"

    def test_sharing_needs_one_and_the_same_url(self, known: Directory) -> None:
        known.publish(subject("s", shared=True), "one", "file:/one")
        known.publish(subject("s", shared=True), "two", "file:/two")
        assert known.producers("s") == {"one": "file:/one", "two": "file:/two"}
        for other in (subject("s", "file:/b", shared=True), subject("s")):
            with pytest.raises(PipelineError, match="with one and the same URL"):
                known.publish(other, "three", "file:/three")
        assert list(known.producers("s")) == ["one", "two"]

    def test_of_two_that_publish_at_the_same_time_not_both_get_the_name(
        self, tree: Tree, known: Directory, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The second one comes right after the first has looked for others."""
        children, rival = tree.children, Directory(tree)
        refused: list[str] = []

        def late(path: str) -> list[str]:
            found = children(path)
            monkeypatch.setattr(tree, "children", children)
            try:
                rival.publish(subject("s", "file:/b"), "two", "file:/two")
            except PipelineError:
                refused.append("two")
            return found

        monkeypatch.setattr(tree, "children", late)
        known.publish(subject("s"), "one", "file:/one")
        assert refused == ["two"]
        assert known.subject("s") == subject("s")

    def test_the_last_producer_takes_the_subject_along(self, known: Directory) -> None:
        known.publish(subject("s", shared=True), "one", "file:/one")
        known.publish(subject("s", shared=True), "two", "file:/two")
        known.withdraw("s", "one")
        assert known.subject("s").shared
        known.withdraw("s", "two")
        known.withdraw("s", "two")
        assert known.subjects() == []
        known.publish(subject("s", "file:/c"), "three", "file:/three")

    @pytest.mark.parametrize("moment", ["/subjects/s/producers", "/subjects/s"])
    def test_one_that_publishes_while_the_last_one_goes_keeps_the_subject(
        self, tree: Tree, known: Directory, monkeypatch: pytest.MonkeyPatch, moment: str
    ) -> None:
        known.publish(subject("s", shared=True), "one", "file:/one")
        delete = tree.delete

        def late(path: str, **how: Any) -> None:
            if path == moment:
                known.publish(subject("s", shared=True), "two", "file:/two")
            delete(path, **how)

        monkeypatch.setattr(tree, "delete", late)
        known.withdraw("s", "one")
        assert known.subjects() == [subject("s", shared=True)]
        assert known.producers("s") == {"two": "file:/two"}


class TestJobs:
    def test_they_are_found_by_name(self, known: Directory) -> None:
        known.enter(job("one", "s", "t"))
        known.enter(job("one", "s", "t"))
        assert known.job("one") == job("one", "s", "t")
        assert list(known.jobs()) == ["one"]
        with pytest.raises(PipelineError, match=r"no job two .* Known jobs: one"):
            known.job("two")

    def test_a_name_that_is_taken_by_one_that_runs(self, known: Directory) -> None:
        known.enter(job("one"))
        with pytest.raises(PipelineError, match="a job one runs already, in /homes/one"):
            known.enter(job("one", identity="2"))
        known.enter(job("one", "s"))
        assert known.job("one") == job("one", "s")

    def test_a_name_that_is_taken_by_one_of_release_0_1_0(
        self, coordinator: str, tree: Tree, known: Directory
    ) -> None:
        has_run(coordinator, job("one"))
        tree.create("/jobs/one/alive", ephemeral=True)
        assert known.is_alive("one")
        with pytest.raises(PipelineError, match="a job one runs already, in /homes/one"):
            known.enter(job("one", identity="2"))
        assert known.job("one").identity == "1"
        known.enter(job("one"))

    def test_a_name_of_one_that_runs_no_longer_is_free_and_so_is_what_was_said_to_it(
        self, coordinator: str, known: Directory
    ) -> None:
        has_run(coordinator, job("one", "s"))
        known.give("one", Abort(7), -1)
        known.report("one", Source.of(["s"]).handle(Commanded(Abort(7))))
        known.enter(job("one", "s", identity="2"))
        assert known.job("one").identity == "2"
        assert known.command("one") == (None, -1)
        assert known.reported("one", ["s"]).number == 0

    def test_a_cycle_is_refused_shown_and_leaves_nothing(self, tree: Tree, known: Directory) -> None:
        known.enter(job("one", "s", "t"))
        with pytest.raises(PipelineError, match=r"two would follow itself: two ─s─▶ one ─t─▶ two"):
            known.enter(job("two", "t", "s"))
        assert list(known.jobs()) == ["one"]
        assert tree.find("/jobs/two") is None
        known.enter(job("two", "t", "u"))

    def test_a_job_that_is_known_stays_as_it_was_when_a_cycle_is_refused(
        self, coordinator: str, known: Directory
    ) -> None:
        known.enter(job("one", "s", "t"))
        has_run(coordinator, job("two", "t", "u"))
        known.give("two", Abort(1), -1)
        for identity in ("1", "2"):
            with pytest.raises(PipelineError, match="would follow itself"):
                known.enter(job("two", "t", "s", identity=identity))
            assert known.job("two") == job("two", "t", "u")
            assert known.command("two")[0] == Abort(1)

    def test_of_two_that_close_a_cycle_together_not_both_come_in(
        self, tree: Tree, known: Directory, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        known.enter(job("middle", "b", "c"))
        write = tree.set
        refused: list[str] = []

        def late(path: str, *args: object, **kwargs: object) -> int:
            version = write(path, *args, **kwargs)
            if path == "/jobs/one":
                monkeypatch.setattr(tree, "set", write)
                try:
                    Directory(tree).enter(job("two", "a", "b"))
                except PipelineError:
                    refused.append("two")
            return version

        monkeypatch.setattr(tree, "set", late)
        try:
            known.enter(job("one", "c", "a"))
        except PipelineError:
            refused.append("one")
        assert refused

    def test_what_is_read_in_several_segments_cannot_be_aligned(self) -> None:
        job("one", "st").check_can_align()
        with pytest.raises(PipelineError, match=r"several segments \(s0, s1\)"):
            job("one", "st", segments=2).check_can_align()


class TestBeingAlive:
    def test_for_as_long_as_the_session(self, coordinator: str, known: Directory) -> None:
        assert not known.is_alive("one")
        with EmbeddedTree.from_url(coordinator, 30.0) as other:
            Directory(other).enter(job("one"))
            Directory(other).enter(job("one"))
            assert known.is_alive("one")
        assert not known.is_alive("one")

    def test_who_was_killed_and_starts_again_outlives_its_old_session(
        self, coordinator: str, known: Directory
    ) -> None:
        killed = EmbeddedTree.from_url(coordinator, 30.0)
        Directory(killed).enter(job("one"))
        with EmbeddedTree.from_url(coordinator, 30.0) as again:
            Directory(again).enter(job("one"))
            killed.close()  # stands for the end of its session, some seconds later
            assert known.is_alive("one")
        assert not known.is_alive("one")


class TestCommands:
    def test_a_stale_version_loses(self, known: Directory) -> None:
        known.enter(job("one", "s"))
        assert known.command("one") == (None, -1)
        assert known.give("one", CatchUp(1, ("s",)), -1)
        assert not known.give("one", Abort(1), -1)
        command, version = known.command("one")
        assert command == CatchUp(1, ("s",))
        assert known.give("one", Align(2, {"s": 4}), version)
        assert not known.give("one", Abort(2), version)
        assert known.command("one")[0] == Align(2, {"s": 4})

    @pytest.mark.parametrize(
        ("data", "why"),
        [
            (b'{"command": "dance", "number": 3}', "'dance', which this release does not know"),
            (b'{"command": "align", "number": 3, "start": 7}', "command 3 is damaged"),
            (b'{"command": "abort"}', "no number"),
            (b'{"command": "ab', "what is at /jobs/one/command is no document"),
            (b"[1]", "no document"),
        ],
    )
    def test_one_that_cannot_be_made_out_changes_nothing_and_can_be_replaced(
        self, tree: Tree, known: Directory, data: bytes, why: str
    ) -> None:
        known.enter(job("one", "s"))
        tree.create("/jobs/one/command", data)
        command, version = known.command("one")
        assert isinstance(command, Unknown) and why in command.why
        source = Source.of(["s"], ["s"])
        assert source.handle(Commanded(command)) is source
        assert known.give("one", Abort(4), version)
        assert known.command("one")[0] == Abort(4)

    def test_a_damaged_node_is_told(self, tree: Tree, known: Directory) -> None:
        tree.create("/jobs/one", b"{torn", make_parents=True)
        with pytest.raises(LogCorrupt, match="/jobs/one is no document"):
            known.job("one")

    def test_what_a_job_reports(self, known: Directory) -> None:
        assert known.reported("one", ["s"]) == Source.of(["s"])
        source = Source.of(["s", "t"]).handle(Commanded(CatchUp(3, ("s",))))
        known.report("one", source)
        assert known.reported("one", ["s", "t"]) == source
        assert known.reported("one", ["t"]).state is AlignmentState.UNALIGNED

    def test_which_epochs_took_which(self, known: Directory) -> None:
        assert known.epochs("one") == []
        known.keep_epochs("one", [{"epoch": [0, 0], "taken": {"s": [1, 2]}}])
        assert known.epochs("one") == [{"epoch": [0, 0], "taken": {"s": [1, 2]}}]
