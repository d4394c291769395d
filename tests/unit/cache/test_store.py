"""Who may write to the cells, and that whoever may not writes nothing; on a real Redis server."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest
from tests.redis_servers import RedisServer, RedisServers
from tests.unit.cache.counting import HEADER, Adding, Counts, bucket, keys_of

from tidelock.cache.store import CellStore
from tidelock.epochs import BEFORE_FIRST, Epoch
from tidelock.errors import BackendUnavailable, Fenced
from tidelock.redis.conversation import Conversation

MANY = {f"key {i}": 1 for i in range(200)}


def everything(server: RedisServer) -> dict[bytes, Any]:
    """All that a server holds."""
    with server.client() as client:
        names: list[bytes] = client.keys("*")  # type: ignore[assignment]
        return {n: client.hgetall(n) if client.type(n) == b"hash" else client.get(n) for n in names}


@pytest.fixture
def server(redis_servers: RedisServers) -> RedisServer:
    return redis_servers.start()


# -- the documents


def test_a_place_that_was_never_used_has_no_state(redis_url: str) -> None:
    store = CellStore(redis_url)
    assert (store.header(), store.done(), store.fence()) == (None, BEFORE_FIRST, None)


def test_a_state_is_there_once_it_was_created(redis_url: str) -> None:
    store = CellStore(redis_url)
    store.create(HEADER, Epoch(4))
    assert (store.header(), store.done()) == (HEADER, 4)


def test_a_store_goes_to_other_processes(redis_url: str) -> None:
    CellStore(redis_url).create(HEADER, Epoch(4))
    assert pickle.loads(pickle.dumps(CellStore(redis_url))).header() == HEADER


@pytest.mark.parametrize(
    ("path", "others"),
    [
        ("a", ["a:b", "a:b0", "aa", "a/b", "b/a", "A"]),
        ("a*", ["ab", "a*b", "a"]),
        ("a[b-d]?", ["abx", "acx", "a[b-d]x"]),
        ("a\\b^]", ["ab^]", "a\\b"]),
    ],
)
def test_clear_removes_exactly_its_own(server: RedisServer, path: str, others: list[str]) -> None:
    quoted = [name.replace("?", "%3F").replace("[", "%5B").replace("]", "%5D") for name in [path, *others]]
    for name in quoted[1:]:
        Counts(f"{server.url}/{name}").run(0, {"a": 1, "b": 1})
    before = everything(server)
    own = Counts(f"{server.url}/{quoted[0]}")
    own.run(0, MANY)
    own.run(1, MANY, pinned=0)
    own.run(2, MANY, pinned=0)
    assert len(everything(server)) > len(before)
    own.store.clear()
    assert everything(server) == before


# -- tasks


def test_tasks_add_up(redis_url: str) -> None:
    counts = Counts(redis_url)
    counts.begin(0)
    assert counts.add({"a": 1, "b": 2}) == {"a": 1, "b": 2}
    counts.add({"c": 3})
    counts.end()
    counts.run(1, {"a": 10, "b": None})
    assert counts.counts(["a", "b", "c", "d"]) == {"a": 11, "c": 3}
    assert counts.store.done() == 1


def test_a_task_that_is_done_again_gives_the_same_cells(redis_url: str) -> None:
    counts = Counts(redis_url)
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


def test_cells_are_found_without_their_buckets(redis_url: str) -> None:
    counts = Counts(redis_url)
    names = ["key 3", "none", "key 7"]
    assert counts.store.find(keys_of(names).fields)[1].to_pylist() == [None] * 3
    counts.run(2, MANY)
    assert counts.store.find(keys_of(names).fields) == (2, counts.cells(names))
    assert counts.store.find(keys_of([]).fields) == (2, keys_of([]).fields)


def test_tasks_of_one_batch_do_not_wait_for_each_other(redis_url: str) -> None:
    counts = Counts(redis_url)
    counts.begin(0)
    both_have_read = Barrier(2, timeout=20)
    names = [f"key {i}" for i in range(100)]
    halves = [dict.fromkeys(names[:50], 1), dict.fromkeys(names[50:], 2)]
    tasks = [Adding(counts.store, counts.fence.claim, 0, half, both_have_read.wait) for half in halves]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda task: task.run(), tasks))
    assert counts.counts(names) == halves[0] | halves[1]


def test_a_task_reads_with_one_question_and_writes_with_one(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = Counts(redis_url)
    counts.begin(0)
    asked = []
    ask = Conversation.ask

    def counted(talk: Conversation, *commands: bytes) -> list[Any]:
        asked.append(len(commands))
        return ask(talk, *commands)

    monkeypatch.setattr(Conversation, "ask", counted)
    counts.add(MANY)
    buckets = len({bucket(name) for name in MANY})
    assert asked == [2 + buckets, 2 + buckets], "WATCH, GET and HMGETs; MULTI, HSETs and EXEC"


# -- the fence


def test_a_newer_run_shuts_the_older_one_out(server: RedisServer) -> None:
    old = Counts(f"{server.url}/x")
    old.run(0, MANY)
    old.begin(1)
    new = Counts(f"{server.url}/x", create=False)
    before = everything(server)
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
    assert everything(server) == before
    new.done = 0
    new.run(1, {"key 0": 5})
    assert new.counts(["key 0", "key 1"]) == {"key 0": 6, "key 1": 1}


@pytest.mark.parametrize("how", ["take over", "begin", "clear"])
def test_what_was_read_before_the_fence_changed_is_not_written(server: RedisServer, how: str) -> None:
    """A task reads in a batch of its own, and everything changes before it writes: not one bucket is touched."""
    counts = Counts(f"{server.url}/x")
    counts.run(0, MANY)
    counts.begin(1)
    left: dict[bytes, Any] = {}

    def change() -> None:
        if how == "take over":
            counts.store.take_over("another run")
        elif how == "begin":
            counts.end()
            counts.begin(2)
        else:
            counts.store.clear()
        left.update(everything(server))

    task = Adding(counts.store, counts.fence.claim, 1, MANY, change)
    with pytest.raises(BackendUnavailable if how == "clear" else Fenced):
        task.run()
    assert everything(server) == left


def test_a_batch_that_begins_again_wakes_no_old_task(server: RedisServer) -> None:
    """The same batch of the same run: what was read before it began again is read again, and counts once."""
    counts = Counts(f"{server.url}/x")
    counts.begin(0)
    task = Adding(counts.store, counts.fence.claim, 0, MANY, lambda: counts.begin(0))
    with pytest.raises(BackendUnavailable, match="its fence has changed while a task ran"):
        task.run()
    counts.add(MANY)
    assert counts.counts(list(MANY)) == MANY


def test_a_task_of_a_batch_that_is_over_writes_nothing(server: RedisServer) -> None:
    counts = Counts(f"{server.url}/x")
    counts.run(0, MANY)
    counts.begin(1)
    before = everything(server)
    with pytest.raises(Fenced, match="batch 0 is over, batch 1 has begun; nothing was written"):
        counts.add(MANY, batch=0)
    assert everything(server) == before


@pytest.mark.parametrize("emptied", ["cleared", "restarted"])
def test_a_run_is_shut_out_though_the_server_has_forgotten_it(redis_servers: RedisServers, emptied: str) -> None:
    """The state begins anew on an empty server: who wrote to the old one stays out, at the same batch too."""
    server = redis_servers.start()
    old = Counts(f"{server.url}/x")
    old.begin(0)
    if emptied == "cleared":
        old.store.clear()
    else:
        server.restart(empty=True)
    new = Counts(f"{server.url}/x")
    new.begin(0)
    with pytest.raises(Fenced):
        old.add({"a": 1})
    with pytest.raises(Fenced):
        old.begin(0)
    assert new.counts(["a"]) == {}


def test_owners_take_turns(redis_url: str) -> None:
    """Many take over at once: one of them is the last, and only that one may write."""
    runs = [Counts(redis_url)]
    with ThreadPoolExecutor(8) as pool:
        runs += pool.map(lambda _: Counts(redis_url, create=False), range(16))
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


# -- how far the cells are


def test_a_batch_begins_only_on_what_its_driver_believes(redis_url: str) -> None:
    counts = Counts(redis_url)
    counts.run(0, {"a": 1})
    counts.run(1, {"a": 1})
    for believed in (0, 2):
        counts.done = believed
        with pytest.raises(BackendUnavailable, match=rf"it is of epoch 1, not of epoch {believed}"):
            counts.begin(3)
    counts.done = 1
    counts.run(3, {"a": 1})
    assert counts.counts(["a"]) == {"a": 3}


def test_a_batch_that_was_through_is_run_again(redis_url: str) -> None:
    """Its end was told to the cache, and then everything died before Spark knew."""
    first = Counts(redis_url)
    first.run(0, {"a": 1})
    first.run(2, {"a": 1, "b": 1})
    again = Counts(redis_url, create=False)
    again.done = 0
    again.run(2, {"a": 1, "b": 1})
    again.run(3, {"a": 1})
    assert again.counts(["a", "b"]) == {"a": 3, "b": 1}


def test_a_run_keeps_the_pin_of_nobody_else(server: RedisServer) -> None:
    first = Counts(f"{server.url}/x")
    first.run(0, {"a": 1})
    first.run(1, {"a": 1}, pinned=0)
    first.run(2, {"a": 1}, pinned=0)
    aside = f"x:p{bucket('a')}".encode()
    assert aside in everything(server)
    again = Counts(f"{server.url}/x", create=False)
    assert (again.fence.pinned, again.fence.begun) == (None, 2)
    assert aside not in everything(server)


def test_buckets_of_any_size_are_tables_from_their_first_cell_on(server: RedisServer) -> None:
    """A server looks through a list for every field, which is most of its work if buckets have some hundred."""
    counts = Counts(f"{server.url}/x")
    counts.run(0, {"a": 1})
    counts.run(1, {"a": 1}, pinned=0)
    counts.run(2, {"a": 1}, pinned=0)
    counts.store.load(keys_of(["b"]), counts.cells(["a"]))
    names = [f"x:b{bucket('a')}", f"x:p{bucket('a')}", f"x:b{bucket('b')}"]
    with server.client() as client:
        assert [client.object("encoding", name) for name in names] == [b"hashtable"] * 3
    found, saved = counts.store.bucket(bucket("a"))
    assert found.fields.to_pylist() == saved.fields.to_pylist() == keys_of(["a"]).fields.to_pylist()
    assert counts.counts(["a", "b"]) == {"a": 3, "b": 3}
