"""An operator with state in a real Redis does what a dictionary does: late rows, ended state, epochs again."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.redis_servers import RedisServer
from tests.unit.cache.counting import cells_held

from tidelock.cache import aggregates
from tidelock.cache.changes import Aggregate
from tidelock.cache.fence import Fence
from tidelock.cache.operator import BUCKET, CachedOperator, Expiry, StateShape, without_ends
from tidelock.cache.snapshots import Snapshots
from tidelock.cache.store import open_cells
from tidelock.epochs import BEFORE_FIRST, Epoch
from tidelock.testing.cells import bucket

SECOND = 1_000_000
AFTER = 5 * SECOND
ROWS = pa.schema([("k", pa.string()), ("v", pa.int64()), ("t", pa.timestamp("us", "UTC")), (BUCKET, pa.int32())])
CHANGE = Aggregate(("k",), {"n": aggregates.count(), "total": aggregates.sum("v")})

Row = tuple[str, int, int]
"""A key, a value and an event time in seconds."""


@dataclass(frozen=True)
class Batch:
    """What an epoch brings, how far the watermark is, in seconds, and what goes wrong."""

    rows: list[Row]
    advance: int
    again: bool
    restart: bool


ROW = st.tuples(st.sampled_from("abcdef"), st.integers(-5, 5), st.integers(1, 40))
BATCHES = st.lists(
    st.builds(Batch, st.lists(ROW, max_size=8), st.integers(0, 12), st.booleans(), st.booleans()), max_size=8
)


@dataclass
class Model:
    """The same in plain Python. State is a count, a sum and an end."""

    expires: bool
    state: dict[str, tuple[int, int, int]] = field(default_factory=dict)

    def epoch(self, rows: list[Row], watermark: int) -> dict[str, tuple[int, int]]:
        if self.expires:
            self.state = {key: one for key, one in self.state.items() if one[2] > watermark}
            rows = [row for row in rows if row[2] > watermark]
        for key, value, time in rows:
            count, total, end = self.state.get(key, (0, 0, 0))
            self.state[key] = (count + 1, total + value, max(end, time + AFTER // SECOND))
        return {key: self.state[key][:2] for key, _, _ in rows}


class Job:
    """The operator on a real store, with two tasks per batch."""

    def __init__(self, url: str, *, expires: bool) -> None:
        self.url = url
        self.shape = StateShape(
            pa.schema([ROWS.field("k")]), CHANGE.state(ROWS), Expiry("t", AFTER) if expires else None
        )
        self.store = open_cells(url)
        self.store.create(b"header", BEFORE_FIRST)
        self.fence: Fence = self.store.take_over("the job")
        self.done = BEFORE_FIRST

    def begin(self, watermark: int, pinned: Epoch | None = None) -> str:
        epoch = self.done + 1
        self.fence = replace(self.fence, batch=epoch, begun=epoch, watermark=watermark * 1000, pinned=pinned)
        return self.store.begin(self.fence, self.done)

    def compute(self, rows: list[Row]) -> dict[str, tuple[int, int]]:
        told: dict[str, tuple[int, int]] = {}
        for part in (0, 1):
            operator = CachedOperator(self.url, self.fence.claim, self.shape, CHANGE)
            made = operator.process(self.fence.batch, table([row for row in rows if bucket(row[0]) % 2 == part]))
            if made is not None:
                assert made.schema.equals(CHANGE.output(ROWS))
                told |= {row["k"]: (row["n"], row["total"]) for row in made.to_pylist()}
        return told

    def end(self, server: str) -> None:
        self.store.end(self.fence, server)
        self.done = Epoch(self.done + 1)

    def cells(self) -> list[object]:
        read = (self.store.bucket(bucket(key)) for key in "abcdef")
        return [(one.cells.to_pylist(), saved.cells.to_pylist()) for one, saved in read]


def table(rows: list[Row]) -> pa.Table:
    given = [{"k": k, "v": v, "t": t * SECOND, BUCKET: bucket(k)} for k, v, t in rows]
    return pa.Table.from_pylist(given, ROWS)


@pytest.mark.parametrize("expires", [True, False], ids=["expiring", "lasting"])
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batches=BATCHES)
def test_epochs_are_those_of_a_dictionary(redis_server: RedisServer, expires: bool, batches: list[Batch]) -> None:
    job = Job(f"{redis_server.url}/{uuid.uuid4().hex}", expires=expires)
    model = Model(expires)
    watermark = 0
    for batch in batches:
        watermark += batch.advance
        server = job.begin(watermark, pinned=job.done)
        told = job.compute(batch.rows)
        assert told == model.epoch(batch.rows, watermark)
        cells = job.cells()
        if batch.restart:
            job.fence = job.store.take_over("the next run")
            server = job.begin(watermark, pinned=job.done)
        if batch.again or batch.restart:
            assert job.compute(batch.rows) == told
            assert job.cells() == cells
        job.end(server)
    job.store.clear()


@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batches=BATCHES, later=st.integers(0, 20))
def test_snapshots_hold_what_has_not_ended(
    redis_server: RedisServer, tmp_path: Path, batches: list[Batch], later: int
) -> None:
    name = uuid.uuid4().hex
    job, model, watermark = Job(f"{redis_server.url}/{name}", expires=True), Model(expires=True), 0
    for batch in [*batches, Batch([("a", 1, 40)], 0, again=False, restart=False)]:
        watermark += batch.advance
        server = job.begin(watermark)
        assert job.compute(batch.rows) == model.epoch(batch.rows, watermark)
        job.end(server)
    pinned, watermark = job.done, watermark + later
    server = job.begin(watermark, pinned)
    model.epoch([], watermark)
    snapshots = Snapshots(f"file:{tmp_path}/{name}")
    assert snapshots.take(job.store, job.shape, pinned, job.fence, server) == len(model.state)
    found = {}
    for keys, versions in snapshots.read(pinned):
        names = job.shape.key_codec().decode(keys.fields).column("k").to_pylist()
        values = without_ends(job.shape, versions.values).to_pylist()
        found |= dict(zip(names, [(one["n.n"], one["total.v"]) for one in values], strict=True))
    assert found == {key: one[:2] for key, one in model.state.items()}
    with redis_server.client() as client:
        assert cells_held(client, name) == len(model.state)
    rows: list[Row] = [(key, 1, 60) for key in "abcdef"]
    assert job.compute(rows) == model.epoch(rows, watermark)
    job.store.clear()
