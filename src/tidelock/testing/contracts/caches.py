"""What every store of cells has to do.

A class of yours derives from `CellStoreContract` and gives the fixture ``url``: the URL of a place that was never
used. Everything else is asked of `tidelock.cache.store.open_cells`. How a server that restarts or is replaced is
noticed is not in it: no test here knows your server. `CellStore` says what has to happen then.
"""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest

from tidelock.cache.store import BUCKETS, open_cells
from tidelock.epochs import BEFORE_FIRST, Epoch
from tidelock.errors import BackendUnavailable, Fenced
from tidelock.testing.cells import HEADER, Adding, Counts, keys_of

MANY: dict[str, int | None] = {f"key {i}": 1 for i in range(200)}


def everything(url: str) -> dict[str, Any]:
    """All that a store holds."""
    store = open_cells(url)
    held = [(cells.fields, cells.cells) for number in range(BUCKETS) for cells in store.bucket(number)]
    buckets = [sorted(zip(fields.to_pylist(), cells.to_pylist(), strict=True)) for fields, cells in held]
    return {"header": store.header(), "done": store.done(), "fence": store.fence(), "buckets": buckets}


class CellStoreContract:
    """The contract."""

    @pytest.fixture
    def url(self) -> str:
        raise NotImplementedError("the backend's test class gives the URL")

    def test_a_place_below_another_is_one_of_its_own(self, url: str) -> None:
        above, below = Counts(url), Counts(open_cells(url).under("below").url)
        below.run(0, MANY)
        above.run(0, {"key 0": 7})
        above.store.clear()
        assert (above.store.header(), above.store.done()) == (None, BEFORE_FIRST)
        assert below.counts(list(MANY)) == MANY

    def test_a_place_that_was_never_used_has_no_state(self, url: str) -> None:
        store = open_cells(url)
        assert (store.header(), store.done(), store.fence()) == (None, BEFORE_FIRST, None)

    def test_a_state_is_there_once_it_was_created(self, url: str) -> None:
        store = open_cells(url)
        store.create(HEADER, Epoch(4))
        assert (store.header(), store.done()) == (HEADER, 4)

    def test_a_store_goes_to_other_processes(self, url: str) -> None:
        open_cells(url).create(HEADER, Epoch(4))
        assert pickle.loads(pickle.dumps(open_cells(url))).header() == HEADER

    def test_tasks_add_up(self, url: str) -> None:
        counts = Counts(url)
        counts.begin(0)
        assert counts.add({"a": 1, "b": 2}) == {"a": 1, "b": 2}
        counts.add({"c": 3})
        counts.end()
        counts.run(1, {"a": 10, "b": None})
        assert counts.counts(["a", "b", "c", "d"]) == {"a": 11, "c": 3}
        assert counts.store.done() == 1

    def test_a_task_that_is_done_again_gives_the_same_cells(self, url: str) -> None:
        counts = Counts(url)
        counts.run(0, MANY)
        counts.begin(3)
        first = counts.add(MANY)
        cells = counts.cells(list(MANY))
        assert counts.add(MANY) == first
        assert counts.cells(list(MANY)) == cells
        with ThreadPoolExecutor(4) as pool:
            results = list(pool.map(lambda _: counts.add(MANY), range(8)))
        assert results == [first] * 8
        assert counts.cells(list(MANY)) == cells

    def test_cells_are_found_without_their_buckets(self, url: str) -> None:
        counts = Counts(url)
        names = ["key 3", "none", "key 7"]
        assert counts.store.find(keys_of(names).fields)[1].to_pylist() == [None] * 3
        counts.run(2, MANY)
        assert counts.store.find(keys_of(names).fields) == (2, counts.cells(names))
        assert counts.store.find(keys_of([]).fields) == (2, keys_of([]).fields)

    def test_tasks_of_one_batch_do_not_wait_for_each_other(self, url: str) -> None:
        counts = Counts(url)
        counts.begin(0)
        both_have_read = Barrier(2, timeout=20)
        names = [f"key {i}" for i in range(100)]
        halves = [dict.fromkeys(names[:50], 1), dict.fromkeys(names[50:], 2)]
        tasks = [Adding(counts.store, counts.fence.claim, 0, half, both_have_read.wait) for half in halves]
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda task: task.run(), tasks))
        assert counts.counts(names) == halves[0] | halves[1]

    def test_a_newer_run_shuts_the_older_one_out(self, url: str) -> None:
        old = Counts(url)
        old.run(0, MANY)
        old.begin(1)
        new = Counts(url, create=False)
        before = everything(url)
        with pytest.raises(
            Fenced, match="a run has taken this state over; this run must stop and has written nothing"
        ):
            old.add(MANY)
        with pytest.raises(Fenced):
            old.end()
        with pytest.raises(Fenced):
            old.begin(1)
        with pytest.raises(Fenced):
            old.store.held(old.fence.claim, 1)
        assert everything(url) == before
        new.done = 0
        new.run(1, {"key 0": 5})
        assert new.counts(["key 0", "key 1"]) == {"key 0": 6, "key 1": 1}

    @pytest.mark.parametrize("how", ["take over", "begin", "clear"])
    def test_what_was_read_before_the_fence_changed_is_not_written(self, url: str, how: str) -> None:
        """A task reads in a batch of its own, and all changes before it writes: not one bucket is touched."""
        counts = Counts(url)
        counts.run(0, MANY)
        counts.begin(1)
        left: dict[str, Any] = {}

        def change() -> None:
            if how == "take over":
                counts.store.take_over("another run")
            elif how == "begin":
                counts.end()
                counts.begin(2)
            else:
                counts.store.clear()
            left.update(everything(url))

        task = Adding(counts.store, counts.fence.claim, 1, MANY, change)
        with pytest.raises(BackendUnavailable if how == "clear" else Fenced):
            task.run()
        assert everything(url) == left

    def test_a_batch_that_begins_again_wakes_no_old_task(self, url: str) -> None:
        """The same batch of the same run: what was read before it began again is read again, and counts once."""
        counts = Counts(url)
        counts.begin(0)
        task = Adding(counts.store, counts.fence.claim, 0, MANY, lambda: counts.begin(0))
        with pytest.raises(BackendUnavailable, match="its fence has changed while a task ran"):
            task.run()
        counts.add(MANY)
        assert counts.counts(list(MANY)) == MANY

    def test_a_task_of_a_batch_that_is_over_writes_nothing(self, url: str) -> None:
        counts = Counts(url)
        counts.run(0, MANY)
        counts.begin(1)
        before = everything(url)
        with pytest.raises(Fenced, match="batch 0 is over, batch 1 has begun; nothing was written"):
            counts.add(MANY, batch=0)
        assert everything(url) == before

    def test_owners_take_turns(self, url: str) -> None:
        """Many take over at once: one of them is the last, and only that one may write."""
        runs = [Counts(url)]
        with ThreadPoolExecutor(8) as pool:
            runs += pool.map(lambda _: Counts(url, create=False), range(16))
        tokens = [run.fence.token for run in runs]
        assert len(set(tokens)) == len(tokens)
        fence = runs[0].store.fence()
        assert fence is not None
        for run in runs:
            if run.fence.token == fence.token:
                run.begin(0)
            else:
                with pytest.raises(Fenced):
                    run.begin(0)

    def test_a_batch_begins_only_on_what_its_driver_believes(self, url: str) -> None:
        counts = Counts(url)
        counts.run(0, {"a": 1})
        counts.run(1, {"a": 1})
        for believed in (0, 2):
            counts.done = believed
            with pytest.raises(BackendUnavailable, match=rf"it is of epoch 1, not of epoch {believed}"):
                counts.begin(3)
        counts.done = 1
        counts.run(3, {"a": 1})
        assert counts.counts(["a"]) == {"a": 3}

    def test_a_batch_that_was_through_is_run_again(self, url: str) -> None:
        """Its end was told to the cache, and then everything died before Spark knew."""
        first = Counts(url)
        first.run(0, {"a": 1})
        first.run(2, {"a": 1, "b": 1})
        again = Counts(url, create=False)
        again.done = 0
        again.run(2, {"a": 1, "b": 1})
        again.run(3, {"a": 1})
        assert again.counts(["a", "b"]) == {"a": 3, "b": 1}
