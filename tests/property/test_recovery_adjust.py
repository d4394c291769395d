"""Whatever was copied when: the adjusted state is consistent, and no consistent state is fresher.

A small model runs random pipelines (merges, splits, loops, batches of several epochs): segments publish, commit
and truncate as the epoch log's rules say. Then each segment's checkpoint and log are taken from moments of that
run, all from one moment for a crash, each from its own for a disaster with a backup.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from tidelock.epochs import BEFORE_FIRST, Epoch
from tidelock.recovery import Held, Link, Remains, Shape, Unrecoverable, adjust, violations

NAMES = "abcde"


@dataclass
class Model:
    """A pipeline at work: what each segment has committed, and what its log holds."""

    shape: Shape
    eager: bool  # whether output is read before its producer has committed it
    committed: dict[str, list[int]] = field(default_factory=dict)
    head: dict[str, int] = field(default_factory=dict)
    ends: dict[str, list[int]] = field(default_factory=dict)
    moments: list[tuple[dict[str, tuple[int, ...]], dict[str, Held]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        for name in self.shape:
            self.committed[name], self.head[name], self.ends[name] = [-1], -1, []
        self.remember()

    def remember(self) -> None:
        checkpoints = {name: tuple(done) for name, done in self.committed.items()}
        logs = {name: Held(Epoch(self.head[name]), tuple(map(Epoch, self.ends[name]))) for name in self.shape}
        self.moments.append((checkpoints, logs))

    def tail(self, name: str) -> int:
        return self.ends[name][-1] if self.ends[name] else self.head[name]

    def publish(self, name: str, size: int) -> None:
        """The next batch, at least `size` epochs long if the inputs have them; once per commit."""
        at = self.committed[name][-1]
        if self.tail(name) > at:
            return
        if not self.shape[name]:
            self.ends[name].append(at + size)
            return
        possible = [end for end in range(at + 1, at + 20) if self.is_readable(name, end)]
        if possible:
            self.ends[name].append(next((end for end in possible if end >= at + size), possible[-1]))

    def is_readable(self, name: str, end: int) -> bool:
        positions = {link: max(-1, end - link.lag) for link in self.shape[name]}
        return all(
            position in (self.head[link.upstream], *self.ends[link.upstream])
            and (self.eager or position <= self.committed[link.upstream][-1])
            for link, position in positions.items()
        )

    def commit(self, name: str) -> None:
        if self.tail(name) > self.committed[name][-1]:
            self.committed[name].append(self.tail(name))

    def truncate(self, name: str) -> None:
        """Drop what every reader has finished; a log without readers keeps everything."""
        cursors = [
            max(-1, self.committed[reader][-1] - link.lag)
            for reader, inputs in self.shape.items()
            for link in inputs
            if link.upstream == name
        ]
        gone = [end for end in self.ends[name] if cursors and end <= min(cursors)]
        if gone:
            self.head[name], self.ends[name] = gone[-1], self.ends[name][len(gone) :]


@st.composite
def shapes(draw: st.DrawFn, largest: int) -> Shape:
    names = NAMES[: draw(st.integers(1, largest))]
    shape: dict[str, tuple[Link, ...]] = {}
    for place, name in enumerate(names):
        inputs = draw(st.sets(st.sampled_from(names[:place]), max_size=2)) if place else set()
        loops = draw(st.sets(st.sampled_from(names[place:]), max_size=1)) if draw(st.booleans()) else set()
        shape[name] = (*map(Link, sorted(inputs)), *(Link(upstream, lag=1) for upstream in sorted(loops)))
    return shape


@st.composite
def runs(draw: st.DrawFn, largest: int = 5, longest: int = 12, eager: bool | None = None) -> Model:
    """In every round each segment may publish (0: it is busy), commit, and have its log truncated."""
    model = Model(draw(shapes(largest)), draw(st.booleans()) if eager is None else eager)
    turns = st.tuples(st.integers(0, 3), st.integers(0, 3), st.booleans())
    for _ in range(draw(st.integers(1, longest))):
        for name in model.shape:
            size, busy, truncates = draw(turns)
            if size:
                model.publish(name, size)
                model.remember()
            if busy != 3:
                model.commit(name)
                model.remember()
            if truncates:
                model.truncate(name)
                model.remember()
    return model


@st.composite
def backups(draw: st.DrawFn, largest: int = 5, longest: int = 12) -> tuple[Shape, dict[str, Remains]]:
    """Checkpoints that keep so many versions, and logs, each copied at a moment of its own."""
    model = draw(runs(largest, longest))
    read = {link.upstream for inputs in model.shape.values() for link in inputs}
    keep = draw(st.integers(1, 6))
    latest = len(model.moments) - 1
    moment = st.integers(0, latest).map(lambda age: latest - age)
    found = {}
    for name in model.shape:
        safe = model.moments[draw(moment)][0][name][-keep:]
        log = model.moments[draw(moment)][1][name] if name in read or draw(st.booleans()) else None
        found[name] = Remains(tuple(map(Epoch, safe)), log)
    return model.shape, found


def is_consistent(shape: Shape, found: dict[str, Remains], versions: dict[str, int]) -> bool:
    """The definition, spelled out on plain sets of epochs."""
    boundaries = {}
    for name, version in versions.items():
        log = found[name].window
        if log is not None and version < log.head:
            boundaries[name] = {version}
        elif log is not None:
            boundaries[name] = {end for end in (log.head, *log.ends) if end <= version}
            if version not in boundaries[name]:
                return False
    return all(
        max(-1, versions[name] - link.lag) in boundaries[link.upstream]
        for name, inputs in shape.items()
        for link in inputs
    )


@given(runs(eager=False), st.data())
@settings(max_examples=300, deadline=None)
def test_after_a_crash_every_segment_has_its_newest_version(model: Model, data: st.DataObject) -> None:
    checkpoints, logs = data.draw(st.sampled_from(model.moments))
    found = {name: Remains(tuple(map(Epoch, checkpoints[name])), logs[name]) for name in model.shape}
    adjusted = adjust(model.shape, found)
    assert {name: adjusted.version(name) for name in found} == {
        name: safe[-1] for name, safe in checkpoints.items()
    }
    assert violations(model.shape, found, adjusted) == []


@given(backups())
@settings(max_examples=500, deadline=None)
def test_the_adjusted_state_of_a_backup_is_consistent_and_stays(backup: tuple[Shape, dict[str, Remains]]) -> None:
    shape, found = backup
    try:
        adjusted = adjust(shape, found)
    except Unrecoverable:
        event("unrecoverable")
        return
    event(f"log restarted: {any(step.restart_log for step in adjusted.steps.values())}")
    assert violations(shape, found, adjusted) == []
    assert all(step.version in found[name].safe for name, step in adjusted.steps.items())
    after = {name: found[name].after(step) for name, step in adjusted.steps.items()}
    again = adjust(shape, after)
    for name, step in again.steps.items():
        assert step.version == adjusted.version(name)
        assert not (step.roll_back or step.rewind or step.restart_log)


@given(backups(largest=4, longest=8))
@settings(max_examples=500, deadline=None)
def test_no_consistent_state_is_fresher_in_any_segment(backup: tuple[Shape, dict[str, Remains]]) -> None:
    shape, found = backup
    choices = [
        versions
        for picked in product(*(found[name].safe for name in shape))
        if is_consistent(shape, found, versions := dict(zip(shape, picked, strict=True)))
    ]
    if not choices:
        with pytest.raises(Unrecoverable):
            adjust(shape, found)
        return
    adjusted = adjust(shape, found)
    best = {name: max(versions[name] for versions in choices) for name in shape}
    assert {name: adjusted.version(name) for name in shape} == best
    assert best in choices


@given(backups())
@settings(max_examples=200, deadline=None)
def test_who_may_start_from_nothing_always_recovers(backup: tuple[Shape, dict[str, Remains]]) -> None:
    shape, found = backup
    anew = {name: Remains(tuple(sorted({BEFORE_FIRST, *one.safe})), one.window) for name, one in found.items()}
    assert violations(shape, anew, adjust(shape, anew)) == []
