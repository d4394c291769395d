"""Nodes: made, read, changed and deleted, by several clients at once."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from tidelock.coordination import (
    BadVersion,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    Tree,
)
from tidelock.coordination.paths import MAX_DATA
from tidelock.errors import PipelineError
from tidelock.testing.contracts.trees.base import (
    Backend,
    Clients,
    in_threads,
    increment,
)

BAD_PATHS = ["", "a", "a/b", "//", "/a/", "/a//b", "/a/./b", "/..", "/a\x00b", "/a\nb", "/\ud800"]


class NodesContract(Clients):
    """What a tree does with its nodes."""

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

        in_threads([count] * 4)
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

        assert sorted(in_threads([create] * 4)) == [False, False, False, True]

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
