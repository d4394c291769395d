"""The Redis store keeps the contract, and a server that fails in any way loses nothing silently."""

from __future__ import annotations

import pickle
import re
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import redis
from tests.redis_servers import PRIMARY, RedisServer, RedisServers, knows_tls
from tests.waiting import eventually

from tidelock.credentials import FILE, PASSWORDS
from tidelock.epochs import Epoch
from tidelock.errors import BackendUnavailable, Fenced, LogCorrupt, LogNotFound, PipelineError
from tidelock.log import EpochLog, LogWriter, open_store
from tidelock.log.entry import Manifest
from tidelock.log.stores.redis import RedisStore
from tidelock.log.stores.redis_scripts import FINISH_STAGED, PUBLISH, TAKE_OVER
from tidelock.testing.contracts.logs import LogStoreContract
from tidelock.testing.logs import SCHEMA, covers, publish, rows, write_part

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
    monkeypatch.delitem(sys.modules, "tidelock.log.stores.redis", raising=False)
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(PipelineError, match=r"pip install .tidelock\[redis\]"):
        open_store("redis://localhost/0/log")


# -- a server that was away


def test_a_server_that_is_not_there(redis_servers: RedisServers) -> None:
    server = redis_servers.start()
    writer = new_writer(f"{server.url}/log?timeout=2")
    server.kill()
    with pytest.raises(
        BackendUnavailable, match=r"/log\?timeout=2: the server does not answer .* Start it, or see whether"
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
    writer = new_writer(f"{server.url}/log?timeout=2")
    server.pause()
    began = time.monotonic()
    with pytest.raises(BackendUnavailable, match="does not answer"):
        publish(writer, covers(2), [2])
    assert time.monotonic() - began < 60
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
    writer = new_writer(f"{server.url}/log?timeout=2")
    with pytest.raises(BackendUnavailable, match=r"no memory left, and nothing was changed. Give it more"):
        for n in range(2, 20):
            publish(writer, covers(n), [n] * MEGABYTE)
    kept = rows(writer.log)
    assert list(kept) == list(range(len(kept)))
    assert all(len(values) == MEGABYTE for n, values in kept.items() if n >= 2)
    assert len(writer.log.store.part_names()) == len(kept)


def test_a_full_server_lets_readers_make_room(redis_servers: RedisServers) -> None:
    server = redis_servers.start(maxmemory="8mb")
    writer = new_writer(f"{server.url}/log?timeout=2", epochs=0)
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
    writer = new_writer(f"redis://:{SECRET}@{place}/log?timeout=2", epochs=1)
    assert pickle.loads(pickle.dumps(writer.log.store)).ranges() == [covers(0)]
    assert writer.log.url == writer.log.shown == f"redis://{place}/log?timeout=2"
    assert SECRET.encode() not in pickle.dumps(writer.log.store)
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
        assert place in str(failure.value)
        assert SECRET not in str(failure.value)


@pytest.mark.parametrize("who", ["", ":wrong@", "somebody:wrong@"])
def test_a_wrong_password_is_told(redis_servers: RedisServers, who: str) -> None:
    server = redis_servers.start(requirepass=SECRET)
    url = f"redis://{who}{server.address}/0/log?timeout=2"
    with pytest.raises(
        PipelineError, match=r"(refuses this user or password|wants a user and a password)"
    ) as told:
        EpochLog.create(url, SCHEMA)
    assert "wrong" not in str(told.value)


def test_the_example_of_the_page_runs(redis_servers: RedisServers, monkeypatch: pytest.MonkeyPatch) -> None:
    server = redis_servers.start(requirepass="boss")
    with server.client() as boss:
        boss.execute_command("ACL", "SETUSER", "writer", "on", f">{SECRET}", "~*", "&*", "+@all")
    monkeypatch.setenv("REDIS_ADDRESS", server.address)
    monkeypatch.setenv("REDIS_PASSWORD", SECRET)
    monkeypatch.setenv(FILE, "")  # so that it is as before afterwards
    page = Path(__file__).parents[2] / "docs" / "credentials.md"
    (example,) = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    exec(compile(example, str(page), "exec"), {})
    with server.client() as boss:
        assert boss.exists("words:documents")


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("said", ["the server's", "its own"])
def test_a_sentinel_is_asked_as_who_it_wants_and_over_tls(
    redis_servers: RedisServers, monkeypatch: pytest.MonkeyPatch, secure: bool, said: str
) -> None:
    if secure and not knows_tls():
        pytest.skip("this server knows no TLS")
    tls = redis_servers.certificates() if secure else None
    of_sentinel = SECRET if said == "the server's" else "another-word"
    primary = redis_servers.start(tls=tls, requirepass=SECRET, masterauth=SECRET)
    redis_servers.replica(primary, tls=tls, requirepass=SECRET, masterauth=SECRET)
    sentinel = redis_servers.sentinel(primary, tls=tls, password=of_sentinel, of_primary=SECRET)
    scheme, files = ("rediss", f"&{tls.query}") if tls else ("redis", "")
    url = f"{scheme}://:{SECRET}@{sentinel.address}/0/log?sentinel={PRIMARY}&timeout=3{files}"
    if said == "its own":
        with pytest.raises(
            PipelineError, match=f"no Sentinel says where '{PRIMARY}' is .*: say who you are"
        ) as told:
            EpochLog.open(url.replace("timeout=3", "timeout=0.3"))
        assert SECRET not in str(told.value)
        assert "redis.client" not in str(told.value)
        sentinels = "sentinels" if tls else "sentinel"
        monkeypatch.setenv(PASSWORDS, f"{sentinels}://:{of_sentinel}@{sentinel.address}")
    assert rows(new_writer(url).log) == {0: [0], 1: [1]}


def test_a_sentinel_without_a_password_watches_servers_that_have_one(redis_servers: RedisServers) -> None:
    primary = redis_servers.start(requirepass=SECRET, masterauth=SECRET)
    redis_servers.replica(primary, requirepass=SECRET, masterauth=SECRET)
    sentinel = redis_servers.sentinel(primary, of_primary=SECRET)
    url = f"redis://:{SECRET}@{sentinel.address}/0/log?sentinel={PRIMARY}&timeout=3"
    assert rows(new_writer(url).log) == {0: [0], 1: [1]}


def test_sentinels_that_do_not_know_the_primary_are_told_in_one_line(redis_servers: RedisServers) -> None:
    primary = redis_servers.start()
    redis_servers.replica(primary)
    sentinel = redis_servers.sentinel(primary)
    url = f"redis://{sentinel.address}/0/log?sentinel={{}}&timeout=0.3"
    with pytest.raises(BackendUnavailable, match="no Sentinel says where 'other' is"):
        EpochLog.create(url.format("other"), SCHEMA)
    sentinel.kill()
    with pytest.raises(
        BackendUnavailable, match=f"no Sentinel says where '{PRIMARY}' is .*ConnectionError"
    ) as told:
        EpochLog.create(url.format(PRIMARY), SCHEMA)
    assert "redis.client" not in str(told.value)


def test_a_log_over_tls(redis_servers: RedisServers) -> None:
    if not knows_tls():
        pytest.skip("this server knows no TLS")
    certificates = redis_servers.certificates()
    server = redis_servers.start(tls=certificates)
    url = f"rediss://{server.address}/0/log"
    assert rows(new_writer(f"{url}?{certificates.query}").log) == {0: [0], 1: [1]}
    with pytest.raises(BackendUnavailable, match=r"certificate"):
        EpochLog.open(f"{url}?timeout=2")


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
    hasty = open_store(f"{primary.url}/log?replicas=1&timeout=1")
    for change in (
        lambda: hasty.write_part("a part", lambda file: file.write(b"rows")),
        lambda: hasty.publish(writer.token, covers(2), b"a manifest"),
        lambda: hasty.take_over("another"),
    ):
        with pytest.raises(BackendUnavailable, match=r"reached 0 replicas within 1 s, and 1 are wanted. See that"):
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


def test_a_stale_take_over_does_not_show_what_a_newer_writer_has_staged(redis_url: str) -> None:
    url = f"{redis_url}/log"
    new_writer(url, epochs=1)
    stale, newer = RedisStore(url), RedisStore(url)
    stale._script(TAKE_OVER, "the mark of the stale one", "the stale one")
    token = newer.take_over("the newer one")
    newer._step(PUBLISH, token, "1-1", b"on its way to the replicas", "stage")
    stale._script(FINISH_STAGED, "the mark of the stale one")
    assert newer.ranges() == [covers(0)]


def test_a_writer_whose_take_over_was_lost_comes_back_with_the_next(redis_servers: RedisServers) -> None:
    primary = redis_servers.start()
    replica = redis_servers.replica(primary)
    first = new_writer(f"{primary.url}/log")
    primary.copied(replica)
    lost = first.log.take_over("a run whose take-over is lost")
    primary.fall_back_to(replica)
    with pytest.raises(LogCorrupt, match=r"the server has lost data of this log.* Start the pipeline again"):
        publish(lost, covers(2), [2])
    again = first.log.take_over("the next run")
    assert publish(again, covers(2), [2])
    assert rows(first.log) == {0: [0], 1: [1], 2: [2]}
    for stale in (first, lost):
        with pytest.raises(Fenced, match="the next run has taken this log over"):
            publish(stale, covers(2), [99])


def test_rows_that_two_failovers_have_lost_are_not_published(redis_servers: RedisServers) -> None:
    primary = redis_servers.start()
    replica = redis_servers.replica(primary)
    writer = new_writer(f"{primary.url}/log")
    primary.copied(replica)
    part = write_part(writer, covers(2), [2])
    primary.fall_back_to(replica)
    with pytest.raises(BackendUnavailable, match=rf"{part.file} of epoch 2 is gone"):
        writer.publish(Manifest(writer.log.header.id, covers(2), SCHEMA, (part,), query="q", batch=2))
    assert publish(writer, covers(2), [2])
    assert rows(writer.log) == {0: [0], 1: [1], 2: [2]}


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
