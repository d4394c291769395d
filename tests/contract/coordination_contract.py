"""What every backend of the shared tree must do; a backend runs it by subclassing all suites.

A subclass gives the fixture `backend`: a fresh, empty tree that any number of clients can open.
Nothing here knows a backend, and no test may be changed or left out for one.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import pytest
from tests.waiting import eventually

from tidelock.alignment.directory import Directory, Job
from tidelock.coordination import (
    BadVersion,
    Event,
    EventKind,
    Lease,
    LeaseHeld,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    SessionExpired,
    Tree,
)
from tidelock.coordination.paths import MAX_DATA
from tidelock.errors import BackendUnavailable, Fenced, PipelineError

Result = TypeVar("Result")

PATIENCE = 20.0
BAD_PATHS = ["", "a", "a/b", "//", "/a/", "/a//b", "/a/./b", "/..", "/a\x00b", "/a\nb", "/\ud800"]


class Backend(ABC):
    """One tree and the power to open clients of it and to end their sessions."""

    @abstractmethod
    def open(self) -> Tree:
        """Open another client."""

    @abstractmethod
    def expire(self, tree: Tree) -> None:
        """End the session of a client as if its process had been stopped for too long."""


class Recorder:
    """A callback that remembers its events."""

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._news = threading.Condition()

    def __call__(self, event: Event) -> None:
        with self._news:
            self._events.append(event)
            self._news.notify_all()

    def expect(self, kind: EventKind, path: str = "/n") -> None:
        """Wait for an event of this kind and forget everything up to it."""
        with self._news:
            assert self._news.wait_for(lambda: Event(kind, path) in self._events, PATIENCE), (
                f"no {kind} of {path}, only {self._events}"
            )
            del self._events[: self._events.index(Event(kind, path)) + 1]

    @property
    def kinds(self) -> set[EventKind]:
        with self._news:
            return {event.kind for event in self._events}


class _Clients:
    """Fixtures that all suites need."""

    @pytest.fixture
    def backend(self) -> Iterator[Backend]:
        raise NotImplementedError("a backend's own test class gives this fixture")

    @pytest.fixture
    def tree(self, backend: Backend) -> Iterator[Tree]:
        with backend.open() as tree:
            yield tree

    @pytest.fixture
    def other(self, backend: Backend) -> Iterator[Tree]:
        with backend.open() as other:
            yield other


class TreeContract(_Clients):
    # -- create ------------------------------------------------------------------------------

    def test_a_new_node_has_its_data_and_version_0(self, tree: Tree, other: Tree) -> None:
        assert tree.create("/n", b"\x00\xffdata") == "/n"
        node = other.get("/n")
        assert (node.data, node.version, node.ephemeral) == (b"\x00\xffdata", 0, False)
        assert tree.create("/n/child") == "/n/child"
        assert other.get("/n/child").data == b""

    def test_a_path_can_be_created_once(self, tree: Tree, other: Tree) -> None:
        tree.create("/n", b"first")
        with pytest.raises(NodeExists, match="/n exists"):
            other.create("/n", b"second")
        assert tree.get("/n").data == b"first"

    def test_the_root_exists_from_the_start(self, tree: Tree) -> None:
        assert tree.children("/") == []
        assert not tree.get("/").ephemeral
        with pytest.raises(NodeExists):
            tree.create("/")

    def test_a_parent_must_exist(self, tree: Tree) -> None:
        with pytest.raises(NoNode) as caught:
            tree.create("/a/b")
        assert caught.value.path == "/a"
        assert tree.children("/") == []

    def test_missing_parents_are_made_on_demand(self, tree: Tree) -> None:
        tree.create("/a", b"kept")
        assert tree.create("/a/b/c/d", b"x", ephemeral=True, make_parents=True) == "/a/b/c/d"
        assert tree.get("/a").data == b"kept"
        assert not tree.get("/a/b/c").ephemeral
        assert tree.get("/a/b/c/d").ephemeral

    def test_sequence_numbers_grow_even_after_deletions(self, tree: Tree, other: Tree) -> None:
        tree.create("/q")
        names = [client.create("/q/item-", sequential=True) for client in (tree, other, tree)]
        tree.delete(names[-1])
        names.append(other.create("/q/item-", sequential=True, ephemeral=True))
        assert names == sorted(set(names))
        assert all(len(name) == len("/q/item-") + 10 for name in names)
        assert all(name[-10:].isdigit() for name in names)

    @pytest.mark.parametrize("make_parents", [False, True])
    def test_ephemeral_nodes_have_no_children(self, tree: Tree, make_parents: bool) -> None:
        tree.create("/e", ephemeral=True)
        with pytest.raises(NoChildrenForEphemerals, match="/e is ephemeral"):
            tree.create("/e/child", make_parents=make_parents)

    # -- get, find, set ----------------------------------------------------------------------

    def test_what_is_absent(self, tree: Tree) -> None:
        assert tree.find("/n") is None
        calls: list[Callable[[], object]] = [
            lambda: tree.get("/n"),
            lambda: tree.set("/n", b""),
            lambda: tree.set("/n", b"", version=0),
            lambda: tree.delete("/n"),
            lambda: tree.delete("/n", recursive=True),
            lambda: tree.children("/n"),
        ]
        for call in calls:
            with pytest.raises(NoNode, match="no node /n"):
                call()

    def test_every_set_adds_one_to_the_version(self, tree: Tree, other: Tree) -> None:
        tree.create("/n")
        assert [tree.set("/n", b"1"), other.set("/n", b"2"), tree.set("/n", b"2")] == [1, 2, 3]
        found = other.find("/n")
        assert found is not None
        assert (found.data, found.version) == (b"2", 3)

    def test_compare_and_set(self, tree: Tree, other: Tree) -> None:
        tree.create("/n", b"old")
        assert tree.set("/n", b"mine", version=0) == 1
        with pytest.raises(BadVersion, match="/n is not at version 0") as caught:
            other.set("/n", b"late", version=0)
        assert (caught.value.path, caught.value.expected) == ("/n", 0)
        assert tree.get("/n").data == b"mine"

    def test_another_node_with_the_same_path_is_told_apart(self, tree: Tree) -> None:
        tree.create("/n")
        first = tree.get("/n")
        tree.set("/n", b"x")
        assert tree.get("/n").created == first.created
        tree.delete("/n")
        tree.create("/n")
        assert tree.get("/n").version == 0
        assert tree.get("/n").created > first.created

    def test_many_clients_count_exactly(self, backend: Backend, tree: Tree) -> None:
        tree.create("/n", b"0")

        def count() -> None:
            with backend.open() as client:
                for _ in range(20):
                    increment(client, "/n")

        _in_threads([count] * 4)
        assert tree.get("/n").data == b"80"

    def test_of_many_clients_one_creates(self, backend: Backend, tree: Tree) -> None:
        start = threading.Barrier(4)

        def create() -> bool:
            with backend.open() as client:
                start.wait()
                try:
                    client.create("/n")
                except NodeExists:
                    return False
                return True

        assert sorted(_in_threads([create] * 4)) == [False, False, False, True]

    # -- delete, children --------------------------------------------------------------------

    def test_delete(self, tree: Tree, other: Tree) -> None:
        tree.create("/n/child", make_parents=True)
        with pytest.raises(NotEmpty, match="/n has children"):
            tree.delete("/n")
        with pytest.raises(BadVersion):
            tree.delete("/n/child", version=1)
        other.delete("/n/child", version=0)
        other.delete("/n")
        assert tree.find("/n") is None

    def test_recursive_delete_takes_the_branch_and_nothing_else(self, tree: Tree) -> None:
        kept = ["/a-", "/a-/x", "/a0", "/ab", "/b"]
        for path in ["/a", "/a/b", "/a/b/c", "/a/ä", *kept]:
            tree.create(path)
        tree.delete("/a", recursive=True)
        assert tree.children("/") == ["a-", "a0", "ab", "b"]
        assert all(tree.find(path) is not None for path in kept)
        tree.create("/a")
        assert tree.children("/a") == []

    def test_what_cannot_be_deleted(self, tree: Tree) -> None:
        tree.create("/n")
        with pytest.raises(PipelineError, match="root"):
            tree.delete("/", recursive=True)
        with pytest.raises(PipelineError, match="not both"):
            tree.delete("/n", version=0, recursive=True)
        assert tree.find("/n") is not None

    def test_children_are_sorted_names(self, tree: Tree) -> None:
        for name in ["b", "a", "ä", "B", "10", "9"]:
            tree.create(f"/n/{name}/below", make_parents=True)
        assert tree.children("/n") == sorted(["b", "a", "ä", "B", "10", "9"])
        assert tree.children("/n/a/below") == []

    # -- bad calls ---------------------------------------------------------------------------

    @pytest.mark.parametrize("path", BAD_PATHS)
    def test_bad_paths(self, tree: Tree, path: str) -> None:
        calls: list[Callable[[], object]] = [
            lambda: tree.create(path),
            lambda: tree.get(path),
            lambda: tree.find(path),
            lambda: tree.set(path, b""),
            lambda: tree.delete(path),
            lambda: tree.children(path),
            lambda: tree.watch(path, print),
        ]
        for call in calls:
            with pytest.raises(PipelineError, match="bad tree path"):
                call()

    def test_data_is_bytes_and_small(self, tree: Tree) -> None:
        tree.create("/n", bytes(MAX_DATA))
        for data in ("text", bytes(MAX_DATA + 1)):
            with pytest.raises(PipelineError, match="/n"):
                tree.set("/n", data)  # type: ignore[arg-type]
        assert tree.get("/n").version == 0

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
            eventually(lambda: _is_over(other), "the session is over", PATIENCE)
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


class NamesContract(_Clients):
    """What the directory of jobs builds on the tree: a name is had by one home at a time."""

    HOMES = 4
    ROUNDS = 8

    @pytest.fixture
    def homes(self, backend: Backend) -> Iterator[list[Tree]]:
        opened = [backend.open() for _ in range(self.HOMES)]
        yield opened
        for tree in opened:
            tree.close()

    def test_of_those_that_come_at_once_exactly_one_gets_the_name(self, tree: Tree, homes: list[Tree]) -> None:
        known, barrier = Directory(tree), threading.Barrier(self.HOMES)

        def come(home: int, name: str) -> bool:
            barrier.wait()
            try:
                Directory(homes[home]).enter(Job(name, f"/homes/{home}", f"home{home}", {}, ()))
            except PipelineError as refused:
                assert f"a job {name} runs already" in str(refused)
                return False
            return True

        with ThreadPoolExecutor(self.HOMES) as pool:
            for name in map("job{}".format, range(self.ROUNDS)):
                entered = list(pool.map(come, range(self.HOMES), [name] * self.HOMES))
                assert sum(entered) == 1, f"{entered} have entered as {name}"
                assert known.job(name).identity == f"home{entered.index(True)}"
                assert known.is_alive(name)
        for one in homes:
            one.close()
        eventually(lambda: not any(map(known.is_alive, known.jobs())), "with their sessions they are gone")

    def test_who_was_cut_off_comes_back_under_its_name(self, backend: Backend, tree: Tree) -> None:
        known, own = Directory(tree), Job("job", "/homes/1", "1", {}, ())
        with backend.open() as lost, backend.open() as again:
            Directory(lost).enter(own)
            Directory(again).enter(own)
            backend.expire(lost)
            assert known.is_alive("job")
            with pytest.raises(PipelineError, match="a job job runs already, in /homes/1"):
                known.enter(Job("job", "/homes/2", "2", {}, ()))
        eventually(lambda: not known.is_alive("job"), "it has left")
        known.enter(Job("job", "/homes/2", "2", {}, ()))
        assert known.job("job").home == "/homes/2"


class LeaseContract(_Clients):
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
        eventually(lambda: _is_over(other), "the session is over", PATIENCE)
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

        tokens = {token for tokens in _in_threads([count] * 3) for token in tokens}
        assert tree.get("/n").data == b"15"
        assert len(tokens) == 15


def increment(tree: Tree, path: str) -> None:
    """Add one to a number by compare-and-set."""
    while True:
        node = tree.get(path)
        try:
            tree.set(path, b"%d" % (int(node.data) + 1), version=node.version)
        except BadVersion:
            continue
        return


def _is_over(tree: Tree) -> bool:
    try:
        tree.find("/")
    except SessionExpired:
        return True
    return False


def _in_threads(tasks: list[Callable[[], Result]]) -> list[Result]:
    with ThreadPoolExecutor(len(tasks)) as pool:
        return [future.result() for future in [pool.submit(task) for task in tasks]]
