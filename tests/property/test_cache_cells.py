"""Whatever is written again, and by whoever died: cells tell what a dictionary of full histories tells.

The machine plays the batches of one operator. A batch may be tried several times, and attempts that die have
written some of its cells; each later batch has a larger epoch. While a snapshot is pinned, versions that it would
lose are set aside, as tasks do.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tidelock.cache.cells import Cells, Versions, single, written
from tidelock.errors import InternalError

KEYS = tuple("abcde")
NEVER = -1
CHANGES = st.dictionaries(st.sampled_from(KEYS), st.none() | st.binary(max_size=3), max_size=5)


class Operator(RuleBasedStateMachine):
    """Cells of a few keys, and beside them everything that was ever true."""

    def __init__(self) -> None:
        super().__init__()
        self.cells: dict[str, bytes] = {}
        self.saved: dict[str, bytes] = {}
        self.done = NEVER
        self.pinned: int | None = None
        self.history: dict[int, dict[str, bytes]] = {NEVER: {}}
        self.written_at: dict[str, int] = {}

    # -- what happens

    @initialize(loaded=st.dictionaries(st.sampled_from(KEYS), st.binary(max_size=3)), at=st.integers(0, 5))
    def load_a_snapshot(self, loaded: dict[str, bytes], at: int) -> None:
        values = pa.array(list(loaded.values()), pa.binary())
        cells = single(Versions(np.full(len(loaded), at), values))
        self.cells = dict(zip(loaded, cells.to_pylist(), strict=True))
        self.done = at
        self.history = {at: dict(loaded)}
        self.written_at = dict.fromkeys(loaded, at)

    @rule(changes=CHANGES, size=st.integers(1, 3), data=st.data())
    def run_a_batch(self, changes: dict[str, bytes | None], size: int, data: st.DataObject) -> None:
        epoch = self.done + size
        for _ in range(data.draw(st.integers(0, 2))):
            self.attempt(epoch, {k: v for k, v in changes.items() if data.draw(st.booleans())})
        self.attempt(epoch, changes)
        first_result = {key: self.cells[key] for key in changes}
        self.attempt(epoch, changes)
        assert {key: self.cells[key] for key in changes} == first_result, "written twice, it is the same"
        state = {**self.history[self.done], **changes}
        self.history[epoch] = {key: value for key, value in state.items() if value is not None}
        self.written_at |= dict.fromkeys(changes, epoch)
        self.done = epoch

    def attempt(self, epoch: int, changes: dict[str, bytes | None]) -> None:
        keys = list(changes)
        cells = Cells(self.stored(keys))
        before = cells.before(epoch)
        assert before.values.to_pylist() == [self.history[self.done].get(key) for key in keys]
        assert before.epochs.tolist() == [self.written_at.get(key, NEVER) for key in keys]
        if self.pinned is not None:
            doomed, at = cells.doomed(epoch, self.pinned)
            self.saved |= {
                key: single(Versions(at.epochs[[i]], at.values[i : i + 1]))[0].as_py()
                for i, key in enumerate(keys)
                if doomed[i]
            }
        new = written(epoch, pa.array(list(changes.values()), pa.binary()), before)
        self.cells |= dict(zip(keys, new.to_pylist(), strict=True))

    @rule()
    def pin(self) -> None:
        self.pinned, self.saved = self.done, {}

    @precondition(lambda self: self.pinned is not None)
    @rule()
    def unpin(self) -> None:
        self.pinned, self.saved = None, {}

    @precondition(lambda self: any(at > 0 for at in self.written_at.values()))
    @rule(data=st.data())
    def compute_what_is_long_over(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from([key for key, at in self.written_at.items() if at > 0]))
        with pytest.raises(InternalError, match=r"state of epoch \d+ was found while epoch \d+ is computed"):
            Cells(self.stored([key])).before(self.written_at[key] - 1)

    # -- what always holds

    @invariant()
    def the_newest_is_told(self) -> None:
        newest = Cells(self.stored(KEYS)).newest()
        assert newest.values.to_pylist() == [self.history[self.done].get(key) for key in KEYS]
        assert newest.there.tolist() == [key in self.history[self.done] for key in KEYS]

    @invariant()
    def the_snapshot_is_whole(self) -> None:
        if self.pinned is None:
            return
        versions, lost = Cells(self.stored(KEYS)).at(self.pinned)
        found = {
            key: value
            for key, value, gone in zip(KEYS, versions.values.to_pylist(), lost, strict=True)
            if not gone and value is not None
        }
        aside = Cells(pa.array(list(self.saved.values()), pa.binary())).newest()
        kept = dict(zip(self.saved, aside.values.to_pylist(), strict=True))
        assert not found.keys() & kept.keys()
        assert found | kept == self.history[self.pinned]

    def stored(self, keys: list[str] | tuple[str, ...]) -> pa.BinaryArray:
        return pa.array([self.cells.get(key) for key in keys], pa.binary())


TestOperator = Operator.TestCase
TestOperator.settings = settings(max_examples=40, stateful_step_count=20, deadline=None)


def test_a_cell_from_the_future_is_told_from_one_that_is_written_again() -> None:
    nothing = Versions(np.array([NEVER]), pa.array([None], pa.binary()))
    cell = Cells(written(7, pa.array([b"x"]), nothing))
    assert cell.before(8).values.to_pylist() == [b"x"]
    assert cell.before(7).values.to_pylist() == [None]
    with pytest.raises(InternalError, match="state of epoch 7 was found while epoch 6 is computed"):
        cell.before(6)
