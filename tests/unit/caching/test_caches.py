"""A segment with cached state is made ready although the cache has lost everything and nothing was copied yet."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from tidelock.cache.operator import StateShape
from tidelock.cache.store import CellStore, open_cells
from tidelock.caching.caches import CachedSegment, Caches, kept_states
from tidelock.epochs import BEFORE_FIRST, Epoch, EpochRange
from tidelock.errors import BackendUnavailable
from tidelock.home.events import Events
from tidelock.home.home import Home, Record, SegmentRecord
from tidelock.log import EpochLog, Retention
from tidelock.log.entry import Manifest
from tidelock.recovery import Unrecoverable
from tidelock.recovery.cached import goes_on
from tidelock.spark.checkpoint.checkpoint import Checkpoint
from tidelock.spark.checkpoint.replay import read_replay
from tidelock.spark.query.batches import Stopped

COLUMNS = {"type": "struct", "fields": [{"name": "n", "type": "long", "nullable": True, "metadata": {}}]}
SHAPE = StateShape(pa.schema([("k", pa.string())]), pa.schema([("n", pa.int64())]))
LAST = 3


class Job:
    """A segment `counts` with cached state, behind a log `words` that begins at some epoch, without Spark."""

    def __init__(self, folder: Path, cache: str, first: int) -> None:
        self.home = Home(folder, cache=cache)
        self.first = first
        kept = Retention(wait_for=frozenset({"counts", "counts.snapshot"}))
        self.log = EpochLog.create(self.home.log("words"), COLUMNS, name="words", retention=kept)
        self.publish(first, first)
        cached = CachedSegment("counts", "counts", SHAPE, ((self.home.log("words"), 0),))
        self.caches = Caches(self.home, {"counts": cached}, 20, Events(self.home))

    def publish(self, first: int, last: int) -> None:
        writer = self.log.take_over("a run of words")
        for epoch in map(Epoch, range(first, last + 1)):
            writer.publish(Manifest(self.log.header.id, EpochRange.single(epoch), COLUMNS, (), ()))

    def run(self) -> None:
        """One batch for each epoch, as Spark leaves them in a checkpoint."""
        self.publish(self.first + 1, LAST)
        checkpoint = Path(self.home.checkpoint("counts"))
        for batch, epoch in enumerate(range(self.first, LAST + 1)):
            offset = {"tidelock": self.log.header.id, "name": "words", "together": 1}
            lines = ["v1", '{"batchWatermarkMs": 0}', json.dumps({**offset, "start": epoch - 1, "epoch": epoch})]
            for name, text in {"offsets": "\n".join(lines), "commits": "v1\n{}"}.items():
                (checkpoint / name).mkdir(parents=True, exist_ok=True)
                (checkpoint / name / str(batch)).write_text(text)

    def store(self) -> CellStore:
        return open_cells(self.home.state("counts"))

    def position(self) -> Epoch:
        return Checkpoint(None, self.home.checkpoint("counts")).position()


@pytest.fixture
def jobs(tmp_path: Path, redis_url: str) -> Iterator[list[Job]]:
    """Jobs whose log begins at the epochs 0, 1 and 2."""
    made = [Job(tmp_path / str(first), f"{redis_url}/{first}", first) for first in range(3)]
    yield made
    for job in made:
        job.caches.close(60)


@pytest.mark.parametrize(("done", "going_on"), [(LAST - 2, False), (LAST - 1, True), (LAST, True)])
def test_a_kill_between_the_cache_and_the_commit_loses_no_state(
    jobs: list[Job], done: int, going_on: bool
) -> None:
    job = jobs[0]
    assert job.caches.open("counts") is not None
    job.run()
    (Path(job.home.checkpoint("counts")) / "commits" / str(LAST)).unlink()
    store = job.store()
    store.create(store.header() or b"", Epoch(done))
    counts = SegmentRecord("counts", ("counts",), (("words", 0),), None, "counts")
    kept = kept_states(job.home, Record("job", {}, {}, (counts,), {}))
    assert kept.epochs == {"counts": {BEFORE_FIRST, done}}
    checkpoint = Checkpoint(None, job.home.checkpoint("counts"))
    assert goes_on(kept.cached["counts"], checkpoint.position(), checkpoint.begun()) == going_on


@pytest.mark.parametrize("first", [0, 1, 2])
def test_it_starts_over_wherever_its_log_begins(jobs: list[Job], first: int) -> None:
    job = jobs[first]
    assert job.caches.open("counts") is not None
    job.run()
    job.store().clear()
    assert job.caches.open("counts") is not None
    assert (job.position(), job.store().done()) == (BEFORE_FIRST, BEFORE_FIRST)
    replay = read_replay(job.home.replay("counts"))
    assert replay is not None
    assert replay.ends == tuple(range(first, LAST + 1)), "the same batches come again"


@pytest.mark.parametrize("first", [0, 1, 2])
def test_it_does_not_start_over_when_its_log_has_lost_its_beginning(jobs: list[Job], first: int) -> None:
    job = jobs[first]
    job.caches.open("counts")
    job.run()
    job.store().clear()
    job.log.move_cursor("counts", Epoch(first))
    job.log.move_cursor("counts.snapshot", Epoch(first))
    job.log.take_over("a run of words").truncate()
    job.log.move_cursor("counts.snapshot", Epoch(first - 1))
    with pytest.raises(Unrecoverable, match="the cache does not have its state and there is no snapshot"):
        job.caches.open("counts")


def test_a_roll_back_that_has_failed_is_finished_before_the_segment_runs_on(
    jobs: list[Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    job = jobs[0]
    assert job.caches.open("counts") is not None
    job.run()
    job.store().clear()
    with monkeypatch.context() as patched:
        patched.setattr(Checkpoint, "roll_back", _no_room)
        with pytest.raises(BackendUnavailable):
            job.caches.open("counts")
    assert job.position() == LAST
    job.store().create(job.store().header() or b"", Epoch(LAST))  # as if nothing had to go back any more
    assert job.caches.open("counts") is not None
    replay = read_replay(job.home.replay("counts"))
    assert replay is not None
    assert (job.position(), replay.rolled_back) == (BEFORE_FIRST, True)


def _no_room(checkpoint: Checkpoint, batch: int | None) -> None:
    raise BackendUnavailable("no room")


@pytest.mark.parametrize("step", [1, 2, 3, 4])
def test_a_start_that_nobody_waits_for_changes_nothing_more(jobs: list[Job], step: int) -> None:
    """Another one may be under way: nothing is taken over, and only what it would do as well has been done."""
    job, steps = jobs[0], iter(range(1, 100))
    job.caches.open("counts")
    job.run()
    job.store().clear()

    def check() -> None:
        if next(steps) == step:
            raise Stopped("nobody waits")

    with pytest.raises(Stopped):
        job.caches.open("counts", check)
    assert job.store().fence() is None
    assert (job.store().header() is None) == (step < 3), "the state begins again in the second step"
    assert job.position() == (LAST if step < 4 else BEFORE_FIRST), "the checkpoint goes back in the third"
    job.caches.open("counts", check)
    assert (job.position(), job.store().done()) == (BEFORE_FIRST, BEFORE_FIRST)
