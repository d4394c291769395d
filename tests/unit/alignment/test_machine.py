"""The way of a source from unaligned to aligned and back, command by command."""

from __future__ import annotations

import json

import pytest

from tidelock.alignment.machine import (
    Abort,
    Align,
    AlignmentState,
    CatchUp,
    Command,
    Commanded,
    Progressed,
    Source,
    from_fields,
    is_near,
    next_command,
    to_fields,
)


def told(source: Source, *commands: Command) -> Source:
    for command in commands:
        source = source.handle(Commanded(command))
    return source


def went(source: Source, subject: str, position: int, *completed: int) -> Source:
    return source.handle(Progressed(subject, position, completed))


def ready(*subjects: str, also: tuple[str, ...] = ()) -> Source:
    """A source that is ready at epoch 9 of these subjects, after command 1."""
    source = told(Source.of([*subjects, *also]), CatchUp(1, subjects))
    for name in subjects:
        source = went(source, name, 9, 8, 9)
    assert source.state is AlignmentState.READY
    return source


def aligned() -> Source:
    return told(ready("a", "b"), Align(2, {"a": 9, "b": 9}))


class TestTheWayThere:
    def test_a_new_source_is_unaligned_or_aligned_from_the_beginning(self) -> None:
        assert Source.of(["a"]).state is AlignmentState.UNALIGNED
        at_once = Source.of(["a", "b"], aligned=["a", "b"])
        assert (at_once.state, at_once.aligned) == (AlignmentState.ALIGNED, {"a": -1, "b": -1})
        assert went(at_once, "a", -1).state is AlignmentState.ALIGNED

    def test_it_is_ready_when_all_are_near(self) -> None:
        source = told(Source.of(["a", "b"]), CatchUp(1, ("a", "b")))
        assert source.state is AlignmentState.CATCHING_UP
        source = went(source, "a", 8, 8, 9)
        assert source.state is AlignmentState.CATCHING_UP
        assert went(source, "b", 7, 8, 9).state is AlignmentState.CATCHING_UP
        assert went(source, "b", 9, 8, 9).state is AlignmentState.READY

    def test_near_is_at_the_second_last_epoch(self) -> None:
        assert is_near(-1, [])
        assert is_near(-1, [0])
        assert not is_near(4, [5, 6])
        assert is_near(5, [5, 6])

    def test_who_falls_behind_catches_up_again(self) -> None:
        assert went(ready("a"), "a", 9, 10, 11).state is AlignmentState.CATCHING_UP

    def test_it_stays_ready_until_it_is_at_the_epoch_that_was_named(self) -> None:
        source = told(ready("a"), Align(2, {"a": 11}))
        assert (source.state, source.aligned) == (AlignmentState.READY, {"a": 11})
        source = went(source, "a", 10, 30, 31)
        assert source.state is AlignmentState.READY, "the way to its start is not called falling behind"
        assert went(source, "a", 11, 30, 31).state is AlignmentState.ALIGNED

    def test_an_epoch_that_it_has_passed_already_is_as_good(self) -> None:
        assert told(ready("a"), Align(2, {"a": 4})).state is AlignmentState.ALIGNED

    def test_subjects_arrive_one_after_the_other(self) -> None:
        source = told(ready("a", "b"), Align(2, {"a": 10, "b": 12}))
        source = went(source, "a", 10, 10)
        assert source.state is AlignmentState.READY
        assert source.consumers["a"].state is AlignmentState.ALIGNED
        assert went(source, "b", 12, 12).state is AlignmentState.ALIGNED

    def test_only_some_of_its_subjects(self) -> None:
        source = told(ready("a", also=("c",)), Align(2, {"a": 9}))
        assert (source.state, source.consumers["c"].state) == (AlignmentState.ALIGNED, AlignmentState.UNALIGNED)


class TestCommands:
    def test_align_is_for_a_source_that_is_ready_and_for_all_of_its_subjects(self) -> None:
        early = told(Source.of(["a"]), Align(1, {"a": 3}))
        assert (early.state, early.aligned, early.number) == (AlignmentState.UNALIGNED, {}, 1)
        some = told(ready("a", "b"), Align(2, {"a": 9}))
        assert (some.state, some.aligned, some.number) == (AlignmentState.READY, {}, 2)

    def test_a_command_that_comes_again_or_late_changes_nothing(self) -> None:
        source = aligned()
        assert told(source, Align(2, {"a": 9, "b": 9}), CatchUp(1, ("a",)), Abort(2)) == source

    @pytest.mark.parametrize(
        "source",
        [
            Source.of(["a", "b"]),
            told(Source.of(["a", "b"]), CatchUp(1, ("a", "b"))),
            ready("a", "b"),
            told(ready("a", "b"), Align(2, {"a": 99, "b": 9})),
            aligned(),
            Source.of(["a", "b"], aligned=["a", "b"]),
        ],
    )
    def test_abort_works_from_every_state(self, source: Source) -> None:
        after = told(source, Abort(source.number + 1))
        assert (after.state, after.aligned) == (AlignmentState.UNALIGNED, {})
        assert {c.state for c in after.consumers.values()} == {AlignmentState.UNALIGNED}
        assert went(after, "a", 500, 499, 500).state is AlignmentState.UNALIGNED

    def test_catch_up_begins_again_with_other_subjects(self) -> None:
        source = told(aligned(), CatchUp(3, ("b", "never heard of")))
        assert (source.state, source.aligned) == (AlignmentState.CATCHING_UP, {})
        assert source.consumers["a"].state is AlignmentState.UNALIGNED

    def test_progress_of_a_subject_that_is_not_followed(self) -> None:
        assert went(aligned(), "x", 3, 3) == aligned()

    def test_commands_travel(self) -> None:
        for command in (CatchUp(1, ("a", "b")), Align(2, {"a": 7}), Abort(3)):
            assert from_fields(json.loads(json.dumps(to_fields(command)))) == command


class TestTheDocument:
    @pytest.mark.parametrize("source", [Source.of(["a"]), ready("a"), aligned()])
    def test_it_comes_back_as_it_was(self, source: Source) -> None:
        kept = json.loads(json.dumps(source.to_document()))
        assert Source.from_document(kept, list(source.consumers)) == source

    def test_a_job_may_follow_other_subjects_now(self) -> None:
        source = Source.from_document(aligned().to_document(), ["b", "c"])
        assert source.aligned == {"b": 9}
        assert source.consumers["c"].state is AlignmentState.UNALIGNED

    def test_a_job_that_went_back_has_yet_to_arrive_again(self) -> None:
        source = told(ready("a"), Align(2, {"a": 9}))
        back = went(source, "a", 5, 8, 9)
        assert (source.state, back.state) == (AlignmentState.ALIGNED, AlignmentState.READY)
        assert back.aligned == {"a": 9}
        assert went(back, "a", 9, 8, 9).state is AlignmentState.ALIGNED


class TestTheCoordinator:
    def test_it_leads_a_source_all_the_way(self) -> None:
        source, said = Source.of(["a", "b"]), []
        for _ in range(6):
            command = next_command(["a", "b"], source, {"a": 9, "b": 4})
            said.append(command)
            source = source if command is None else told(source, command)
            for subject, tail in (("a", 9), ("b", 4)):
                source = went(source, subject, tail + len(said) // 3, tail - 1, tail)
        assert said == [CatchUp(1, ("a", "b")), Align(2, {"a": 10, "b": 5}), None, None, None, None]
        assert source.state is AlignmentState.ALIGNED

    def test_it_waits_for_who_catches_up(self) -> None:
        source = told(Source.of(["a"]), CatchUp(1, ("a",)))
        assert next_command(["a"], source, {"a": 9}) is None

    def test_it_begins_again_if_something_else_is_wanted(self) -> None:
        assert next_command(["a"], aligned(), {"a": 9}) == CatchUp(3, ("a",))
        assert next_command([], aligned(), {}) == CatchUp(3, ())

    def test_a_subject_without_epochs_starts_with_its_first(self) -> None:
        source = told(Source.of(["a"]), CatchUp(1, ("a",)))
        assert next_command(["a"], went(source, "a", -1), {"a": -1}) == Align(2, {"a": 0})
