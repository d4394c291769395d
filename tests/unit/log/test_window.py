from __future__ import annotations

import doctest
from dataclasses import replace

import pytest

import tidelock.epochs
import tidelock.log.window
from tidelock.epochs import BEFORE_FIRST, Epoch, EpochRange
from tidelock.errors import InternalError
from tidelock.log.window import Entry, InputRange, Retention, Window, WindowError


def entry(first: int, last: int | None = None, query: str = "q", at: float = 0.0) -> Entry:
    covers = EpochRange(Epoch(first), Epoch(first if last is None else last))
    return Entry(covers, query, covers.last, published_at=at)


def window(*entries: Entry, retention: Retention | None = None) -> Window:
    grown = Window(retention=retention or Retention())
    for one in entries:
        grown = grown.publish(one)
    return grown


@pytest.mark.parametrize("module", [tidelock.epochs, tidelock.log.window])
def test_the_examples_in_the_docstrings_run(module: object) -> None:
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0


def test_the_same_work_is_published_once() -> None:
    held = window(entry(0), entry(1))
    assert held.publish(entry(1, at=99.0)) is held


def test_other_work_under_the_same_epoch_is_refused() -> None:
    with pytest.raises(WindowError, match=r"epochs 1 hold the result of other work.*ends at epoch 1.*new log"):
        window(entry(0), entry(1)).publish(entry(1, query="other"))


def test_the_same_batch_over_other_input_is_refused() -> None:
    lineage = (InputRange("id", "words", EpochRange.single(Epoch(4))),)
    with pytest.raises(WindowError, match="other work"):
        window(entry(0)).publish(replace(entry(0), inputs=lineage))
    with pytest.raises(WindowError, match="other work"):
        window(entry(0)).publish(replace(entry(0), offsets='[{"offset": 7}]'))


def test_a_gap_is_refused() -> None:
    with pytest.raises(WindowError, match="epochs 3 cannot follow epoch 1: an entry has to begin at epoch 2"):
        window(entry(0), entry(1)).publish(entry(3))


def test_an_entry_that_overlaps_the_tail_is_refused() -> None:
    with pytest.raises(WindowError, match="has to begin at epoch 2"):
        window(entry(0), entry(1)).publish(entry(1, 2))


def test_an_empty_log_may_begin_at_any_epoch() -> None:
    held = Window().register("c", BEFORE_FIRST).publish(entry(7, 9))
    assert held.truncated_to == 6
    assert held.cursors == {"c": 6}
    assert [e.covers.last for e in held.pending("c")] == [9]


def test_figure_3_4_of_segment_backup() -> None:
    """Node B holds 300-400; E has acked 350 and I 300: nothing is truncated, E replays one block, I two."""
    held = window(entry(0), entry(1), entry(2), entry(3))
    held = held.register("E", Epoch(1)).register("I", Epoch(1)).acknowledge("E", Epoch(2))
    held, dropped = held.truncate(now=0.0)
    assert [e.covers.last for e in dropped] == [0, 1]
    assert [e.covers.last for e in held.pending("E")] == [3]
    assert [e.covers.last for e in held.pending("I")] == [2, 3]


def test_an_older_ack_changes_nothing() -> None:
    held = window(entry(0), entry(1)).register("c", BEFORE_FIRST).acknowledge("c", Epoch(1))
    assert held.acknowledge("c", Epoch(0)) is held


def test_a_cursor_never_stands_inside_an_entry() -> None:
    with pytest.raises(WindowError, match="epoch 1 is inside the entry of epochs 0-2"):
        window(entry(0, 2)).register("c", BEFORE_FIRST).acknowledge("c", Epoch(1))


def test_unknown_consumers_are_told_so() -> None:
    with pytest.raises(WindowError, match="nobody is not a consumer"):
        window(entry(0)).pending("nobody")


def test_a_rewind_names_the_consumers_that_are_ahead() -> None:
    held = window(entry(0), entry(1)).register("x", Epoch(1)).register("y", Epoch(0))
    with pytest.raises(WindowError, match="cannot rewind to epoch 0: x already finished"):
        held.rewind(Epoch(0))


def test_after_a_roll_back_the_tail_can_be_rewound_and_written_again() -> None:
    held = window(entry(0), entry(1)).register("x", Epoch(1)).roll_back("x", Epoch(0))
    held, dropped = held.rewind(Epoch(0))
    assert [e.covers.last for e in dropped] == [1]
    assert held.publish(entry(1, 2, query="new")).tail == 2


def test_a_roll_back_behind_the_head_is_refused() -> None:
    held, _ = window(entry(0), entry(1), entry(2)).register("x", Epoch(2)).truncate(0.0)
    with pytest.raises(WindowError, match="epoch 0 is gone: this log was truncated up to epoch 1"):
        held.roll_back("x", Epoch(0))


def test_a_roll_back_cannot_go_forward() -> None:
    with pytest.raises(WindowError, match="it is not there yet"):
        window(entry(0), entry(1)).register("x", Epoch(0)).roll_back("x", Epoch(1))


def test_without_consumers_nothing_is_dropped() -> None:
    assert window(entry(0), entry(1)).truncate(1e9)[1] == ()


def test_a_subject_without_followers_keeps_its_last_epochs_only() -> None:
    held = window(*(entry(n) for n in range(10)), retention=Retention(epochs=3))
    assert [e.covers.last for e in held.truncate(0.0)[0].entries] == [7, 8, 9]


def test_a_subject_keeps_what_is_young() -> None:
    held = window(*(entry(n, at=float(n)) for n in range(10)), retention=Retention(seconds=4.5))
    assert [e.covers.last for e in held.truncate(now=10.0)[0].entries] == [6, 7, 8, 9]


def test_a_slow_follower_is_waited_for_whatever_the_retention() -> None:
    held = window(*(entry(n) for n in range(10)), retention=Retention(epochs=3))
    held, _ = held.register("slow", Epoch(1)).truncate(1e9)
    assert held.truncated_to == 1


def test_a_forgotten_consumer_holds_nothing_back() -> None:
    held = window(entry(0), entry(1), entry(2)).register("gone", BEFORE_FIRST).register("c", Epoch(2))
    assert held.truncate(0.0)[1] == ()
    assert len(held.forget("gone").truncate(0.0)[1]) == 2


def test_epochs_done_and_truncated_are_still_done() -> None:
    held, _ = window(entry(0), entry(1), entry(2)).register("c", Epoch(2)).truncate(0.0)
    assert held.publish(entry(0)) is held
    with pytest.raises(WindowError, match="epochs 0 hold the result of other work already"):
        held.publish(entry(0, query="a query with a new checkpoint"))


def test_a_range_has_an_order() -> None:
    with pytest.raises(InternalError):
        EpochRange(Epoch(3), Epoch(2))
