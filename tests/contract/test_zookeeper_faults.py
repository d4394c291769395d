"""The tree on ZooKeeper when acknowledgements are lost, and servers are killed, hang, or are cut off."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.lossy_link import Loss, LossyLink
from tests.tree_clients import client_threads
from tests.waiting import eventually
from tests.zookeeper_servers import ZooKeeperServer, ZooKeeperServers

from tidelock.coordination import (
    BadVersion,
    EventKind,
    Lease,
    NodeExists,
    NoNode,
    SessionExpired,
    Tree,
    open_tree,
)
from tidelock.errors import BackendUnavailable
from tidelock.testing.contracts.trees import PATIENCE, Recorder, increment

SLACK = 20.0
"""Seconds that a busy machine may add to a time-out."""

pytestmark = pytest.mark.chaos


# -- lost acknowledgements -------------------------------------------------------------------


@pytest.fixture
def other(zookeeper_url: str) -> Iterator[Tree]:
    """A client that nothing happens to."""
    with open_tree(zookeeper_url) as other:
        yield other


@pytest.fixture
def link(zookeeper_server: ZooKeeperServer) -> Iterator[LossyLink]:
    with LossyLink(zookeeper_server.port) as link:
        yield link


@pytest.fixture
def tree(zookeeper_url: str, zookeeper_server: ZooKeeperServer, link: LossyLink) -> Iterator[Tree]:
    """A client of the same tree behind a link that can break."""
    with open_tree(zookeeper_url.replace(zookeeper_server.address, link.address)) as tree:
        yield tree


LOSSES = pytest.mark.parametrize(
    "losses",
    [[Loss.REQUEST], [Loss.ANSWER], [Loss.REQUEST, Loss.REQUEST, Loss.ANSWER]],
    ids=lambda losses: "+".join(loss.value for loss in losses),
)


@LOSSES
@pytest.mark.parametrize("ephemeral", [False, True])
def test_who_created_a_node_is_told_so(
    tree: Tree, other: Tree, link: LossyLink, losses: list[Loss], ephemeral: bool
) -> None:
    link.lose(*losses)
    assert tree.create("/n", b"x", ephemeral=ephemeral) == "/n"
    assert link.losses == len(losses)
    assert (other.get("/n").data, other.get("/n").ephemeral) == (b"x", ephemeral)


def test_who_did_not_create_a_node_is_told_so_too(tree: Tree, other: Tree, link: LossyLink) -> None:
    other.create("/n", b"x")
    link.lose(Loss.ANSWER)
    with pytest.raises(NodeExists):
        tree.create("/n", b"x")
    assert link.losses == 1


@LOSSES
def test_a_sequential_node_is_created_once_and_found_again(
    tree: Tree, other: Tree, link: LossyLink, losses: list[Loss]
) -> None:
    other.create("/q/item-", sequential=True, make_parents=True)
    link.lose(*losses)
    path = tree.create("/q/item-", b"mine", sequential=True)
    assert other.get(path).data == b"mine"
    assert len(other.children("/q")) == 2


@LOSSES
@pytest.mark.parametrize("version", [None, 0])
def test_a_set_adds_exactly_one(
    tree: Tree, other: Tree, link: LossyLink, losses: list[Loss], version: int | None
) -> None:
    other.create("/n", b"old")
    link.lose(*losses)
    assert tree.set("/n", b"new", version=version) == 1
    assert (other.get("/n").data, other.get("/n").version) == (b"new", 1)


def test_equal_data_is_no_proof(tree: Tree, other: Tree, link: LossyLink) -> None:
    """Of two clients that write the same bytes at the same version one has lost, whatever the link does."""
    other.create("/n", b"0")
    assert other.set("/n", b"1", version=0) == 1
    link.lose(Loss.ANSWER)
    with pytest.raises(BadVersion):
        tree.set("/n", b"1", version=0)


def test_counting_through_a_link_that_always_breaks_is_exact(tree: Tree, other: Tree, link: LossyLink) -> None:
    other.create("/n", b"0")
    for number in range(15):
        link.lose(Loss.ANSWER if number % 3 else Loss.REQUEST)
        increment(tree, "/n")
        increment(other, "/n")
    assert (other.get("/n").data, other.get("/n").version) == (b"30", 30)
    assert link.losses >= 15


@LOSSES
def test_who_deleted_a_node_is_told_so(tree: Tree, other: Tree, link: LossyLink, losses: list[Loss]) -> None:
    other.create("/n/child", make_parents=True)
    link.lose(*losses)
    tree.delete("/n/child", version=0)
    link.lose(*losses)
    tree.delete("/n", recursive=True)
    assert other.find("/n") is None
    with pytest.raises(NoNode):
        tree.delete("/n")


@LOSSES
def test_a_lease_is_acquired_through_a_link_that_breaks(
    tree: Tree, other: Tree, link: LossyLink, losses: list[Loss]
) -> None:
    first = Lease(other, "/x", owner="first")
    token = first.acquire(timeout=PATIENCE)
    first.release()
    lease = Lease(tree, "/x", owner="second")
    link.lose(*losses)
    assert lease.acquire(timeout=PATIENCE) > token
    link.lose(*losses)
    lease.release()
    assert lease.holder() is None


def test_a_watch_survives_a_broken_link(tree: Tree, other: Tree, link: LossyLink) -> None:
    other.create("/n")
    seen = Recorder()
    with tree.watch("/n", seen), tree.watch("/absent", absent := Recorder()):
        link.lose(Loss.ANSWER)
        tree.set("/n", b"mine")
        seen.expect(EventKind.CHANGED)
        other.create("/n/child")
        seen.expect(EventKind.CHILDREN)
        other.create("/absent")
        absent.expect(EventKind.CREATED, "/absent")


# -- cut off ---------------------------------------------------------------------------------


def test_who_was_cut_off_for_too_long_is_over_for_good(
    zookeeper_url: str,
    zookeeper_server: ZooKeeperServer,
    other: Tree,
    link: LossyLink,
) -> None:
    url = zookeeper_url.replace(zookeeper_server.address, link.address) + "?timeout=1"
    others = client_threads()
    with open_tree(url, session_timeout=1.0) as tree:
        tree.create("/mine", ephemeral=True)
        tree.watch("/n", seen := Recorder())
        assert client_threads() - others
        link.cut()
        eventually(lambda: other.find("/mine") is None, "the ephemeral node has gone", PATIENCE)
        with pytest.raises(BackendUnavailable, match="nothing was changed"):
            tree.create("/mixed")
        link.mend()
        seen.expect(EventKind.EXPIRED)
        for call in (lambda: tree.create("/mixed"), lambda: tree.find("/"), lambda: tree.watch("/", print)):
            with pytest.raises(SessionExpired):
                call()
        # kazoo would begin another session, for ever: it is stopped, also if nobody closes the tree.
        eventually(lambda: client_threads() <= others, "the client has let go", PATIENCE)
        assert other.children("/") == []
        assert seen.kinds == set()


def test_who_was_cut_off_for_a_moment_goes_on(tree: Tree, other: Tree, link: LossyLink) -> None:
    tree.create("/mine", ephemeral=True)
    with tree.watch("/n", seen := Recorder()):
        link.cut()
        other.create("/n")
        link.mend()
        seen.expect(EventKind.CREATED)
    assert tree.set("/mine", b"x") == 1
    assert other.get("/mine").ephemeral


def test_a_server_that_takes_a_connection_and_does_not_answer_does_not_cost_the_session(
    zookeeper_url: str, zookeeper_server: ZooKeeperServer, other: Tree, link: LossyLink
) -> None:
    url = zookeeper_url.replace(zookeeper_server.address, link.address)
    with open_tree(url, session_timeout=3.0) as tree:
        tree.create("/mine", ephemeral=True)
        link.ignore_next()
        assert tree.set("/mine", b"x") == 1
        assert not link.ignores
        assert other.get("/mine").ephemeral


# -- a server that fails ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def server_to_harm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    servers = ZooKeeperServers(tmp_path_factory.mktemp("harmed"))
    yield servers.start()
    servers.close()


@pytest.fixture
def harmed(server_to_harm: ZooKeeperServer) -> Iterator[ZooKeeperServer]:
    """A server that is killed and stopped, and runs again at the end."""
    yield server_to_harm
    server_to_harm.recover()


@pytest.fixture
def place(harmed: ZooKeeperServer) -> str:
    """The URL of a tree in it that only this test knows."""
    return f"{harmed.url}/{uuid.uuid4().hex}"


def _bounded(call: Callable[[], object], told: str) -> None:
    """See that a call gives up after its time-out of a second, and says so."""
    began = time.monotonic()
    with pytest.raises(BackendUnavailable, match=told):
        call()
    assert time.monotonic() - began < 1 + SLACK


def test_a_client_goes_on_with_a_server_that_was_killed(harmed: ZooKeeperServer, place: str) -> None:
    url = f"{place}?timeout=30"
    with open_tree(url, session_timeout=30) as tree, open_tree(url, session_timeout=30) as other:
        tree.create("/mine", ephemeral=True)
        lease = Lease(tree, "/lease", owner="me")
        token = lease.acquire(timeout=PATIENCE)
        with tree.watch("/n", seen := Recorder()):
            harmed.restart()
            assert tree.set("/mine", b"x") == 1
            assert other.get("/mine").ephemeral
            assert lease.check() == token
            other.create("/n")
            seen.expect(EventKind.CREATED)


def test_counting_is_exact_while_the_server_is_killed(harmed: ZooKeeperServer, place: str) -> None:
    url = f"{place}?timeout=30"
    done = threading.Event()

    def count() -> int:
        counted = 0
        with open_tree(url, session_timeout=30) as client:
            while not done.is_set():
                increment(client, "/n")
                counted += 1
        return counted

    with open_tree(url, session_timeout=30) as tree, ThreadPoolExecutor() as pool:
        tree.create("/n", b"0")
        counts = [pool.submit(count) for _ in range(2)]
        try:
            for _ in range(2):
                before = tree.get("/n").version
                eventually(lambda: tree.get("/n").version > before + 20, "they count", PATIENCE)  # noqa: B023
                harmed.restart()
        finally:
            done.set()
        total = sum(counting.result() for counting in counts)
        assert (int(tree.get("/n").data), tree.get("/n").version) == (total, total)


def test_a_server_that_is_away_is_told_in_time(harmed: ZooKeeperServer, place: str) -> None:
    url = f"{place}?timeout=1"
    with open_tree(url, session_timeout=60) as tree:
        tree.create("/n")
        harmed.kill()
        for change in (
            lambda: tree.create("/m"),
            lambda: tree.delete("/n"),
            lambda: tree.set("/n", b"", version=0),
        ):
            _bounded(change, "no server answers within 1 s")
        for question in (lambda: tree.get("/n"), lambda: tree.children("/"), lambda: tree.watch("/n", print)):
            _bounded(question, "no server answers within 1 s")
        _bounded(lambda: open_tree(url), "no server answers within 1 s")
        harmed.start()
        eventually(lambda: _answers(tree), "the client is back", PATIENCE)
        assert tree.children("/") == ["n"]
        assert tree.get("/n").version == 0


def test_a_server_that_hangs_is_told_in_time(harmed: ZooKeeperServer, place: str) -> None:
    with open_tree(f"{place}?timeout=1", session_timeout=60) as tree:
        tree.create("/n")
        harmed.pause()
        _bounded(lambda: tree.set("/n", b"late", version=0), "whether the change was made is not known")
        _bounded(lambda: tree.get("/n"), "no server answers within 1 s")
        harmed.resume()
        eventually(lambda: _answers(tree), "the client is back", PATIENCE)
        before = tree.get("/n")  # the change was made after all, or not: here is the place to look
        assert (before.data, before.version) in ((b"", 0), (b"late", 1))
        assert tree.set("/n", b"new", version=before.version) == before.version + 1
        assert tree.get("/n").data == b"new"


def test_a_client_is_closed_although_the_server_hangs(harmed: ZooKeeperServer, place: str) -> None:
    tree = open_tree(f"{place}?timeout=1", session_timeout=2)
    harmed.pause()
    began = time.monotonic()
    tree.close()
    assert time.monotonic() - began < 2 * 2 + SLACK
    with pytest.raises(SessionExpired):
        tree.find("/")


def test_a_server_that_lost_everything_is_not_taken_for_the_old_one(harmed: ZooKeeperServer, place: str) -> None:
    url = f"{place}?timeout=1"
    with open_tree(url, session_timeout=60) as tree:
        tree.create("/mine", ephemeral=True)
        harmed.restart(empty=True)
        with pytest.raises((BackendUnavailable, SessionExpired)):
            tree.create("/mixed")
        with open_tree(url) as new:
            assert new.children("/") == []


@pytest.mark.parametrize("host", ["127.0.0.1:1", "no-such-host.invalid"])
def test_where_no_server_is_the_user_is_told(host: str) -> None:
    _bounded(lambda: open_tree(f"zookeeper://{host}/x?timeout=1"), "Start it, or see whether it can be reached")


# -- an ensemble -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[ZooKeeperServer]]:
    """Three servers, of which the first one leads."""
    servers = ZooKeeperServers(tmp_path_factory.mktemp("ensemble"))
    yield sorted(servers.ensemble(), key=lambda server: not server.leads)
    servers.close()


def test_who_asks_a_server_that_lags_behind_sees_every_change(ensemble: list[ZooKeeperServer]) -> None:
    leader, lagging, _ = ensemble
    with open_tree(leader.url) as writer, open_tree(lagging.url) as reader, ThreadPoolExecutor() as pool:
        writer.create("/n")
        for _ in range(10):
            lagging.pause()
            for _ in range(20):
                version = writer.set("/n", bytes(10_000))
            asked = pool.submit(reader.get, "/n")
            lagging.resume()
            assert asked.result().version == version


def test_an_ensemble_outlives_its_leader(ensemble: list[ZooKeeperServer]) -> None:
    everywhere = ",".join(server.address for server in ensemble)
    with open_tree(f"zookeeper://{everywhere}/x?timeout=60", session_timeout=60) as tree:
        tree.create("/n", b"0")
        tree.create("/mine", ephemeral=True)
        with tree.watch("/n", seen := Recorder()):
            ensemble[0].kill()
            increment(tree, "/n")
            seen.expect(EventKind.CHANGED)
        assert tree.get("/n").data == b"1"
        assert tree.get("/mine").ephemeral


def _answers(tree: Tree) -> bool:
    try:
        tree.find("/")
    except BackendUnavailable:
        return False
    return True
