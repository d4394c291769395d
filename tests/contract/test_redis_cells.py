"""Who may write to the cells, and that whoever may not writes nothing; on a real Redis server."""

from __future__ import annotations

from typing import Any

import pytest
from tests.redis_servers import RedisServer, RedisServers

from tidelock.errors import Fenced
from tidelock.redis.conversation import Conversation
from tidelock.testing.cells import Counts, bucket, keys_of
from tidelock.testing.contracts.caches import MANY, CellStoreContract


def everything(server: RedisServer) -> dict[bytes, Any]:
    """All that a server holds."""
    with server.client() as client:
        names: list[bytes] = client.keys("*")  # type: ignore[assignment]
        return {n: client.hgetall(n) if client.type(n) == b"hash" else client.get(n) for n in names}


class TestRedisCells(CellStoreContract):
    @pytest.fixture
    def url(self, redis_url: str) -> str:
        return redis_url


@pytest.fixture
def server(redis_servers: RedisServers) -> RedisServer:
    return redis_servers.start()


# -- the documents


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


# -- how far the cells are


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
