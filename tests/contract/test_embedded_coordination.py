"""The embedded tree keeps the contract, also between real processes that are killed."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.tree_clients import fork_a_client, process
from tests.waiting import eventually

from tidelock.coordination import (
    EmbeddedTree,
    EventKind,
    Lease,
    NodeExists,
    Tree,
    open_tree,
)
from tidelock.coordination.embedded.database import Database
from tidelock.errors import Fenced
from tidelock.testing.contracts.trees import (
    PATIENCE,
    Backend,
    LeaseContract,
    NamesContract,
    Recorder,
    TreeContract,
    increment,
)

SPAWN = multiprocessing.get_context("spawn")
PROCESSES = 3


class EmbeddedBackend(Backend):
    def __init__(self, file: Path) -> None:
        self.file = file

    def open(self) -> EmbeddedTree:
        return EmbeddedTree(self.file, session_timeout=60.0)

    def expire(self, tree: Tree) -> None:
        assert isinstance(tree, EmbeddedTree)
        database = Database(self.file, busy_timeout=PATIENCE)
        with database.write() as rows:
            tree._session.end(rows)  # what any other client does once the session is overdue
        database.close()


class _Embedded:
    @pytest.fixture
    def backend(self, tmp_path: Path) -> EmbeddedBackend:
        return EmbeddedBackend(tmp_path / "tree.db")


class TestEmbeddedTree(_Embedded, TreeContract):
    pass


class TestEmbeddedLease(_Embedded, LeaseContract):
    pass


class TestEmbeddedNames(_Embedded, NamesContract):
    pass


# -- between processes -----------------------------------------------------------------------


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"embedded:{tmp_path}/tree.db"


@pytest.fixture
def tree(url: str) -> Iterator[Tree]:
    with open_tree(url, session_timeout=60.0) as tree:
        yield tree


def run_all(target: Callable[..., None], *arguments: Any) -> None:
    """Run `target` in several processes at once and wait until all have succeeded."""
    children = [SPAWN.Process(target=target, args=arguments) for _ in range(PROCESSES)]
    for child in children:
        child.start()
    for child in children:
        child.join(PATIENCE)
    assert [child.exitcode for child in children] == [0] * PROCESSES


def _count(url: str, start: Any) -> None:
    start.wait()
    with open_tree(url) as tree:
        for _ in range(50):
            increment(tree, "/count")


def test_processes_count_exactly(url: str, tree: Tree) -> None:
    tree.create("/count", b"0")
    run_all(_count, url, SPAWN.Barrier(PROCESSES))
    assert tree.get("/count").data == b"%d" % (50 * PROCESSES)


def _create(url: str, start: Any) -> None:
    start.wait()
    with open_tree(url) as tree:  # all of them create the file, too
        tree.create("/all/one-", sequential=True, make_parents=True)
        try:
            tree.create("/winner")
        except NodeExists:
            return
        tree.create("/wins/one-", sequential=True, make_parents=True)


def test_one_process_wins_a_creation(url: str) -> None:
    run_all(_create, url, SPAWN.Barrier(PROCESSES))
    with open_tree(url) as tree:
        assert len(tree.children("/all")) == PROCESSES
        assert len(tree.children("/wins")) == 1


def _own(url: str) -> None:
    tree = open_tree(url, session_timeout=0.5)
    tree.create("/alive", ephemeral=True)
    signal.pause()


def test_a_killed_process_loses_its_ephemeral_nodes(url: str, tree: Tree) -> None:
    seen = Recorder()
    with tree.watch("/alive", seen), process(_own, url) as owner:
        seen.expect(EventKind.CREATED, "/alive")
        owner.kill()
        seen.expect(EventKind.DELETED, "/alive")
    assert tree.find("/alive") is None


def _write_for_ever(url: str) -> None:
    tree = open_tree(url, session_timeout=0.5)
    while True:
        tree.create("/items/item-", bytes(500), sequential=True)
        tree.set("/count", b"%d" % (int(tree.get("/count").data) + 1))


def test_a_process_killed_while_writing_leaves_a_sound_tree(tmp_path: Path, url: str) -> None:
    with open_tree(url) as tree:
        tree.create("/items")
        tree.create("/count", b"0")
    for kills in range(1, 3):
        with process(_write_for_ever, url), open_tree(url) as tree:
            before = tree.get("/count").version
            eventually(lambda: tree.get("/count").version > before + 30, "the child writes", PATIENCE)  # noqa: B023
        with open_tree(url) as tree:
            count = tree.get("/count")
            assert int(count.data) == count.version
            assert count.version <= len(tree.children("/items")) <= count.version + kills
    with sqlite3.connect(tmp_path / "tree.db") as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()


def _hold(url: str) -> None:
    tree, reports = open_tree(url, session_timeout=0.5), open_tree(url, session_timeout=60.0)
    lease = Lease(tree, "/lease", owner="old")
    reports.create("/token", b"%d" % lease.acquire(timeout=PATIENCE))
    try:
        while True:
            lease.check()
    except Fenced as error:
        reports.create("/fenced", str(error).encode())
    signal.pause()


def test_a_stopped_holder_is_fenced_when_it_wakes_up(url: str, tree: Tree) -> None:
    with process(_hold, url) as old:
        assert old.pid is not None
        eventually(lambda: tree.find("/token") is not None, "the lease is held", PATIENCE)
        os.kill(old.pid, signal.SIGSTOP)
        lease = Lease(tree, "/lease", owner="new")
        assert lease.acquire(timeout=PATIENCE) > int(tree.get("/token").data)
        os.kill(old.pid, signal.SIGCONT)
        eventually(lambda: tree.find("/fenced") is not None, "the first holder is fenced", PATIENCE)
        assert b"/lease was lost by old" in tree.get("/fenced").data
        assert lease.check() == lease.token


def _set(url: str) -> None:
    with open_tree(url) as tree:
        tree.set("/n", b"from afar")


def test_a_watch_sees_another_process(url: str, tree: Tree) -> None:
    tree.create("/n")
    seen = Recorder()
    with tree.watch("/n", seen), process(_set, url):
        seen.expect(EventKind.CHANGED)
    assert tree.get("/n").data == b"from afar"


def test_a_forked_child_cannot_use_the_client(url: str) -> None:
    with process(fork_a_client, url) as child:
        child.join(PATIENCE)
        assert child.exitcode == 0
