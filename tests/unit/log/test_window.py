from __future__ import annotations

import doctest
from dataclasses import replace

import pytest

import tidelock.epochs
import tidelock.log.window
from tidelock.epochs import Epoch, EpochRange
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


def read(held: Window, **cursors: int) -> Window:
    """The window with these cursors."""
    return replace(held, cursors={name: Epoch(at) for name, at in cursors.items()})


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
    held = Window().publish(entry(7, 9))
    assert (held.truncated_to, held.tail) == (6, 9)


def test_figure_3_4_of_segment_backup() -> None:
    """Node B holds 300-400; E has acked 350 and I 300: nothing that I still has to see is truncated."""
    held = read(window(entry(0), entry(1), entry(2), entry(3)), E=2, I=1)
    held, dropped = held.truncate(now=0.0)
    assert [e.covers.last for e in dropped] == [0, 1]
    assert [e.covers.last for e in held.entries] == [2, 3]


def test_what_is_behind_the_epoch_that_a_log_is_put_back_to_can_be_written_again() -> None:
    held = read(window(entry(0), entry(1), entry(2)), x=2, y=0).put_back(Epoch(1), {"z": Epoch(0)})
    assert [e.covers.last for e in held.entries] == [0, 1]
    assert held.cursors == {"x": 1, "y": 0, "z": 0}, "nobody is beyond it"
    assert held.publish(entry(2, 3, query="new")).tail == 3


def test_an_epoch_inside_an_entry_takes_the_entry_along() -> None:
    assert window(entry(0), entry(1, 3)).put_back(Epoch(2), {}).tail == 0


def test_a_log_that_is_put_back_behind_its_head_begins_anew() -> None:
    held, _ = read(window(entry(0), entry(1), entry(2)), x=2).truncate(0.0)
    held = held.put_back(Epoch(0), {"x": Epoch(0)})
    assert (held.entries, held.truncated_to, held.cursors) == ((), 0, {"x": 0})
    assert held.publish(entry(1)).tail == 1


def test_notes_on_epochs_that_are_made_again_go() -> None:
    held = replace(window(entry(0), entry(1)), asides={"aside/x-0": Epoch(0), "aside/x-1": Epoch(1)})
    assert held.put_back(Epoch(0), {}).asides == {"aside/x-0": 0}


def test_other_readers_come_and_the_log_waits_for_them() -> None:
    keep = Retention(epochs=2, wait_for=frozenset({"x", "y", "x.snapshot"}))
    held = read(window(entry(0), entry(1), retention=keep), x=0, y=0, backup=0)
    held = held.change_readers(["y"], ["x", "n"], {"n": Epoch(1)})
    assert held.cursors == {"x": 0, "n": 1, "backup": 0}
    assert held.retention == Retention(epochs=2, wait_for=frozenset({"x", "n", "x.snapshot"}))


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
    held, _ = read(held, slow=1).truncate(1e9)
    assert held.truncated_to == 1


def test_a_consumer_that_is_gone_holds_nothing_back() -> None:
    held = read(window(entry(0), entry(1), entry(2)), gone=-1, c=2)
    assert held.truncate(0.0)[1] == ()
    assert len(held.change_readers(["gone"], ["c"], {}).truncate(0.0)[1]) == 2


def test_epochs_done_and_truncated_are_still_done() -> None:
    held, _ = read(window(entry(0), entry(1), entry(2)), c=2).truncate(0.0)
    assert held.publish(entry(0)) is held
    with pytest.raises(WindowError, match="epochs 0 hold the result of other work already"):
        held.publish(entry(0, query="a query with a new checkpoint"))


def test_a_range_has_an_order() -> None:
    with pytest.raises(InternalError):
        EpochRange(Epoch(3), Epoch(2))
