"""Steps through subjects: forward only, on boundaries only, everything once, and never stuck."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tidelock.following.merging import BEHIND, MOST, Pace, SilenceClock, next_position, silent

NAMES = "abc"


def each_second(log: str, end: int) -> float:
    return float(end)


@st.composite
def logs(draw: st.DrawFn) -> tuple[dict[str, int], dict[str, list[int]]]:
    """A position, and the boundaries of what the logs hold around it."""
    position, ends = {}, {}
    for name in NAMES[: draw(st.integers(1, 3))]:
        sizes = draw(st.lists(st.integers(1, 3), max_size=30))
        ends[name] = [sum(sizes[: n + 1]) - 1 for n in range(len(sizes))]
        position[name] = draw(st.sampled_from([-1, *ends[name]]))
    return position, ends


paces = st.builds(
    Pace,
    aligned=st.dictionaries(st.sampled_from(NAMES), st.integers(-1, 40)),
    due=st.booleans(),
    impatient=st.booleans(),
    merges=st.booleans(),
)


def news(position: dict[str, int], ends: dict[str, list[int]], name: str) -> list[int]:
    return [end for end in ends[name] if end > position[name]]


@settings(max_examples=300, deadline=None)
@given(where=logs(), pace=paces)
def test_a_step_goes_forward_to_boundaries_and_moves_somewhere(
    where: tuple[dict[str, int], dict[str, list[int]]], pace: Pace
) -> None:
    position, ends = where
    step = next_position(position, ends, pace, each_second)
    if step is None:
        return
    assert step.keys() == position.keys()
    assert step != position
    for name, at in step.items():
        assert at == position[name] or at in news(position, ends, name)


@settings(max_examples=300, deadline=None)
@given(where=logs(), pace=paces)
def test_what_a_step_takes_of_aligned_subjects(
    where: tuple[dict[str, int], dict[str, list[int]]], pace: Pace
) -> None:
    position, ends = where
    step = next_position(position, ends, pace, each_second)
    stepped = [n for n in position if n in pace.aligned and position[n] >= pace.aligned[n]]
    there = {name: news(position, ends, name) for name in position}
    if stepped and all(there[name] for name in stepped):
        assert step is not None
        assert all(step[name] > position[name] for name in stepped), "all of them go"
        first = max(there[name][0] for name in stepped)
        one = {name: max(end for end in there[name] if end <= max(first, there[name][0])) for name in stepped}
        if not pace.merges or min(len(there[name]) for name in stepped) < BEHIND:
            assert {name: step[name] for name in stepped} == one, "what was there when the last one published"
        else:
            assert all(step[name] >= one[name] for name in stepped), "and perhaps further steps"
            assert min(there[name].index(step[name]) + 1 for name in stepped) <= MOST
    elif stepped and step is not None and not pace.merges:
        assert all(step[name] in (position[name], *there[name][:1]) for name in stepped), (
            "a local step is no larger"
        )
    for name, start in pace.aligned.items():
        if step is not None and name in step and position[name] < start < step[name]:
            assert there[name][0] == step[name], "only an entry that holds its start takes a subject past it"


@settings(max_examples=300, deadline=None)
@given(where=logs(), pace=paces)
def test_whoever_has_no_patience_never_waits(
    where: tuple[dict[str, int], dict[str, list[int]]], pace: Pace
) -> None:
    position, ends = where
    pace = Pace(pace.aligned, due=True, impatient=True, merges=pace.merges)
    pending = any(news(position, ends, name) for name in position)
    assert (next_position(position, ends, pace, each_second) is not None) == pending


@settings(max_examples=100, deadline=None)
@given(
    publishing=st.lists(st.sets(st.sampled_from(NAMES), min_size=1), min_size=1, max_size=150),
    rates=st.fixed_dictionaries({name: st.integers(1, 5) for name in NAMES}),
)
def test_the_backlog_stays_bounded_and_whoever_comes_late_makes_the_same_steps(
    publishing: list[set[str]], rates: dict[str, int]
) -> None:
    """After every publication a job steps as often as it can; all subjects publish at rates of their own."""
    at = dict.fromkeys(NAMES, -1)
    ends: dict[str, list[int]] = {name: [] for name in NAMES}
    published: dict[tuple[str, int], float] = {}
    steps: list[dict[str, int]] = []
    for now, who in enumerate(publishing):
        for name in who:
            new = range(len(ends[name]), len(ends[name]) + rates[name])
            ends[name] += new
            published.update({(name, end): float(now) for end in new})
        made = all_steps(at, ends, published)
        assert len(made) <= 1, "nothing is left of what all had published before"
        steps += made
        at = steps[-1] if steps else at
        assert silent(at, ends, NAMES), "somebody has nothing left, and the others wait for that one only"
    assert all_steps(dict.fromkeys(NAMES, -1), ends, published) == steps


def all_steps(
    at: dict[str, int], ends: dict[str, list[int]], published: dict[tuple[str, int], float]
) -> list[dict[str, int]]:
    """The steps that an aligned job makes with what is there."""
    steps = []
    pace = Pace(dict.fromkeys(NAMES, -1))
    while (step := next_position(at, ends, pace, lambda log, end: published[log, end])) is not None:
        at = dict(step)
        steps.append(at)
    return steps


@settings(max_examples=100, deadline=None)
@given(fast=st.lists(st.integers(1, 4), min_size=1, max_size=200))
def test_with_the_slowest_nobody_falls_behind(fast: list[int]) -> None:
    """One entry of a slow subject at a time, any number of a fast one: the fast one is taken up to its end."""
    at, ends = {"fast": -1, "slow": -1}, {"fast": list[int](), "slow": list[int]()}
    pace = Pace({"fast": -1, "slow": -1})
    for now, size in enumerate(fast):
        ends["fast"] += range(len(ends["fast"]), len(ends["fast"]) + size)
        ends["slow"].append(now)
        step = next_position(at, ends, pace, lambda log, end, now=now: now)
        assert step == {"fast": ends["fast"][-1], "slow": ends["slow"][-1]}
        at = dict(step)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(st.floats(0, 7), st.sets(st.sampled_from(NAMES)), st.sampled_from(["went", "without", "no"])),
        max_size=30,
    )
)
@example(
    [
        (0.0, {"a"}, "no"),
        (5.0, {"a"}, "no"),
        (5.0, {"a"}, "without"),
        (0.0, {"a"}, "no"),
        (5.0, {"a"}, "no"),
        (5.0, set(), "no"),
    ]
)
def test_waiting_ends_after_patience_and_not_before_something_was_held_up(
    looks: list[tuple[float, set[str], str]],
) -> None:
    waiting, now, held_up_since = SilenceClock(), 0.0, None
    for seconds, missed, then in looks:
        now += seconds
        pending = len(missed) < len(NAMES)
        held_up_since = (now if held_up_since is None else held_up_since) if pending else None
        over = waiting.is_over(frozenset(missed), pending=pending, now=now, patience=10.0)
        if held_up_since is None:
            assert not over
        elif now - held_up_since >= 10.0:
            assert over
        if over and then == "without":
            waiting.went_without(frozenset(missed))
            held_up_since = None
            assert not missed or waiting.is_over(frozenset(missed), pending=True, now=now, patience=10.0)
        elif not missed and then == "went":
            waiting.all_went()
            held_up_since = None
            assert not waiting.is_over(frozenset("a"), pending=True, now=now, patience=10.0)
            waiting.all_went()
