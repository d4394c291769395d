"""The embedded tree against a plain dictionary, by random sequences of calls of two clients."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tidelock.coordination import (
    BadVersion,
    EmbeddedTree,
    NoChildrenForEphemerals,
    NodeError,
    NodeExists,
    NoNode,
    NotEmpty,
)

TIMEOUT = 30_000.0  # in the machine's own time; real heartbeats are hours apart

names = st.sampled_from(["a", "b", "a0", "ä"])
paths = st.lists(names, min_size=1, max_size=3).map(lambda parts: "/" + "/".join(parts))
data = st.binary(max_size=3)
versions = st.none() | st.integers(0, 2)
clients = st.integers(0, 1)


@dataclass
class ModelNode:
    data: bytes
    owner: int | None
    version: int = 0
    next_number: int = 0


class Model:
    """The rules of the tree on a dictionary; sequence numbers are checked, not predicted."""

    def __init__(self) -> None:
        self.nodes = {"/": ModelNode(b"", None)}

    def create(self, path: str, data: bytes, owner: int | None, make_parents: bool) -> None:
        above = path.rpartition("/")[0] or "/"
        if above not in self.nodes:
            if not make_parents:
                raise NoNode(above)
            self.create(above, b"", None, make_parents=True)
        if self.nodes[above].owner is not None:
            raise NoChildrenForEphemerals(above)
        if path in self.nodes:
            raise NodeExists(path)
        self.nodes[path] = ModelNode(data, owner)

    def set(self, path: str, data: bytes, version: int | None) -> int:
        node = self.require(path, version)
        node.data, node.version = data, node.version + 1
        return node.version

    def delete(self, path: str, version: int | None) -> None:
        self.require(path, version)
        if self.children(path):
            raise NotEmpty(path)
        del self.nodes[path]

    def delete_tree(self, path: str) -> None:
        self.require(path, None)
        self._keep(lambda other: other != path and not other.startswith(f"{path}/"))

    def end_session(self, owner: int) -> None:
        self._keep(lambda path: self.nodes[path].owner != owner)

    def children(self, path: str) -> list[str]:
        prefix = path.rstrip("/") + "/"
        below = [other[len(prefix) :] for other in self.nodes if other.startswith(prefix)]
        return sorted(name for name in below if name and "/" not in name)

    def require(self, path: str, version: int | None) -> ModelNode:
        if path not in self.nodes:
            raise NoNode(path)
        if version is not None and self.nodes[path].version != version:
            raise BadVersion(path, version)
        return self.nodes[path]

    def _keep(self, wanted: Callable[[str], bool]) -> None:
        self.nodes = {path: node for path, node in self.nodes.items() if wanted(path)}


def outcome(call: Callable[[], Any]) -> Any:
    """Return the result of a call, or the kind and the path of its error."""
    try:
        return call()
    except NodeError as error:
        return type(error), error.path


class TreeMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.now = 1_000_000.0
        self.model = Model()
        self.observer = self.open(1e9)
        self.clients = [self.open(TIMEOUT), self.open(TIMEOUT)]

    def open(self, timeout: float) -> EmbeddedTree:
        file = Path(self.folder.name) / "tree.db"
        return EmbeddedTree(file, session_timeout=timeout, clock=lambda: self.now)

    @rule(who=clients, path=paths, data=data, ephemeral=st.booleans(), parents=st.booleans())
    def create(self, who: int, path: str, data: bytes, ephemeral: bool, parents: bool) -> None:
        expected = outcome(lambda: self.model.create(path, data, who if ephemeral else None, parents))
        found = outcome(lambda: self.clients[who].create(path, data, ephemeral=ephemeral, make_parents=parents))
        assert found == (path if expected is None else expected)

    @rule(who=clients, path=paths, ephemeral=st.booleans())
    def create_sequential(self, who: int, path: str, ephemeral: bool) -> None:
        found = outcome(lambda: self.clients[who].create(path, sequential=True, ephemeral=ephemeral))
        final = found if isinstance(found, str) else path + "?"
        expected = outcome(lambda: self.model.create(final, b"", who if ephemeral else None, make_parents=False))
        if expected is not None:
            assert found == expected
            return
        parent = self.model.nodes[final.rpartition("/")[0] or "/"]
        number = int(final.removeprefix(path))
        assert len(final) == len(path) + 10
        assert number >= parent.next_number
        parent.next_number = number + 1

    @rule(who=clients, path=paths | st.just("/"), data=data, version=versions)
    def set(self, who: int, path: str, data: bytes, version: int | None) -> None:
        assert outcome(lambda: self.clients[who].set(path, data, version=version)) == outcome(
            lambda: self.model.set(path, data, version)
        )

    @rule(who=clients, path=paths, version=versions)
    def delete(self, who: int, path: str, version: int | None) -> None:
        assert outcome(lambda: self.clients[who].delete(path, version=version)) == outcome(
            lambda: self.model.delete(path, version)
        )

    @rule(who=clients, path=paths)
    def delete_tree(self, who: int, path: str) -> None:
        assert outcome(lambda: self.clients[who].delete(path, recursive=True)) == outcome(
            lambda: self.model.delete_tree(path)
        )

    @rule(who=clients)
    def close(self, who: int) -> None:
        self.clients[who].close()
        self.clients[who] = self.open(TIMEOUT)
        self.model.end_session(who)

    @rule()
    def stop_for_too_long(self) -> None:
        self.now += TIMEOUT
        self.observer.find("/")  # somebody has to miss the sessions
        for who, client in enumerate(self.clients):
            client.close()
            self.clients[who] = self.open(TIMEOUT)
            self.model.end_session(who)

    @invariant()
    def the_tree_is_the_model(self) -> None:
        found = {}
        pending = ["/"]
        while pending:
            path = pending.pop()
            node = self.observer.get(path)
            found[path] = (node.data, node.version, node.ephemeral)
            names = self.observer.children(path)
            assert names == self.model.children(path)
            pending += [f"{path.rstrip('/')}/{name}" for name in names]
        assert found == {
            path: (node.data, node.version, node.owner is not None) for path, node in self.model.nodes.items()
        }

    def teardown(self) -> None:
        for client in [*self.clients, self.observer]:
            client.close()
        self.folder.cleanup()


TestTree = TreeMachine.TestCase
TestTree.settings = settings(max_examples=25, stateful_step_count=25, deadline=None, print_blob=True)
