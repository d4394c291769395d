"""Logs that have lost entries anywhere: the best of all ways to choose is taken, and found in few steps."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from tests.property.test_recovery_adjust import backups, is_consistent

from tidelock.epochs import Epoch
from tidelock.recovery import Held, Link, Pieces, Remains, Shape, Unrecoverable, adjust, violations

Needs = tuple[Epoch, ...]


@st.composite
def losses(draw: st.DrawFn) -> tuple[Shape, dict[str, Remains]]:
    """A pipeline whose logs have lost entries, and whose segments have begun batches, or have lost state."""
    shape, found = draw(backups(largest=4, longest=7))
    return shape, {name: _lost(draw, one, bool(shape[name])) for name, one in found.items()}


def _lost(draw: st.DrawFn, one: Remains, reads: bool) -> Remains:
    committed, needs = one.safe[-1], dict[Epoch, tuple[Needs, ...]]()
    kept = one.safe
    if reads and len(one.safe) > 1 and draw(st.booleans()):  # the state of its newest version is gone
        kept = one.safe[:-1]
        needs[committed] = tuple((version,) for version in kept)
    window = one.window
    if window is None:
        return Remains(one.safe, None, needs)
    assert isinstance(window, Held)
    if reads and window.tail > committed and draw(st.booleans()):  # a batch was begun, and its entry is there
        ways = tuple((version, committed) for version in kept) if needs else ((committed,),)
        return Remains((*one.safe, window.tail), Pieces((window,)), {**needs, window.tail: ways})
    return Remains(one.safe, _pieces(draw, window, committed), needs)


def _pieces(draw: st.DrawFn, window: Held, written: Epoch) -> Pieces:
    present = draw(st.lists(st.booleans(), min_size=len(window.ends), max_size=len(window.ends)))
    runs: list[list[Epoch]] = []
    before, follows = window.head, False
    for end, is_there in zip(window.ends, present, strict=True):
        if is_there and follows:
            runs[-1].append(end)
        elif is_there:
            runs.append([before, end])
        before, follows = end, is_there
    whole = all(present) and window.tail >= written
    held = tuple(Held(run[0], tuple(run[1:])) for run in runs)
    return Pieces(held or ((window,) if whole else ()), None if whole else written)


def every_choice(shape: Shape, found: dict[str, Remains]) -> Iterator[dict[str, Epoch]]:
    """All consistent versions, with all windows that the logs can be given."""
    for windows in product(*(_windows(one.window) for one in found.values())):
        held = dict(zip(found, windows, strict=True))
        ways = [_usable(shape, name, one, held) for name, one in found.items()]
        chosen = {name: Remains(one.safe, held[name]) for name, one in found.items()}
        for picked in product(*ways):
            versions = dict(zip(shape, picked, strict=True))
            if is_consistent(shape, chosen, versions):
                yield versions


def _windows(log: Held | Pieces | None) -> list[Held | None]:
    if log is None:
        return [None]
    assert isinstance(log, Pieces)
    return [*log.held, *([] if log.written is None else [Held(log.written)])]


def _usable(shape: Shape, name: str, one: Remains, held: dict[str, Held | None]) -> list[Epoch]:
    """The versions of a segment of which it can read again what they need, from logs as they were found."""
    return [
        version
        for version in one.safe
        if any(
            all(_holds(held[link.upstream], link, need, version) for link in shape[name] for need in needs)
            for needs in one.needs.get(version, ((),))
        )
    ]


def _holds(window: Held | None, link: Link, after: Epoch, last: Epoch) -> bool:
    first, end = link.position(after), link.position(last)
    return first == end or (window is not None and window.is_boundary(first) and window.is_boundary(end))


@settings(max_examples=400, deadline=None)
@given(losses())
def test_no_way_to_choose_windows_and_versions_is_better(lost: tuple[Shape, dict[str, Remains]]) -> None:
    shape, found = lost
    choices = list(every_choice(shape, found))
    if not choices:
        event("unrecoverable")
        with pytest.raises(Unrecoverable):
            adjust(shape, found)
        return
    adjusted = adjust(shape, found)
    best = {name: max(versions[name] for versions in choices) for name in shape}
    event(f"in pieces: {sum(isinstance(f.window, Pieces) and len(f.window.held) != 1 for f in found.values())}")
    event(f"needs: {any(one.needs for one in found.values())}")
    assert {name: adjusted.version(name) for name in shape} == best
    assert best in choices
    assert violations(shape, found, adjusted) == []


@pytest.mark.parametrize("segments", [20, 200])
def test_the_number_of_steps_is_polynomial(monkeypatch: pytest.MonkeyPatch, segments: int) -> None:
    """Every log has lost its tail and a part in the middle, so each could be given four windows."""
    steps = 0
    serves = Pieces.serves

    def counted(log: Pieces, position: Epoch, version: Epoch, needs: Needs = ()) -> bool:
        nonlocal steps
        steps += 1
        return serves(log, position, version, needs)

    monkeypatch.setattr(Pieces, "serves", counted)
    shape, found = lost_tails(segments)
    adjusted = adjust(shape, found)
    assert {step.version for step in adjusted.steps.values()} == {6}, "the newest that the first log has"
    assert violations(shape, found, adjusted) == []
    versions, links = sum(len(one.safe) for one in found.values()), segments - 1
    assert steps <= versions * links, "of 4 ** segments choices"


def lost_tails(segments: int) -> tuple[Shape, dict[str, Remains]]:
    """A chain; everybody is at the tenth epoch, and logs have the first ones and some of the later ones."""
    names = [f"s{number}" for number in range(segments)]
    shape: Shape = {name: (Link(names[n - 1]),) if n else () for n, name in enumerate(names)}
    safe = tuple(map(Epoch, range(-1, 11)))
    held = [Held(Epoch(-1), tuple(map(Epoch, range(3)))), Held(Epoch(3), tuple(map(Epoch, (4, 5, 6))))]
    return shape, {name: Remains(safe[: 8 + n % 4], Pieces(tuple(held), Epoch(6))) for n, name in enumerate(names)}
