"""Servers that restart, hang, are full, or have replicas: cells are written as a whole or not at all."""

from __future__ import annotations

import time

import pytest
from tests.redis_servers import RedisServer, RedisServers
from tests.unit.state.counting import Adding, Counts
from tests.waiting import eventually

from tidelock.errors import BackendUnavailable

MANY = {f"key {i}": 1 for i in range(300)}
TIMEOUT = 0.5


def used_memory(server: RedisServer) -> int:
    with server.client() as client:
        return int(client.info("memory")["used_memory"])  # type: ignore[index]


# -- restarts


def test_a_batch_fails_if_its_server_restarted_with_all_its_data(redis_servers: RedisServers) -> None:
    server = redis_servers.start(appendonly="yes", appendfsync="always")
    counts = Counts(f"{server.url}/x")
    counts.run(0, MANY)
    counts.begin(1)
    counts.add(MANY)
    server.restart()
    counts.add({"late": 1})
    with pytest.raises(BackendUnavailable, match="it restarted, or was replaced, while epoch 1 was computed"):
        counts.end()
    assert counts.store.done() == 0
    counts.run(1, {**MANY, "late": 1})
    assert counts.counts([*MANY, "late"]) == {**dict.fromkeys(MANY, 2), "late": 1}


def test_a_batch_fails_if_its_server_restarted_empty(redis_servers: RedisServers) -> None:
    server = redis_servers.start()
    counts = Counts(f"{server.url}/x")
    counts.run(0, MANY)
    counts.begin(1)
    server.restart(empty=True)
    for step in (lambda: counts.add(MANY), counts.end, lambda: counts.begin(1)):
        with pytest.raises(BackendUnavailable, match="it holds nothing of it any more"):
            step()
    assert counts.store.header() is None


def test_a_server_that_came_back_with_older_data_is_refused(redis_servers: RedisServers) -> None:
    server = redis_servers.start()
    counts = Counts(f"{server.url}/x")
    counts.run(0, MANY)
    with server.client() as client:
        client.save()
    counts.run(1, MANY)
    server.restart()
    with pytest.raises(BackendUnavailable, match="it is of epoch 0, not of epoch 1"):
        counts.begin(2)
    counts.done = 0
    counts.run(1, MANY)
    assert counts.counts(list(MANY)) == dict.fromkeys(MANY, 2)


def test_a_restart_between_two_batches_does_no_harm(redis_servers: RedisServers) -> None:
    server = redis_servers.start(appendonly="yes", appendfsync="always")
    counts = Counts(f"{server.url}/x")
    counts.run(0, MANY)
    server.restart()
    counts.run(1, MANY)
    assert counts.counts(list(MANY)) == dict.fromkeys(MANY, 2)


def test_a_task_whose_connection_breaks_begins_again(redis_servers: RedisServers) -> None:
    server = redis_servers.start()
    counts = Counts(f"{server.url}/x")
    counts.begin(0)
    cuts = []

    def cut_once() -> None:
        if not cuts:
            with server.client() as client:
                cuts.append(client.client_kill_filter(_type="normal", skipme=True))

    Adding(counts.store, counts.fence.token, 0, MANY, cut_once).run()
    assert cuts == [1]
    assert counts.counts(list(MANY)) == MANY


# -- no room


def test_a_full_server_takes_nothing_until_there_is_room(redis_servers: RedisServers) -> None:
    server = redis_servers.start()
    counts = Counts(f"{server.url}/x?timeout={TIMEOUT}")
    counts.run(0, MANY)
    counts.begin(1)
    with server.client() as client:
        client.config_set("maxmemory", used_memory(server) // 2)
        began = time.monotonic()
        with pytest.raises(BackendUnavailable, match="the server has no memory left, and nothing was changed"):
            counts.add(MANY)
        assert TIMEOUT <= time.monotonic() - began < TIMEOUT + 5
        assert counts.counts(list(MANY)) == MANY
        client.config_set("maxmemory", 0)
    counts.add(MANY)
    counts.end()
    assert counts.counts(list(MANY)) == dict.fromkeys(MANY, 2)


def test_room_that_is_made_in_time_is_used(redis_servers: RedisServers) -> None:
    server = redis_servers.start()
    counts = Counts(f"{server.url}/x?timeout=20")
    counts.begin(0)
    tried = []

    def make_room() -> None:
        tried.append(True)
        if len(tried) == 3:
            with server.client() as client:
                client.config_set("maxmemory", 0)

    with server.client() as client:
        client.config_set("maxmemory", used_memory(server) // 2)
    Adding(counts.store, counts.fence.token, 0, MANY, make_room).run()
    assert len(tried) == 3
    assert counts.counts(list(MANY)) == MANY


# -- no answer


def test_a_server_that_hangs_is_given_up_and_taken_up_again(redis_servers: RedisServers) -> None:
    server = redis_servers.start()
    counts = Counts(f"{server.url}/x?timeout={TIMEOUT}")
    counts.run(0, MANY)
    counts.begin(1)
    server.pause()
    began = time.monotonic()
    with pytest.raises(BackendUnavailable, match="the server does not answer"):
        counts.add(MANY)
    waited = time.monotonic() - began
    server.resume()
    assert waited < TIMEOUT + 3, "one timeout, not one for each attempt"
    counts.add(MANY)
    counts.end()
    assert counts.counts(list(MANY)) == dict.fromkeys(MANY, 2)


def test_what_a_hanging_server_does_when_it_wakes_up_counts_once(redis_servers: RedisServers) -> None:
    """The writes of a task are under way when the server hangs, and arrive when the task has been given up."""
    # So few that the server has read them all before it notices that nobody waits for its answers any more.
    few = {f"key {i}": 1 for i in range(60)}
    server = redis_servers.start()
    counts = Counts(f"{server.url}/x?timeout={TIMEOUT}")
    counts.begin(0)
    with pytest.raises(BackendUnavailable):
        Adding(counts.store, counts.fence.token, 0, few, server.pause).run()
    server.resume()
    eventually(lambda: counts.counts(list(few)) == few, "the writes have arrived")
    counts.add(few)
    counts.end()
    assert counts.counts(list(few)) == few


def test_a_server_that_is_gone_is_told(redis_servers: RedisServers) -> None:
    server = redis_servers.start()
    counts = Counts(f"{server.url}/x?timeout={TIMEOUT}")
    counts.begin(0)
    server.kill()
    with pytest.raises(BackendUnavailable, match="the server does not answer"):
        counts.add(MANY)


# -- replicas


def test_a_batch_ends_when_the_replica_has_it_all(redis_servers: RedisServers) -> None:
    primary = redis_servers.start()
    replica = redis_servers.replica(primary)
    counts = Counts(f"{primary.url}/x?replicas=1")
    counts.run(0, MANY)
    primary.kill()
    with replica.client() as client:
        client.replicaof("NO", "ONE")  # type: ignore[arg-type]
    other = Counts(f"{replica.url}/x", create=False)
    assert other.store.done() == 0
    assert other.counts(list(MANY)) == MANY
    with pytest.raises(BackendUnavailable, match="it restarted, or was replaced"):
        other.store.end(other.fence, counts.server)


def test_a_batch_does_not_end_without_its_replica(redis_servers: RedisServers) -> None:
    primary = redis_servers.start()
    replica = redis_servers.replica(primary)
    counts = Counts(f"{primary.url}/x?replicas=1&timeout=1.5")
    counts.begin(0)
    counts.add(MANY)
    replica.kill()
    with pytest.raises(BackendUnavailable, match=r"the data reached 0 replicas within 1\.5 s, and 1 are wanted"):
        counts.end()
    replica.start()
    primary.await_replica(replica)
    counts.run(0, MANY)
    assert counts.counts(list(MANY)) == MANY
