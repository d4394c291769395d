"""Frequencies as whole numbers of epochs: within the budget, and nothing left that could be used."""

from __future__ import annotations

import math
import random

import pytest

from tidelock.planning.rounding import whole_epochs
from tidelock.planning.sums import Sums, share

EPOCHS = 2.0  # per unit of time


def segment(replay: float = 1.0, commit: float = 0.1, storing: float = 0.0, head: bool = False) -> Sums:
    return Sums(fixed_recovery=1.0, replay=replay, commit=commit, storing=storing, head=head)


def overhead(segments: list[Sums], counts: tuple[int, ...]) -> float:
    return sum(one.storing + one.commit * EPOCHS / count for one, count in zip(segments, counts, strict=True))


def drawn(seed: int) -> list[Sums]:
    rng = random.Random(seed)
    return [
        segment(
            replay=rng.choice([0.0, rng.uniform(0, 2)]) if rng.random() < 0.3 else rng.uniform(0.1, 2),
            commit=rng.uniform(0.01, 0.3),
            storing=rng.uniform(0, 0.2),
            head=place == 0,
        )
        for place in range(rng.randint(2, 7))
    ]


def asked(seed: int) -> tuple[list[Sums], tuple[float, ...], float]:
    """Segments, their best continuous frequencies, and the budget."""
    segments = drawn(seed)
    least = sum(one.storing + (one.commit * EPOCHS if one.head else 0.0) for one in segments)
    budget = least + random.Random(seed + 1).uniform(0.02, 1.0)
    found = share(segments, budget, max_frequency=EPOCHS, head_frequency=EPOCHS)
    assert found is not None
    return segments, found.frequencies, budget


@pytest.mark.parametrize("seed", range(60))
def test_the_budget_is_kept_when_the_frequencies_kept_it(seed: int) -> None:
    segments, frequencies, budget = asked(seed)
    counts = whole_epochs(segments, frequencies, budget, EPOCHS, most=10**9)
    assert overhead(segments, counts) <= budget * (1 + 1e-8)
    assert all(type(count) is int and count >= 1 for count in counts)


@pytest.mark.parametrize("seed", range(60))
def test_no_single_epoch_less_would_fit_the_budget(seed: int) -> None:
    segments, frequencies, budget = asked(seed)
    most = random.Random(seed).choice([3, 10, 10**6])
    counts = whole_epochs(segments, frequencies, budget, EPOCHS, most)
    for place, (one, count) in enumerate(zip(segments, counts, strict=True)):
        if count > 1 and one.replay:
            fewer = (*counts[:place], count - 1, *counts[place + 1 :])
            assert overhead(segments, fewer) > budget * (1 - 1e-9)


@pytest.mark.parametrize("seed", range(60))
def test_heads_take_one_epoch_and_nobody_takes_more_than_most(seed: int) -> None:
    segments, frequencies, budget = asked(seed)
    for most in (1, 2, 5):
        counts = whole_epochs(segments, frequencies, budget, EPOCHS, most)
        assert all(count <= most for count in counts)
        assert [count for one, count in zip(segments, counts, strict=True) if one.head] == [1]


@pytest.mark.parametrize("seed", range(60))
def test_recovery_is_never_worse_than_with_frequencies_that_are_only_rounded_down(seed: int) -> None:
    segments, frequencies, budget = asked(seed)
    counts = whole_epochs(segments, frequencies, budget, EPOCHS, most=10**6)
    for one, count, frequency in zip(segments, counts, frequencies, strict=True):
        if frequency and not one.head:
            assert count <= max(1, math.ceil(EPOCHS / frequency))


def test_a_frequency_that_divides_the_epochs_is_kept() -> None:
    segments = [segment(head=True), segment(), segment()]
    frequencies = (EPOCHS, EPOCHS / 3, EPOCHS / 7)
    budget = overhead(segments, (1, 3, 7))
    assert whole_epochs(segments, frequencies, budget, EPOCHS, most=100) == (1, 3, 7)


@pytest.mark.parametrize("frequency", [EPOCHS, EPOCHS * 1.01, 1e9, math.inf])
def test_nobody_commits_more_often_than_once_an_epoch(frequency: float) -> None:
    segments = [segment(head=True, commit=0.0), segment(commit=0.0)]
    assert whole_epochs(segments, (EPOCHS, frequency), 0.0, EPOCHS, most=100) == (1, 1)


def test_a_frequency_just_below_the_epochs_is_rounded_down() -> None:
    segments = [segment(head=True), segment()]
    budget = overhead(segments, (1, 1)) - 0.01
    assert whole_epochs(segments, (EPOCHS, EPOCHS * 0.95), budget, EPOCHS, most=100) == (1, 2)


def test_what_rounding_saves_goes_where_it_shortens_recovery_most() -> None:
    segments = [segment(head=True), segment(replay=1.0), segment(replay=5.0)]
    frequencies = (EPOCHS, EPOCHS / 2.5, EPOCHS / 2.5)
    budget = overhead(segments, (1, 3, 2))
    assert whole_epochs(segments, frequencies, budget, EPOCHS, most=100) == (1, 3, 2)


def test_a_segment_that_never_replays_commits_as_rarely_as_it_may() -> None:
    segments = [segment(head=True), segment(replay=0.0)]
    assert whole_epochs(segments, (EPOCHS, 0.0), 100.0, EPOCHS, most=8) == (1, 8)


def test_a_bound_on_batches_goes_before_the_budget() -> None:
    segments = [segment(head=True), segment()]
    counts = whole_epochs(segments, (EPOCHS, EPOCHS / 50), overhead(segments, (1, 50)), EPOCHS, most=4)
    assert counts == (1, 4)
    assert overhead(segments, counts) > overhead(segments, (1, 50))


def test_no_segments_take_no_epochs() -> None:
    assert whole_epochs([], [], 1.0, EPOCHS, most=5) == ()
