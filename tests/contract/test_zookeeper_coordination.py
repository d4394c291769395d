"""The tree on a real ZooKeeper server keeps the contract, also between processes that are killed and stopped."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.lossy_link import LossyLink
from tests.tree_clients import fork_a_client, process
from tests.waiting import eventually
from tests.zookeeper_servers import ZooKeeperServer

from tidelock.coordination import (
    BadVersion,
    EventKind,
    Lease,
    NoNode,
    SessionExpired,
    Tree,
    open_tree,
)
from tidelock.coordination.zookeeper import ZooKeeperTree
from tidelock.credentials import forget
from tidelock.errors import Fenced, PipelineError
from tidelock.testing.contracts.trees import (
    PATIENCE,
    Backend,
    LeaseContract,
    NamesContract,
    Recorder,
    TreeContract,
)

PAGE = Path(__file__).parents[2] / "docs" / "coordination.md"
SHORT = 1.0
"""A session time-out that a test can wait for."""


class ZooKeeperBackend(Backend):
    """A tree in a server, with a link of its own for every client, so that each can be cut off."""

    def __init__(self, server: ZooKeeperServer) -> None:
        self._server = server
        self._name = uuid.uuid4().hex
        self._links: dict[Tree, LossyLink] = {}

    def open(self) -> ZooKeeperTree:
        link = LossyLink(self._server.port)
        tree = ZooKeeperTree.from_url(f"zookeeper://{link.address}/{self._name}?timeout=20", session_timeout=60.0)
        self._links[tree] = link
        return tree

    def expire(self, tree: Tree) -> None:
        """Close the session in its name while it is cut off: who is there would fight for it."""
        assert isinstance(tree, ZooKeeperTree)
        identity = tree._session._kazoo.client_id
        self._links[tree].cut()
        with self._server.client(client_id=identity):
            pass
        with self._server.client() as admin:
            assert admin.exists(tree._changes._receipt) is None
        self._links[tree].mend()

    def close(self) -> None:
        for link in self._links.values():
            link.close()


class _ZooKeeper:
    @pytest.fixture
    def backend(self, zookeeper_server: ZooKeeperServer) -> Iterator[ZooKeeperBackend]:
        backend = ZooKeeperBackend(zookeeper_server)
        yield backend
        backend.close()


class TestZooKeeperTree(_ZooKeeper, TreeContract):
    pass


class TestZooKeeperLease(_ZooKeeper, LeaseContract):
    pass


class TestZooKeeperNames(_ZooKeeper, NamesContract):
    pass


# -- between processes -----------------------------------------------------------------------


@pytest.fixture
def other(zookeeper_url: str) -> Iterator[Tree]:
    with open_tree(zookeeper_url) as other:
        yield other


def _contend(url: str, name: str) -> None:
    """Hold the lease again and again, for ever, and leave a trace of each token."""
    with open_tree(url, session_timeout=SHORT) as tree:
        lease = Lease(tree, "/lease", owner=name)
        while True:
            token = lease.acquire(timeout=PATIENCE)
            tree.create(f"/tokens/{name}/{token:010d}", make_parents=True)
            if name == "first":
                signal.pause()
            lease.release()


def test_a_killed_holder_is_followed_by_one_with_a_greater_token(zookeeper_url: str, other: Tree) -> None:
    with process(_contend, zookeeper_url, "first") as first:
        eventually(lambda: other.find("/tokens/first") is not None, "the first has it", PATIENCE)
        with process(_contend, zookeeper_url, "second"):
            assert Lease(other, "/lease", owner="third").try_acquire() is False
            first.kill()
            eventually(lambda: other.find("/tokens/second") is not None, "the second has it", PATIENCE)
    (old,) = other.children("/tokens/first")
    assert old < min(other.children("/tokens/second"))


def _hold(url: str) -> None:
    """Hold a lease and an ephemeral node, and report what becomes of them."""
    tree, reports = open_tree(url, session_timeout=SHORT), open_tree(url, session_timeout=60.0)
    seen = Recorder()
    tree.watch("/n", seen)
    lease = Lease(tree, "/lease", owner="old")
    reports.create("/token", b"%d" % lease.acquire(timeout=PATIENCE))
    try:
        while True:
            lease.check()
    except Fenced as error:
        reports.create("/fenced", str(error).encode())
    seen.expect(EventKind.EXPIRED)
    try:
        tree.create("/mixed")
    except SessionExpired:
        reports.create("/expired")
    signal.pause()


def test_a_stopped_client_has_lost_its_session_when_it_wakes_up(zookeeper_url: str, other: Tree) -> None:
    with process(_hold, zookeeper_url) as old:
        assert old.pid is not None
        eventually(lambda: other.find("/token") is not None, "the lease is held", PATIENCE)
        os.kill(old.pid, signal.SIGSTOP)
        eventually(lambda: other.find("/lease/holder") is None, "the ephemeral node has gone", PATIENCE)
        lease = Lease(other, "/lease", owner="new")
        assert lease.acquire(timeout=PATIENCE) > int(other.get("/token").data)
        os.kill(old.pid, signal.SIGCONT)
        eventually(lambda: other.find("/expired") is not None, "the old client has noticed", PATIENCE)
        assert b"/lease was lost by old" in other.get("/fenced").data
        assert other.find("/mixed") is None
        assert lease.check() == lease.token


def test_a_forked_child_cannot_use_the_client(zookeeper_url: str) -> None:
    with process(fork_a_client, zookeeper_url) as child:
        child.join(PATIENCE)
        assert child.exitcode == 0


# -- what only ZooKeeper could get wrong -----------------------------------------------------


@pytest.mark.parametrize("version", [-1, -(2**40), 2**31, 2**40])
def test_a_version_that_no_node_can_have_is_refused(zookeeper_url: str, version: int) -> None:
    """To ZooKeeper -1 is any version, and what does not fit into four bytes is not even a number."""
    with open_tree(zookeeper_url) as tree:
        calls: list[Callable[[], object]] = [
            lambda: tree.set("/n", b"x", version=version),
            lambda: tree.delete("/n", version=version),
        ]
        for call in calls:
            with pytest.raises(NoNode):
                call()
        tree.create("/n")
        for call in calls:
            with pytest.raises(BadVersion, match=f"not at version {version}"):
                call()
        assert tree.get("/n").version == 0


def test_names_are_kept_as_they_are(zookeeper_url: str) -> None:
    names = sorted(["a b", "ä", "日本語", "x?y=1&z#", "%2F", "...", "zookeeper", "tree", "\ufdcf", "\u00ad"])
    with open_tree(zookeeper_url) as tree:
        for name in names:
            tree.create(f"/{name}", name.encode())
        assert tree.children("/") == names
        assert [tree.get(f"/{name}").data.decode() for name in names] == names


@pytest.mark.parametrize("session_timeout", [0.001, 10.0**12])
def test_the_server_limits_the_time_out_of_a_session(zookeeper_url: str, session_timeout: float) -> None:
    with open_tree(zookeeper_url, session_timeout=session_timeout) as tree:
        tree.create("/n", ephemeral=True)


def test_a_session_needs_a_time_out(zookeeper_url: str) -> None:
    with pytest.raises(PipelineError, match="positive"):
        open_tree(zookeeper_url, session_timeout=0)


def test_the_example_on_the_page_runs_as_it_is_printed(
    zookeeper_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZOOKEEPER_URL", zookeeper_url)
    _, example = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    exec(compile(example, str(PAGE), "exec"), {})


# -- users, and the package ------------------------------------------------------------------


def test_what_a_user_makes_is_that_user_s(zookeeper_url: str) -> None:
    def as_user(who: str) -> Tree:
        return open_tree(zookeeper_url.replace("//", f"//{who}@"))

    with as_user("ann:s3cret") as tree:
        tree.create("/n", b"x")
        with as_user("ann:s3cret") as again:
            assert again.get("/n").data == b"x"
    for stranger in (lambda: as_user("ann:wr0ng"), lambda: open_tree(zookeeper_url)):
        forget()
        with pytest.raises(PipelineError, match="see whether the user and the password") as told:
            stranger()
        assert "wr0ng" not in str(told.value)


def test_kazoo_is_loaded_with_the_first_tree_that_needs_it() -> None:
    code = "import sys, tidelock.coordination; sys.exit('kazoo' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_without_kazoo_the_user_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("tidelock.coordination.zookeeper")]:
        monkeypatch.delitem(sys.modules, name)
    for name in [name for name in sys.modules if name.partition(".")[0] == "kazoo"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "kazoo", None)
    with pytest.raises(PipelineError, match=r"pip install .tidelock\[zookeeper\]"):
        open_tree("zookeeper://localhost")
