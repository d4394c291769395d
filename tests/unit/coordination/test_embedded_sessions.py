"""Sessions of the embedded tree in injected time: nothing here waits for a time-out."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.tree_clients import client_threads

from tidelock.coordination import EmbeddedTree, SessionExpired
from tidelock.coordination.embedded.database import Database
from tidelock.coordination.embedded.sessions import Session

# Heartbeats happen in real time, a third of this apart: never during a test.
TIMEOUT = 30_000.0


class ManualClock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


class World:
    """Clients of one file that share a clock."""

    def __init__(self, file: Path, stack: ExitStack) -> None:
        self.file = file
        self.clock = ManualClock()
        self._stack = stack

    def client(self, timeout: float = TIMEOUT) -> EmbeddedTree:
        return self._stack.enter_context(EmbeddedTree(self.file, session_timeout=timeout, clock=self.clock))


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with ExitStack() as stack:
        yield World(tmp_path / "tree.db", stack)


@pytest.mark.parametrize("observe", ["read", "write", "open a client"])
def test_an_overdue_session_ends_when_another_client_looks(world: World, observe: str) -> None:
    dead, alive = world.client(), world.client(2 * TIMEOUT)
    dead.create("/n", ephemeral=True)
    world.clock.now += TIMEOUT
    if observe == "write":
        alive.create("/n")  # the path is free again
    elif observe == "read":
        assert alive.find("/n") is None
    else:
        assert world.client().find("/n") is None
    with pytest.raises(SessionExpired):
        dead.find("/n")


def test_a_session_lives_until_its_time_out(world: World) -> None:
    owner, other = world.client(), world.client(2 * TIMEOUT)
    owner.create("/n", ephemeral=True)
    world.clock.now += TIMEOUT - 1
    assert other.find("/n") is not None
    assert owner.find("/n") is not None


def test_a_client_that_nobody_misses_goes_on(world: World) -> None:
    alone = world.client()
    alone.create("/n", ephemeral=True)
    world.clock.now += 10 * TIMEOUT
    assert alone.get("/n").ephemeral
    assert alone.set("/n", b"x") == 1


def test_sessions_from_before_a_reboot_are_over(world: World) -> None:
    old = world.client()
    old.create("/n", ephemeral=True)
    world.clock.now = 5.0  # a monotonic clock starts again
    assert world.client().find("/n") is None


def test_an_overdue_session_wakes_the_watches_of_others(world: World) -> None:
    dead, alive, gone = world.client(), world.client(2 * TIMEOUT), threading.Event()
    dead.create("/n", ephemeral=True)
    alive.watch("/n", lambda _: gone.set())
    world.clock.now += TIMEOUT
    assert gone.wait(20)


def test_renewal_moves_the_expiry_on(world: World, tmp_path: Path) -> None:
    other = world.client(10 * TIMEOUT)
    database = Database(tmp_path / "tree.db", busy_timeout=5.0)
    with database.write() as rows:
        session = Session(rows, "tree", TIMEOUT, world.clock)
    for _ in range(3):
        world.clock.now += TIMEOUT - 1
        with database.write() as rows:
            session.renew(rows)
        other.find("/")
    world.clock.now += TIMEOUT
    other.find("/")
    with database.write() as rows, pytest.raises(SessionExpired):
        session.renew(rows)
    database.close()


def test_heartbeats_renew_in_real_time(tmp_path: Path) -> None:
    ticks = itertools.count()
    with EmbeddedTree(tmp_path / "tree.db", session_timeout=0.03, clock=lambda: next(ticks)) as tree:
        database = Database(tmp_path / "tree.db", busy_timeout=5.0)
        expiries: set[tuple[float]] = set()
        deadline = time.monotonic() + 20
        while len(expiries) < 3 and time.monotonic() < deadline:
            with database.read() as rows:
                expiries.add(rows.execute("SELECT expiry FROM sessions").fetchone())
        database.close()
        assert len(expiries) == 3
        assert tree.find("/") is not None


def test_closing_leaves_no_threads(tmp_path: Path) -> None:
    before = client_threads()
    tree = EmbeddedTree(tmp_path / "tree.db")
    tree.watch("/n", lambda _: None)
    assert len(client_threads() - before) == 2, "a heartbeat and a watch"
    tree.close()
    tree.close()
    assert client_threads() <= before, "threads are left over"
