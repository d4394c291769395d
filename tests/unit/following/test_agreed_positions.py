"""Agreed positions: made once, ascending, dropped in order, and never replaced by who was stopped for long."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.register_assert_rewrite("tests.following")

from tests.following import Subjects  # noqa: E402

from tidelock.following import agreed_positions  # noqa: E402
from tidelock.following.agreed_positions import AgreedPositions  # noqa: E402
from tidelock.log import Retention  # noqa: E402


@pytest.fixture
def subjects(tmp_path: Path) -> Subjects:
    return Subjects(tmp_path, "ab", Retention(epochs=1))


def known(subjects: Subjects) -> AgreedPositions:
    return AgreedPositions(list(subjects.logs.values()))


def at(*epochs: int) -> list[dict[str, int]]:
    return [{"a": n, "b": n} for n in epochs]


def agree(one: AgreedPositions, *epochs: int) -> None:
    for position in at(*epochs):
        one.agreed()
        assert one.propose(position)


def test_of_two_that_propose_one_is_heard(subjects: Subjects) -> None:
    one, two = known(subjects), known(subjects)
    assert one.agreed() == two.agreed() == []
    assert one.newest() is None
    assert one.propose({"a": 1, "b": 1})
    assert not two.propose({"a": 0, "b": 5})
    assert two.agreed() == one.agreed() == at(1)
    assert two.newest() == {"a": 1, "b": 1}


def test_other_logs_have_other_meetings(subjects: Subjects) -> None:
    agree(known(subjects), 1)
    assert AgreedPositions([subjects.logs["a"]]).agreed() == []


def test_those_that_the_logs_no_longer_hold_go_but_for_the_newest(subjects: Subjects) -> None:
    one = known(subjects)
    agree(one, 0, 1, 2)
    assert one.agreed() == at(0, 1, 2)
    subjects.publish("ab", times=6)
    for writer in subjects.writers.values():
        writer.truncate()
    agree(one, 6)
    assert one.agreed() == known(subjects).agreed() == at(6)
    assert len(subjects.logs["a"].store.names("meeting/")) == 1


def test_only_so_many_are_kept(subjects: Subjects, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agreed_positions, "KEPT", 3)
    one = known(subjects)
    agree(one, *range(20))
    assert one.agreed() == at(17, 18, 19)


def test_who_was_stopped_while_many_were_made_takes_nobodys_place(
    subjects: Subjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agreed_positions, "KEPT", 3)
    one, late, very_late = known(subjects), known(subjects), known(subjects)
    very_late.agreed()
    agree(one, 0, 1)
    late.agreed()
    agree(one, *range(2, 12))
    before = known(subjects).agreed()
    assert not late.propose({"a": 99, "b": 99}), "number 2 was made and dropped meanwhile"
    assert not very_late.propose({"a": 99, "b": 99})
    assert known(subjects).agreed() == before == at(9, 10, 11)


def test_who_was_stopped_and_dies_then_leaves_nothing_that_counts(
    subjects: Subjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agreed_positions, "KEPT", 3)
    one, late = known(subjects), known(subjects)
    agree(one, *range(7))
    late.agreed()
    agree(one, *range(7, 11))  # so that 8, the first that is kept, lies right behind the one that comes late
    monkeypatch.setattr(late, "_counts", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        late.propose({"a": 99, "b": 99})
    assert known(subjects).agreed() == at(8, 9, 10), "8 names another one"
    agree(one, 11)
    assert known(subjects).agreed() == at(9, 10, 11)


def test_a_listing_that_misses_one_is_made_again(subjects: Subjects, monkeypatch: pytest.MonkeyPatch) -> None:
    agree(known(subjects), 0, 1, 2, 3)
    one = known(subjects)
    listings = iter([[0, 1, 3]])
    listed = one._listed
    monkeypatch.setattr(one, "_listed", lambda: next(listings, None) or listed())
    assert one.agreed() == at(0, 1, 2, 3)
