"""When a producer has to wait for the slowest reader of its log."""

from __future__ import annotations

import pytest

from tidelock.errors import PipelineError
from tidelock.recovery import Bound, has_room


@pytest.mark.parametrize(
    ("epochs", "size", "room"),
    [(0, 0, True), (0, 99, True), (1, 9, True), (2, 9, True), (3, 9, False), (1, 10, False), (4, 11, False)],
)
def test_a_window_is_bounded_in_epochs_and_bytes(epochs: int, size: int, room: bool) -> None:
    assert has_room(epochs, size, Bound(epochs=3, bytes=10)) is room


def test_the_smallest_bound_still_lets_one_epoch_through() -> None:
    assert has_room(0, 0, Bound(1, 1))
    assert not has_room(1, 0, Bound(1, 1))


@pytest.mark.parametrize(("epochs", "size"), [(0, 1), (1, 0)])
def test_a_bound_is_positive(epochs: int, size: int) -> None:
    with pytest.raises(PipelineError, match="positive"):
        Bound(epochs, size)
