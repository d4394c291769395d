"""Servers that restart, hang, are full, or have replicas: cells are written as a whole or not at all."""

from __future__ import annotations

import time

import pytest
from tests.redis_servers import RedisServer, RedisServers
from tests.waiting import eventually

from tidelock.cache.wire import command
from tidelock.errors import BackendUnavailable, Fenced, PipelineError
from tidelock.testing.cells import Adding, Counts

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


@pytest.mark.parametrize("says", ["server", "replication"])
def test_a_server_that_hides_its_replication_or_its_process_is_told_by_the_other(
    redis_servers: RedisServers, monkeypatch: pytest.MonkeyPatch, says: str
) -> None:
    """As some managed ones do."""
    monkeypatch.setattr("tidelock.cache.redis_cells._WHICH_SERVER", (command("INFO", says),))
    server = redis_servers.start(appendonly="yes", appendfsync="always")
    counts = Counts(f"{server.url}/x")
    counts.run(0, MANY)
    counts.begin(1)
    server.restart()
    with pytest.raises(BackendUnavailable, match="it restarted, or was replaced"):
        counts.end()
    counts.run(1, MANY)


def test_a_server_that_hides_both_is_refused_by_name(
    redis_servers: RedisServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody would notice what it has lost while a batch ran."""
    monkeypatch.setattr("tidelock.cache.redis_cells._WHICH_SERVER", (command("INFO", "memory"),))
    counts = Counts(f"{redis_servers.start().url}/x")
    with pytest.raises(PipelineError, match=r"/x: .* hides run_id and master_replid .*: use a server that shows"):
        counts.run(0, MANY)


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

    Adding(counts.store, counts.fence.claim, 0, MANY, cut_once).run()
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
        assert TIMEOUT <= time.monotonic() - began < TIMEOUT + 60
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
    Adding(counts.store, counts.fence.claim, 0, MANY, make_room).run()
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
        Adding(counts.store, counts.fence.claim, 0, few, server.pause).run()
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


# -- fail-overs


class Pair:
    """A primary and its replica, which stays behind from some moment on. The primary comes back with less."""

    def __init__(self, servers: RedisServers) -> None:
        self.primary = servers.start()
        self.replica = servers.replica(self.primary)
        self.url = f"{self.primary.url}/x"

    def copied(self) -> None:
        """The replica has all so far, and nothing of what follows."""
        self.primary.copied(self.replica)

    def fail_over_twice(self) -> None:
        """To the replica and back: the primary is the same process, with the data of the replica."""
        self.primary.fall_back_to(self.replica)


@pytest.fixture
def pair(redis_servers: RedisServers) -> Pair:
    return Pair(redis_servers)


def test_a_batch_fails_if_its_server_was_replaced_and_is_back(pair: Pair) -> None:
    counts = Counts(pair.url)
    counts.run(0, MANY)
    counts.begin(1)
    pair.copied()
    counts.add(MANY)
    pair.fail_over_twice()
    counts.add({"late": 1})
    with pytest.raises(BackendUnavailable, match="it restarted, or was replaced, while epoch 1 was computed"):
        counts.end()
    counts.run(1, {**MANY, "late": 1})
    assert counts.counts([*MANY, "late"]) == {**dict.fromkeys(MANY, 2), "late": 1}


def test_a_copy_does_not_count_if_its_server_was_replaced_and_is_back(pair: Pair) -> None:
    counts = Counts(pair.url)
    counts.run(0, MANY)
    counts.begin(1, pinned=0)
    counts.store.check_pinned(counts.fence, counts.server)
    pair.copied()
    pair.fail_over_twice()
    with pytest.raises(BackendUnavailable, match="it restarted, or was replaced, while epoch 0 was copied"):
        counts.store.check_pinned(counts.fence, counts.server)


@pytest.mark.parametrize("lost", [1, 3])
def test_a_run_whose_take_over_was_lost_is_not_fenced(pair: Pair, lost: int) -> None:
    before = Counts(pair.url)
    before.run(0, MANY)
    pair.copied()
    counts = [Counts(pair.url, 0, create=False) for _ in range(lost)][-1]
    counts.begin(1)
    pair.fail_over_twice()
    for step in (lambda: counts.add(MANY), counts.end, lambda: counts.begin(1)):
        with pytest.raises(BackendUnavailable, match="that this run has taken it over"):
            step()
    again = Counts(pair.url, 0, create=False)
    again.run(1, MANY)
    assert again.counts(list(MANY)) == dict.fromkeys(MANY, 2)
    with pytest.raises(Fenced):
        counts.begin(1)
    with pytest.raises(Fenced):
        before.begin(2)


def test_a_run_that_loaded_a_snapshot_and_whose_take_over_was_lost_is_not_fenced(pair: Pair) -> None:
    before = Counts(pair.url)
    before.run(0, MANY)
    pair.copied()
    before.store.clear()
    counts = Counts(pair.url, before=before.fence)
    counts.begin(0)
    pair.fail_over_twice()
    with pytest.raises(BackendUnavailable, match="that this run has taken it over"):
        counts.add(MANY)


def test_a_task_whose_batch_the_server_has_forgotten_is_not_fenced(pair: Pair) -> None:
    counts = Counts(pair.url)
    counts.run(0, MANY)
    pair.copied()
    counts.begin(1)
    pair.fail_over_twice()
    with pytest.raises(BackendUnavailable, match="it has forgotten that batch 1 has begun"):
        counts.add(MANY)
    counts.run(1, MANY)
    with pytest.raises(Fenced, match="batch 0 is over, batch 1 has begun"):
        counts.add(MANY, batch=0)
    assert counts.counts(list(MANY)) == dict.fromkeys(MANY, 2)
