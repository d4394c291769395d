"""A topic goes on from a position, or it is told what is missing: nothing in between."""

from __future__ import annotations

import doctest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelock.errors import LogCorrupt
from tidelock.kafka import continuity
from tidelock.kafka.continuity import Position, Span, check_goes_on, check_kept, missing

positions = st.builds(
    Position,
    st.lists(st.integers(0, 5), min_size=1, max_size=4).map(tuple),
    st.sampled_from([None, "Ab", "Cd"]),
)


def test_doctests() -> None:
    result = doctest.testmod(continuity)
    assert (result.failed, result.attempted > 0) == (0, True)


@given(before=positions, now=positions)
def test_a_position_is_never_left_behind(before: Position, now: Position) -> None:
    same = before.identity is None or now.identity is None or before.identity == now.identity
    longer = len(now.offsets) >= len(before.offsets) and all(
        end >= first for end, first in zip(now.offsets, before.offsets, strict=False)
    )
    if same and longer:
        begun = check_goes_on("here", "orders", before, now)
        assert begun.offsets == before.offsets + (0,) * (len(now.offsets) - len(before.offsets))
        return
    with pytest.raises(LogCorrupt, match=r"here: .*orders .* nothing was skipped"):
        check_goes_on("here", "orders", before, now)


@given(position=positions)
def test_a_position_is_stored_and_read_again(position: Position) -> None:
    assert Position.from_fields({"topic": "orders", **position.to_fields()}) == position


@given(before=positions, low=st.lists(st.integers(0, 5), min_size=4, max_size=4))
def test_what_was_dropped_is_told(before: Position, low: list[int]) -> None:
    gone = [(p, first) for p, first in enumerate(before.offsets) if low[p] > first]
    if not gone:
        check_kept("here", "orders", before, low)
        return
    partition, first = gone[0]
    with pytest.raises(
        LogCorrupt, match=f"records from {first} to {low[partition] - 1} of partition {partition} of"
    ):
        check_kept("here", "orders", before, low)


def test_a_story_is_short_enough_to_be_told_whole() -> None:
    """Stories of failures are cut off after 400 characters."""
    where, topic = "kafka://broker-1.example.org:9092", "shop.orders.2026"
    ids = Position((10**7,), "bOIT+uyaQ9Wva7Fqp8M31Q"), Position((10**7,), "9LVNkiiETkSSkq8wiO3mBQ")
    told = [
        str(missing(where, Span(topic, 12, 10**7, 10**8), *bounds)) for bounds in ((2 * 10**7, 10**8), (0, 10**7))
    ]
    for before, now in (ids, (Position((1, 2)), Position((1,)))):
        with pytest.raises(LogCorrupt) as failure:
            check_goes_on(where, topic, before, now)
        told.append(str(failure.value))
    assert [len(text) for text in told if len(text) + len("LogCorrupt: ") > 400] == []
