"""Sessions and watches: what ends with a client, and who hears of it."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from tidelock.coordination import (
    Event,
    EventKind,
    SessionExpired,
    Tree,
)
from tidelock.errors import BackendUnavailable
from tidelock.testing.contracts.trees.base import (
    PATIENCE,
    Backend,
    Clients,
    Recorder,
    is_over,
)
from tidelock.testing.waiting import eventually


class SessionsContract(Clients):
    """What a tree does for its clients."""

    # -- sessions ----------------------------------------------------------------------------

    def test_ephemeral_nodes_end_with_their_client(self, backend: Backend, tree: Tree) -> None:
        tree.create("/n/mine", ephemeral=True, make_parents=True)
        with backend.open() as client:
            client.create("/n/theirs", b"x", ephemeral=True)
            client.create("/n/lasting")
            assert tree.get("/n/theirs").ephemeral
            assert tree.set("/n/theirs", b"y") == 1
        eventually(lambda: tree.children("/n") == ["lasting", "mine"], "the children came", PATIENCE)

    def test_ephemeral_nodes_end_with_their_session(self, backend: Backend, tree: Tree, other: Tree) -> None:
        other.create("/n/theirs", ephemeral=True, make_parents=True)
        tree.create("/n/mine", ephemeral=True)
        backend.expire(other)
        eventually(lambda: tree.children("/n") == ["mine"], "the ephemeral went", PATIENCE)

    @pytest.mark.parametrize("end", ["expire", "close"])
    def test_every_call_fails_once_the_session_is_over(
        self, backend: Backend, tree: Tree, other: Tree, end: str
    ) -> None:
        tree.create("/n")
        if end == "expire":
            backend.expire(other)
            eventually(lambda: is_over(other), "the session is over", PATIENCE)
        else:
            other.close()
        calls: list[Callable[[], object]] = [
            lambda: other.create("/m"),
            lambda: other.get("/n"),
            lambda: other.find("/n"),
            lambda: other.set("/n", b""),
            lambda: other.delete("/n"),
            lambda: other.children("/n"),
            lambda: other.watch("/n", print),
        ]
        for call in calls:
            with pytest.raises(SessionExpired):
                call()
        other.close()
        assert tree.children("/") == ["n"]

    def test_who_lost_the_session_cannot_write(self, backend: Backend, tree: Tree, other: Tree) -> None:
        """Even before the client has learned about it, which may first look like an outage."""
        backend.expire(other)
        with pytest.raises((SessionExpired, BackendUnavailable)):
            other.create("/n")
        assert tree.find("/n") is None

    # -- watches -----------------------------------------------------------------------------

    @pytest.mark.parametrize("actor", ["itself", "another"])
    def test_a_watch_sees_every_kind_of_change(self, tree: Tree, other: Tree, actor: str) -> None:
        client = tree if actor == "itself" else other
        seen = Recorder()
        with tree.watch("/n", seen):
            for _ in range(2):  # a watch goes on until it is closed
                client.create("/n")
                seen.expect(EventKind.CREATED)
                client.set("/n", b"x")
                seen.expect(EventKind.CHANGED)
                client.create("/n/child")
                seen.expect(EventKind.CHILDREN)
                client.delete("/n/child")
                seen.expect(EventKind.CHILDREN)
                client.delete("/n")
                seen.expect(EventKind.DELETED)

    def test_whoever_looks_at_every_event_sees_the_last_change(self, tree: Tree, other: Tree) -> None:
        tree.create("/n")
        versions: list[int] = []
        with tree.watch("/n", lambda _: versions.append(tree.get("/n").version)):
            for _ in range(50):
                other.set("/n", b"")
            eventually(lambda: versions[-1:] == [50], "the watch saw the last version", PATIENCE)

    def test_a_node_that_comes_and_goes_is_noticed(self, tree: Tree, other: Tree) -> None:
        """Whoever saw the node in between would otherwise wait for its end for ever."""
        noticed = threading.Event()
        for _ in range(5):
            with tree.watch("/n", lambda _: noticed.set()):
                other.create("/n")
                noticed.clear()
                other.delete("/n")
                assert noticed.wait(PATIENCE)

    def test_a_watch_sees_an_ephemeral_node_vanish(self, backend: Backend, tree: Tree, other: Tree) -> None:
        other.create("/n", ephemeral=True)
        node, root = Recorder(), Recorder()
        with tree.watch("/n", node), tree.watch("/", root):
            backend.expire(other)
            node.expect(EventKind.DELETED)
            root.expect(EventKind.CHILDREN, "/")

    def test_a_closed_watch_is_silent(self, tree: Tree, other: Tree) -> None:
        closed, open_ = Recorder(), Recorder()
        watch = tree.watch("/n", closed)
        with tree.watch("/n", open_):
            watch.close()
            watch.close()
            other.create("/n")
            open_.expect(EventKind.CREATED)
        assert closed.kinds == set()

    def test_a_callback_may_fail_and_may_use_the_tree(
        self, tree: Tree, other: Tree, caplog: pytest.LogCaptureFixture
    ) -> None:
        seen = Recorder()

        def fail(event: Event) -> None:
            tree.create("/m", event.path.encode())
            raise RuntimeError("a user's mistake")

        with tree.watch("/n", fail), tree.watch("/n", seen):
            other.create("/n")
            seen.expect(EventKind.CREATED)
            other.set("/n", b"x")
            seen.expect(EventKind.CHANGED)
        assert tree.get("/m").data == b"/n"
        assert "a user's mistake" in caplog.text

    def test_a_callback_may_close_its_watch_and_its_client(self, backend: Backend) -> None:
        client, seen, closed = backend.open(), Recorder(), threading.Event()

        def close(_: Event) -> None:
            watch.close()
            client.close()
            closed.set()

        watch = client.watch("/n", close)
        client.watch("/m", seen)
        client.create("/n")
        assert closed.wait(PATIENCE)
        seen.expect(EventKind.EXPIRED, "/m")

    @pytest.mark.parametrize("end", ["expire", "close"])
    def test_the_end_of_the_session_is_the_last_event(self, backend: Backend, other: Tree, end: str) -> None:
        seen = Recorder()
        other.watch("/n", seen)
        backend.expire(other) if end == "expire" else other.close()
        seen.expect(EventKind.EXPIRED)
        assert seen.kinds == set()
