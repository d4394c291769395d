"""Leases: one holder at a time, and whoever lost it is fenced."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from tidelock.coordination import (
    Lease,
    LeaseHeld,
    SessionExpired,
    Tree,
)
from tidelock.errors import BackendUnavailable, Fenced
from tidelock.testing.contracts.trees.base import (
    PATIENCE,
    Backend,
    Clients,
    in_threads,
    is_over,
)
from tidelock.testing.waiting import eventually


class LeaseContract(Clients):
    """What a lease does on the tree."""

    def test_one_holder_at_a_time(self, tree: Tree, other: Tree) -> None:
        mine, theirs = Lease(tree, "/locks/x", owner="me"), Lease(other, "/locks/x", owner="they")
        assert mine.try_acquire()
        assert mine.try_acquire()  # already ours: the same acquisition
        assert not theirs.try_acquire()
        assert theirs.holder() == "me"
        token = mine.check()
        mine.release()
        assert theirs.try_acquire()
        assert theirs.token == theirs.check() > token

    def test_two_contenders_of_one_client_exclude_each_other(self, tree: Tree) -> None:
        first, second = (Lease(tree, "/x", owner="me") for _ in range(2))
        assert first.try_acquire()
        assert not second.try_acquire()

    def test_tokens_grow_with_every_acquisition(self, tree: Tree, other: Tree) -> None:
        tokens = []
        for client in (tree, other, tree, tree):
            lease = Lease(client, "/x", owner="me")
            tokens.append(lease.acquire(timeout=PATIENCE))
            lease.release()
        assert tokens == sorted(set(tokens))

    def test_who_holds_nothing_is_fenced(self, tree: Tree) -> None:
        lease = Lease(tree, "/x", owner="me")
        lease.release()
        with pytest.raises(Fenced, match="acquire it first"):
            lease.check()
        lease.acquire(timeout=PATIENCE)
        lease.release()
        lease.release()
        with pytest.raises(Fenced):
            _ = lease.token
        assert lease.holder() is None

    def test_waiting_ends_when_the_holder_lets_go(self, tree: Tree, other: Tree) -> None:
        mine, theirs = Lease(tree, "/x", owner="me"), Lease(other, "/x", owner="they")
        mine.acquire(timeout=PATIENCE)
        with ThreadPoolExecutor() as pool:
            waiting = pool.submit(theirs.acquire, PATIENCE)
            mine.release()
            assert waiting.result() == theirs.check()

    def test_waiting_ends_with_the_time_out(self, tree: Tree, other: Tree) -> None:
        Lease(tree, "/x", owner="me").acquire(timeout=PATIENCE)
        with pytest.raises(LeaseHeld, match="/x is held by me"):
            Lease(other, "/x", owner="they").acquire(timeout=0.0)

    def test_waiting_ends_with_the_session(self, backend: Backend, tree: Tree, other: Tree) -> None:
        Lease(tree, "/x", owner="me").acquire(timeout=PATIENCE)
        with ThreadPoolExecutor() as pool:
            waiting = pool.submit(Lease(other, "/x", owner="they").acquire, PATIENCE)
            backend.expire(other)
            with pytest.raises((SessionExpired, BackendUnavailable)):
                waiting.result()

    def test_a_lost_session_fences_the_old_holder(self, backend: Backend, tree: Tree, other: Tree) -> None:
        old, new = Lease(other, "/x", owner="old"), Lease(tree, "/x", owner="new")
        token = old.acquire(timeout=PATIENCE)
        backend.expire(other)
        assert new.acquire(timeout=PATIENCE) > token
        eventually(lambda: is_over(other), "the session is over", PATIENCE)
        with pytest.raises(Fenced, match="session expired"):
            old.check()
        old.release()
        assert new.check() == new.token

    def test_a_removed_holder_is_fenced(self, tree: Tree, other: Tree) -> None:
        old, new = Lease(other, "/x", owner="old"), Lease(tree, "/x", owner="new")
        token = old.acquire(timeout=PATIENCE)
        tree.delete("/x/holder")  # what an operator would do
        with pytest.raises(Fenced, match="nobody holds it"):
            old.check()
        assert new.acquire(timeout=PATIENCE) > token
        with pytest.raises(Fenced, match="new holds it"):
            old.check()
        old.release()
        assert new.check() > token

    def test_leases_order_what_their_holders_do(self, backend: Backend, tree: Tree) -> None:
        tree.create("/n", b"0")

        def count() -> list[int]:
            tokens = []
            with backend.open() as client:
                lease = Lease(client, "/x", owner="counter")
                for _ in range(5):
                    tokens.append(lease.acquire(timeout=PATIENCE))
                    client.set("/n", b"%d" % (int(client.get("/n").data) + 1))
                    lease.release()
            return tokens

        tokens = {token for tokens in in_threads([count] * 3) for token in tokens}
        assert tree.get("/n").data == b"15"
        assert len(tokens) == 15
