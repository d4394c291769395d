"""Snapshots of cells are of exactly one epoch, whatever goes on meanwhile, and bring back exactly that."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from tests.redis_servers import RedisServer, RedisServers
from tests.unit.cache.counting import cells_held

from tidelock.cache.cells import Cells
from tidelock.cache.redis_cells import RedisCells
from tidelock.cache.snapshots import Snapshots
from tidelock.cache.store import open_cells
from tidelock.epochs import Epoch
from tidelock.errors import BackendUnavailable, Fenced, LogCorrupt
from tidelock.testing.cells import HEADER, SHAPE, Counts, bucket, decoded

KEYS = [f"key {i}" for i in range(150)]
MANY = dict.fromkeys(KEYS, 1)


@pytest.fixture
def snapshots(tmp_path: Path) -> Snapshots:
    return Snapshots(f"file:{tmp_path}/snapshots")


def contents(snapshots: Snapshots, epoch: int) -> dict[str, int | None]:
    """What a snapshot holds, by key."""
    found: dict[str, int | None] = {}
    for keys, versions in snapshots.read(Epoch(epoch)):
        names = SHAPE.key_codec().decode(keys.fields).column("k").to_pylist()
        assert keys.buckets.tolist() == [bucket(name) for name in names]
        assert not found.keys() & set(names)
        assert all(at <= epoch for at in versions.epochs)
        found |= dict(zip(names, decoded(versions.values), strict=True))
    return found


def take(snapshots: Snapshots, counts: Counts, epoch: int) -> int:
    return snapshots.take(counts.store, SHAPE, Epoch(epoch), counts.fence, counts.server)


def stored_keys(server: RedisServer, path: str) -> int:
    """How many cells are there, of whatever kind."""
    with server.client() as client:
        return cells_held(client, path)


class Goings:
    """Epochs that go on and on, and what is true after each of them."""

    def __init__(self, url: str) -> None:
        self.counts = Counts(url)
        self.history: dict[int, dict[str, int]] = {-1: {}}
        self.random = Random(5)
        self.pinned: int | None = None

    def go_on(self) -> None:
        epoch = self.counts.done + self.random.randint(1, 2)
        drawn = self.random.sample(KEYS, 60)
        amounts = {key: None if self.random.random() < 0.3 else self.random.randint(1, 9) for key in drawn}
        before = self.history[self.counts.done]
        changed = {key: before.get(key, 0) + more for key, more in amounts.items() if more is not None}
        self.counts.run(epoch, amounts, self.pinned)
        self.history[epoch] = {k: n for k, n in before.items() if k not in amounts} | changed

    def pin(self) -> int:
        """From the next epoch on the epoch that is done now is pinned."""
        self.pinned = self.counts.done
        self.go_on()
        return self.pinned


def going_on(goings: Goings, until: threading.Event) -> Iterator[None]:
    while not until.is_set():
        goings.go_on()
        yield


def test_a_snapshot_is_of_its_epoch_though_epochs_go_on(redis_url: str, snapshots: Snapshots) -> None:
    goings = Goings(redis_url)
    goings.go_on()
    for _ in range(2):
        epoch = goings.pin()
        taken = threading.Event()
        epochs: list[None] = []
        writer = threading.Thread(target=lambda stop=taken, seen=epochs: seen.extend(going_on(goings, stop)))
        writer.start()
        try:
            keys = take(snapshots, goings.counts, epoch)
        finally:
            taken.set()
            writer.join()
        assert epochs, "epochs went on meanwhile"
        assert contents(snapshots, epoch) == goings.history[epoch]
        assert keys == len(goings.history[epoch])
    assert goings.counts.counts(KEYS) == goings.history[goings.counts.done], "nothing that lives was swept away"


def test_a_snapshot_that_is_read_late_is_still_whole(redis_url: str, snapshots: Snapshots) -> None:
    goings = Goings(redis_url)
    goings.go_on()
    epoch = goings.pin()
    for _ in range(10):
        goings.go_on()
    take(snapshots, goings.counts, epoch)
    assert contents(snapshots, epoch) == goings.history[epoch]


def test_a_snapshot_brings_its_epoch_back(redis_url: str, snapshots: Snapshots) -> None:
    goings = Goings(redis_url)
    goings.go_on()
    goings.go_on()
    epoch = goings.pin()
    take(snapshots, goings.counts, epoch)
    goings.go_on()
    other = open_cells(f"{redis_url}/other")
    for store in (goings.counts.store, other):  # one that holds something else, and one that holds nothing
        assert snapshots.load(Epoch(epoch), store, HEADER) == len(goings.history[epoch])
        assert (store.header(), store.done()) == (HEADER, epoch)
    for url in (redis_url, f"{redis_url}/other"):
        counts = Counts(url, epoch, create=False)
        assert counts.counts(KEYS) == goings.history[epoch]
        counts.run(epoch + 1, {KEYS[0]: 1})
        assert counts.counts(KEYS[:1]) == {KEYS[0]: goings.history[epoch].get(KEYS[0], 0) + 1}


def test_a_load_that_is_cut_off_leaves_no_state(
    redis_url: str, snapshots: Snapshots, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = Counts(redis_url)
    counts.run(0, MANY)
    counts.begin(1, pinned=0)
    take(snapshots, counts, 0)
    loads = []
    load = RedisCells.load

    def load_some(*arguments: object) -> None:
        loads.append(arguments)
        if len(loads) == 20:
            raise BackendUnavailable("gone")
        load(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(RedisCells, "load", load_some)
    with pytest.raises(BackendUnavailable, match="gone"):
        snapshots.load(Epoch(0), counts.store, HEADER)
    assert (counts.store.header(), counts.store.fence()) == (None, None)
    assert snapshots.load(Epoch(0), counts.store, HEADER) == len(MANY)
    assert Counts(redis_url, 0, create=False).counts(KEYS) == MANY


def test_a_damaged_snapshot_is_told(redis_url: str, snapshots: Snapshots, tmp_path: Path) -> None:
    counts = Counts(redis_url)
    counts.run(0, MANY)
    counts.begin(1, pinned=0)
    take(snapshots, counts, 0)
    part = max(tmp_path.rglob("*.arrow"), key=lambda file: file.stat().st_size)
    data = bytearray(part.read_bytes())
    data[len(data) // 2] ^= 0xFF
    part.write_bytes(data)
    with pytest.raises(LogCorrupt):
        snapshots.load(Epoch(0), counts.store, HEADER)
    assert counts.store.header() is None


def test_only_the_newest_is_kept(redis_url: str, snapshots: Snapshots, tmp_path: Path) -> None:
    counts = Counts(redis_url)
    counts.run(0, MANY)
    for epoch in (1, 2, 3):
        counts.run(epoch, MANY, pinned=epoch - 1)
        take(snapshots, counts, epoch - 1)
        assert snapshots.epochs() == [epoch - 1]
        parts = len(list(tmp_path.rglob("*.arrow")))
        assert parts == len(list(snapshots.read(Epoch(epoch - 1)))) // 32
    assert contents(snapshots, 2) == dict.fromkeys(KEYS, 3)


def test_a_snapshot_is_given_up_when_another_run_takes_over(redis_url: str, snapshots: Snapshots) -> None:
    """The versions that were set aside for it are gone then: what is left is not the state of any epoch."""
    old = Counts(redis_url)
    old.run(0, MANY)
    old.run(1, MANY, pinned=0)
    old.run(2, MANY, pinned=0)
    new = Counts(redis_url, 2, create=False)
    for pinned in (None, 2):
        with pytest.raises(Fenced, match="a run has taken this state over"):
            take(snapshots, old, 0)
        new.run(new.done + 1, MANY, pinned)
    assert snapshots.epochs() == []
    take(snapshots, new, 2)
    assert contents(snapshots, 2) == dict.fromkeys(KEYS, 3)


def test_a_snapshot_that_fails_leaves_the_one_before(redis_servers: RedisServers, snapshots: Snapshots) -> None:
    server = redis_servers.start(appendonly="yes", appendfsync="always")
    counts = Counts(f"{server.url}/x?timeout=2")
    counts.run(0, MANY)
    counts.run(1, MANY, pinned=0)
    take(snapshots, counts, 0)
    counts.run(2, MANY, pinned=1)
    server.kill()
    with pytest.raises(BackendUnavailable):
        take(snapshots, counts, 1)
    assert contents(snapshots, 0) == MANY
    server.start()
    with pytest.raises(BackendUnavailable, match="it restarted, or was replaced, while epoch 1 was copied"):
        take(snapshots, counts, 1)
    assert contents(snapshots, 0) == MANY
    counts.run(3, MANY, pinned=1)
    take(snapshots, counts, 1)
    assert contents(snapshots, 1) == dict.fromkeys(KEYS, 2)


def test_what_was_forgotten_is_swept_away_and_nothing_else(
    redis_servers: RedisServers, snapshots: Snapshots
) -> None:
    server = redis_servers.start()
    counts = Counts(f"{server.url}/x")
    counts.run(0, MANY)
    counts.run(1, dict.fromkeys(KEYS[:50]))
    counts.run(2, dict.fromkeys(KEYS[40:60], 1), pinned=1)
    counts.run(3, dict.fromkeys(KEYS[100:120]), pinned=1)
    assert stored_keys(server, "x") == len(KEYS)
    take(snapshots, counts, 1)
    assert contents(snapshots, 1) == dict.fromkeys(KEYS[50:], 1)
    assert stored_keys(server, "x") == len(KEYS) - 40, "those that were forgotten later may be written again"
    live = {**dict.fromkeys(KEYS[40:100], 1), **dict.fromkeys(KEYS[50:60], 2), **dict.fromkeys(KEYS[120:], 1)}
    assert counts.counts(KEYS) == live
    counts.run(4, {}, pinned=3)
    take(snapshots, counts, 3)
    assert stored_keys(server, "x") == len(live)
    assert counts.counts(KEYS) == live


def test_a_snapshot_of_a_full_server_makes_room(redis_servers: RedisServers, snapshots: Snapshots) -> None:
    server = redis_servers.start()
    counts = Counts(f"{server.url}/x?timeout=0.5")
    counts.run(0, MANY)
    counts.run(1, dict.fromkeys(KEYS[:100]))
    counts.run(2, {}, pinned=1)
    with server.client() as client:
        client.config_set("maxmemory", 1)
        take(snapshots, counts, 1)
    assert contents(snapshots, 1) == dict.fromkeys(KEYS[100:], 1)
    assert stored_keys(server, "x") == len(KEYS) - 100


def test_a_cell_that_has_changed_is_not_dropped(redis_url: str) -> None:
    counts = Counts(redis_url)
    counts.run(0, {"a": 1})
    counts.run(1, {"a": None}, pinned=0)
    found, _ = counts.store.bucket(bucket("a"))
    counts.run(2, {"a": 5}, pinned=0)
    assert counts.store.drop(bucket("a"), found.fields, found.cells) == 0
    assert counts.counts(["a"]) == {"a": 5}
    counts.run(3, {"a": None}, pinned=0)
    found, _ = counts.store.bucket(bucket("a"))
    assert Cells(found.cells).newest().values.to_pylist() == [None]
    assert counts.store.drop(bucket("a"), found.fields, found.cells) == 1
    nothing = pa.array([], pa.binary())
    assert counts.store.drop(bucket("a"), nothing, nothing) == 0
    counts.run(4, {"a": 7})
    assert counts.counts(["a"]) == {"a": 7}
