"""The Redis store keeps the contract, and a server that fails in any way loses nothing silently."""

from __future__ import annotations

import pickle
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import redis
from tests.redis_servers import PRIMARY, RedisServer, RedisServers, server_program
from tests.waiting import eventually

pytest.register_assert_rewrite("tests.contract.log_store_contract")

from tests.contract.log_store_contract import (  # noqa: E402
    SCHEMA,
    LogStoreContract,
    covers,
    publish,
    rows,
)

from tidelock.epochs import Epoch  # noqa: E402
from tidelock.errors import BackendUnavailable, Fenced, LogCorrupt, LogNotFound, PipelineError  # noqa: E402
from tidelock.log import EpochLog, LogWriter, open_store  # noqa: E402

SECRET = "geheim-4711"
MEGABYTE = 1 << 17
"""So many whole numbers."""


class TestRedisStore(LogStoreContract):
    @pytest.fixture
    def url(self, redis_url: str) -> str:
        return f"{redis_url}/log"


def new_writer(url: str, epochs: int = 2) -> LogWriter:
    writer = EpochLog.create(url, SCHEMA).take_over("the test")
    for n in range(epochs):
        publish(writer, covers(n), [n])
    return writer


def patiently(change: Callable[[], object]) -> None:
    """Try again while the server is away, as a supervisor does."""

    def tried() -> bool:
        try:
            change()
        except BackendUnavailable:
            return False
        return True

    eventually(tried, "the server is back", patience=30)


def _refused(client: redis.Redis) -> int:
    """How many commands the server has refused so far."""
    return int(dict(client.info("stats"))["total_error_replies"])


# -- what URLs mean


def test_a_log_has_a_name(redis_server: RedisServer) -> None:
    with pytest.raises(PipelineError, match=r"a log needs a name behind the database: redis://.*/0/name"):
        open_store(redis_server.url)


def test_options_belong_to_no_name(redis_url: str) -> None:
    assert EpochLog.create(f"{redis_url}/words?timeout=2", SCHEMA).header.name == "words"


def test_logs_in_one_database_do_not_see_each_other(redis_url: str) -> None:
    one, two = new_writer(f"{redis_url}/one"), new_writer(f"{redis_url}/one/two", epochs=1)
    assert (list(rows(one.log)), list(rows(two.log))) == ([0, 1], [0])
    assert len(two.log.store.part_names()) == 1


def test_the_package_is_loaded_with_the_first_log_only() -> None:
    code = "import sys, tidelock.log; sys.exit('redis' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("tidelock.redis.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "tidelock.log.redis_store", raising=False)
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(PipelineError, match=r"need the package redis: install tidelock\[redis\]"):
        open_store("redis://localhost/0/log")


# -- a server that was away


def test_a_server_that_is_not_there(redis_servers: RedisServers) -> None:
    server = redis_servers.start()
    writer = new_writer(f"{server.url}/log?timeout=0.3")
    server.kill()
    with pytest.raises(
        BackendUnavailable, match=r"/log\?timeout=0.3: the server does not answer .* Start it, or see whether"
    ):
        publish(writer, covers(2), [2])
    with pytest.raises(BackendUnavailable, match="does not answer"):
        EpochLog.open(writer.log.url)


def test_a_server_that_kept_its_data_is_gone_on_with(redis_servers: RedisServers) -> None:
    server = redis_servers.start(appendonly="yes", appendfsync="always")
    writer = new_writer(f"{server.url}/log")
    server.restart()
    assert publish(writer, covers(2), [2])
    assert rows(writer.log) == {0: [0], 1: [1], 2: [2]}


def test_a_server_that_hangs(redis_servers: RedisServers) -> None:
    server = redis_servers.start()
    writer = new_writer(f"{server.url}/log?timeout=0.2")
    server.pause()
    began = time.monotonic()
    with pytest.raises(BackendUnavailable, match="does not answer"):
        publish(writer, covers(2), [2])
    assert time.monotonic() - began < 10
    server.resume()
    assert publish(writer, covers(2), [2])
    assert rows(writer.log) == {0: [0], 1: [1], 2: [2]}


# -- a server that has lost data


def test_a_server_that_comes_back_empty_is_no_log(redis_servers: RedisServers) -> None:
    server = redis_servers.start()
    writer = new_writer(f"{server.url}/log")
    server.restart(empty=True)
    lost = r"/log: the server has lost data of this log: its newest entry was that of epoch 1, and now it is none"
    with pytest.raises(LogCorrupt, match=lost):
        publish(writer, covers(2), [2])
    with pytest.raises(LogCorrupt, match=lost):
        writer.log.store.unpublish(writer.token, [covers(0)])
    with pytest.raises(LogNotFound):
        EpochLog.open(writer.log.url)


def test_loss_is_noticed_before_the_first_epoch(redis_servers: RedisServers) -> None:
    server = redis_servers.start()
    writer = new_writer(f"{server.url}/log", epochs=0)
    server.restart(empty=True)
    with pytest.raises(LogCorrupt, match="this run had taken it over, and now it is none"):
        publish(writer, covers(0), [0])


def test_a_writer_of_before_the_loss_does_not_pass_for_a_new_one(redis_servers: RedisServers) -> None:
    server = redis_servers.start()
    before = new_writer(f"{server.url}/log", epochs=1)
    server.restart(empty=True)
    after = new_writer(f"{server.url}/log", epochs=0)
    assert after.token == before.token
    with pytest.raises(Fenced, match="the test has taken this log over"):
        before.log.store.publish(before.token, covers(1), b"")
    with pytest.raises(LogCorrupt, match="the log has lost everything"):
        publish(before, covers(1), [1])
    assert publish(after, covers(0), [0])


def test_a_server_that_comes_back_with_older_data(redis_servers: RedisServers) -> None:
    server = redis_servers.start()
    writer = new_writer(f"{server.url}/log")
    with server.client() as client:
        client.save()
    publish(writer, covers(2), [2])
    server.restart()
    with pytest.raises(LogCorrupt, match="newest entry was that of epoch 2, and now it is that of epoch 1"):
        publish(writer, covers(3), [3])
    assert rows(writer.log) == {0: [0], 1: [1]}
    assert publish(writer.log.take_over("the next run"), covers(2), [22])


# -- a server that is full


def test_a_full_server_takes_no_part_and_drops_nothing(redis_servers: RedisServers) -> None:
    server = redis_servers.start(maxmemory="8mb")
    writer = new_writer(f"{server.url}/log?timeout=0.3")
    with pytest.raises(BackendUnavailable, match=r"no memory left, and nothing was changed. Give it more"):
        for n in range(2, 20):
            publish(writer, covers(n), [n] * MEGABYTE)
    kept = rows(writer.log)
    assert list(kept) == list(range(len(kept)))
    assert all(len(values) == MEGABYTE for n, values in kept.items() if n >= 2)
    assert len(writer.log.store.part_names()) == len(kept)


def test_a_full_server_lets_readers_make_room(redis_servers: RedisServers) -> None:
    server = redis_servers.start(maxmemory="8mb")
    writer = new_writer(f"{server.url}/log?timeout=0.3", epochs=0)
    filled = 0
    with pytest.raises(BackendUnavailable):
        for filled in range(20):
            publish(writer, covers(filled), [filled] * MEGABYTE)
    with server.client() as client:
        client.config_set("maxmemory", "2mb")
    writer.log.move_cursor("c", Epoch(filled - 1))
    assert len(writer.truncate()) == filled - 1
    with server.client() as client:
        client.config_set("maxmemory", "8mb")
    assert publish(writer, covers(filled), [filled] * MEGABYTE)


def test_a_part_waits_until_there_is_room(redis_servers: RedisServers) -> None:
    server = redis_servers.start()
    writer = new_writer(f"{server.url}/log?timeout=20", epochs=1)
    with server.client() as client, ThreadPoolExecutor(1) as meanwhile:
        client.config_set("maxmemory", 1)
        refused = _refused(client)

        def give_room() -> None:
            eventually(lambda: _refused(client) > refused, "the part was refused")
            client.config_set("maxmemory", 0)

        given = meanwhile.submit(give_room)
        assert publish(writer, covers(1), [1])
        given.result()


def test_a_server_that_drops_data_is_refused(redis_servers: RedisServers) -> None:
    server = redis_servers.start(maxmemory="8mb", maxmemory_policy="allkeys-lru")
    with pytest.raises(
        PipelineError, match=r"may drop data when it is full .*allkeys-lru\): set it to noeviction"
    ):
        EpochLog.create(f"{server.url}/log", SCHEMA)


# -- who may


def test_a_password_opens_the_log_and_is_never_shown(redis_servers: RedisServers) -> None:
    server = redis_servers.start(requirepass=SECRET)
    place = server.url.removeprefix("redis://")
    writer = new_writer(f"redis://:{SECRET}@{place}/log?timeout=0.2", epochs=1)
    assert pickle.loads(pickle.dumps(writer.log.store)).ranges() == [covers(0)]
    assert writer.log.shown == f"redis://:***@{place}/log?timeout=0.2"
    lost = writer.log.manifest(covers(0)).parts[0]
    writer.log.store.remove_parts([lost.file])
    server_is_away = (server.kill, lambda: writer.log.ranges())
    for broken in (
        lambda: list(writer.log.read_part(covers(0), lost)),
        lambda: EpochLog.open(f"redis://:{SECRET}@{place}/other"),
        lambda: [step() for step in server_is_away],
    ):
        with pytest.raises((LogCorrupt, LogNotFound, BackendUnavailable)) as failure:
            broken()
        assert ":***@" in str(failure.value)
        assert SECRET not in str(failure.value)


@pytest.mark.parametrize("who", ["", ":wrong@", "somebody:wrong@"])
def test_a_wrong_password_is_told(redis_servers: RedisServers, who: str) -> None:
    server = redis_servers.start(requirepass=SECRET)
    url = f"redis://{who}{server.address}/0/log?timeout=0.3"
    with pytest.raises(
        PipelineError, match=r"(refuses this user or password|wants a user and a password)"
    ) as told:
        EpochLog.create(url, SCHEMA)
    assert "wrong" not in str(told.value)


def test_a_log_over_tls(redis_servers: RedisServers) -> None:
    if b"tls-cert-file" not in Path(server_program()).read_bytes():
        pytest.skip("this server knows no TLS")
    certificates = redis_servers.certificates()
    server = redis_servers.start(tls=certificates)
    url = f"rediss://{server.address}/0/log"
    assert rows(new_writer(f"{url}?{certificates.query}").log) == {0: [0], 1: [1]}
    with pytest.raises(BackendUnavailable, match=r"certificate"):
        EpochLog.open(f"{url}?timeout=0.3")


# -- copies


def test_an_epoch_is_published_when_the_replica_has_it(redis_servers: RedisServers) -> None:
    primary = redis_servers.start()
    replica = redis_servers.replica(primary)
    writer = new_writer(f"{primary.url}/log?replicas=1", epochs=5)
    primary.kill()
    with replica.client() as client:
        client.execute_command("REPLICAOF", "NO", "ONE")
    copy = EpochLog.open(f"{replica.url}/log").take_over("the next run").log
    assert rows(copy) == {n: [n] for n in range(5)}
    assert copy.header == writer.log.header


def test_too_few_copies_show_nothing(redis_servers: RedisServers) -> None:
    primary = redis_servers.start()
    replica = redis_servers.replica(primary)
    writer = new_writer(f"{primary.url}/log?replicas=1")
    replica.kill()
    hasty = open_store(f"{primary.url}/log?replicas=1&timeout=0.3")
    for change in (
        lambda: hasty.write_part("a part", lambda file: file.write(b"rows")),
        lambda: hasty.publish(writer.token, covers(2), b"a manifest"),
        lambda: hasty.take_over("another"),
    ):
        with pytest.raises(
            BackendUnavailable, match=r"reached 0 replicas within 0.3 s, and 1 are wanted. See that"
        ):
            change()
        assert list(rows(writer.log)) == [0, 1]
        assert len(hasty.part_names()) == 2
    replica.start()
    primary.await_replica(replica)
    assert publish(writer.log.take_over("the next run"), covers(2), [2])
    assert rows(writer.log) == {0: [0], 1: [1], 2: [2]}


@pytest.mark.parametrize("next_writer", [True, False])
def test_an_entry_that_a_new_primary_has_only_staged_is_shown(
    redis_servers: RedisServers, next_writer: bool
) -> None:
    server = redis_servers.start()
    writer = new_writer(f"{server.url}/log", epochs=3)
    with server.client() as client:
        client.hset(
            "log:staged", mapping={"covers": "2-2", "manifest": client.hget("log:manifests", "2-2") or b""}
        )
        client.hdel("log:manifests", "2-2")
        client.zrem("log:entries", "2-2")
    assert list(rows(writer.log)) == [0, 1]
    if next_writer:
        writer = writer.log.take_over("the next run")
    assert publish(writer, covers(3), [3])
    assert rows(writer.log) == {n: [n] for n in range(4)}


@pytest.mark.chaos
def test_a_failover_loses_no_published_epoch(redis_servers: RedisServers) -> None:
    primary = redis_servers.start()
    replica = redis_servers.replica(primary)
    sentinel = redis_servers.sentinel(primary)
    writer = new_writer(f"redis://{sentinel.address}/0/log?replicas=1&timeout=3&sentinel={PRIMARY}", epochs=5)
    primary.kill()
    patiently(lambda: writer.log.move_cursor("c", Epoch(-1)))
    primary.start()
    primary.follow(replica)
    patiently(lambda: publish(writer, covers(5), [5]))
    patiently(lambda: publish(writer, covers(6), [6]))
    assert rows(EpochLog.open(writer.log.url)) == {n: [n] for n in range(7)}
