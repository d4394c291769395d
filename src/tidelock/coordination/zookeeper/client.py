"""The tree on ZooKeeper: the interface `Tree` by one session with an ensemble.

Below the path of the URL there are two nodes: ``tree``, with the nodes of the tree as they are, and
``receipts``, with one node for each session that is alive (see `changes`). Every question to read is
preceded by a ``sync``, sent in the same go: a server of the ensemble may lag behind the others, and
what a call has changed must be visible to every later call of anybody.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Any

from tidelock.coordination.errors import BadVersion, NodeExists, NoNode, NotEmpty
from tidelock.coordination.paths import ROOT, ancestors, check_data, check_path, join, parent
from tidelock.coordination.tree import Event, Node, Tree, Watch
from tidelock.coordination.zookeeper.changes import Changes
from tidelock.coordination.zookeeper.failures import creating, translated
from tidelock.coordination.zookeeper.location import ZooKeeperLocation, parse
from tidelock.coordination.zookeeper.session import Session
from tidelock.coordination.zookeeper.watches import Watcher
from tidelock.errors import BackendUnavailable, PipelineError

__all__ = ["ZooKeeperTree"]

_ANY_VERSION = -1
_LAST_VERSION = 2**31 - 1


class ZooKeeperTree(Tree):
    """A client of the tree at `location`; see `Tree` for what each method promises.

    A change is made once, also when the connection breaks meanwhile: either the method returns, or it
    raises and nothing was changed. Only `BackendUnavailable` leaves that open, and its message says
    so: the change may have been made, or may still be made until this client changes something else
    or its session is over. After a fork the child cannot use the client (`PipelineError`), and closing
    it there does nothing: the parent still owns the session. Open a client in the child instead.
    """

    def __init__(self, location: ZooKeeperLocation, *, session_timeout: float = 10.0) -> None:
        """Open a client with a session of its own; what it needs at `location` is created.

        Args:
            location: the ensemble, and the node in it below which the tree is kept.
            session_timeout: seconds without a sign of life after which the ensemble ends the session;
                the servers may have limits for it.

        Raises:
            PipelineError: the ensemble refuses the user.
            BackendUnavailable: no server answers.
        """
        if session_timeout <= 0:
            raise PipelineError(f"a session time-out must be positive, not {session_timeout}")
        self._pid = os.getpid()
        self._location = location
        self._root = f"{location.root}/tree"
        self._watcher: Watcher | None = None
        with ExitStack() as opened:
            self._session = Session(location, session_timeout, self._end_watches)
            opened.callback(self._session.close)
            for node in (*ancestors(self._root), self._root, f"{location.root}/receipts"):
                self._make(node)
            with creating(location, ROOT):
                self._changes = Changes(self._session, f"{location.root}/receipts")
            self._watcher = Watcher(self._session, self._root)
            opened.pop_all()

    @classmethod
    def from_url(cls, url: str, session_timeout: float) -> ZooKeeperTree:
        """Open ``zookeeper://host:2181,host2:2181/path``; see `location` for all that a URL can say.

        Raises:
            PipelineError: the URL is malformed.
        """
        return cls.at(url)(session_timeout)

    @classmethod
    def at(cls, url: str) -> Callable[[float], ZooKeeperTree]:
        """What opens the tree at a URL, for a session timeout; the URL has been checked.

        Raises:
            PipelineError: the URL is malformed.
        """
        location = parse(url)
        return lambda session_timeout: cls(location, session_timeout=session_timeout)

    def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        make_parents: bool = False,
    ) -> str:
        """Create a node, after missing parents; see `Tree.create`."""
        check_data(check_path(path), data)
        if path == ROOT:
            raise NodeExists(path)
        self._require_usable()
        try:
            return self._create(path, data, ephemeral, sequential)
        except NoNode:
            if not make_parents:
                raise
        for ancestor in ancestors(path):
            self._make(self._full(ancestor), ancestor)
        return self._create(path, data, ephemeral, sequential)

    def get(self, path: str) -> Node:
        """Return the node or raise `NoNode`; see `Tree.get`."""
        data, stat = self._read(path, lambda kazoo, full: kazoo.get_async(full))
        return Node(data, stat.version, stat.czxid, ephemeral=stat.ephemeralOwner != 0)

    def set(self, path: str, data: bytes, *, version: int | None = None) -> int:
        """Replace the data and return the new version; see `Tree.set`."""
        check_data(check_path(path), data)
        self._require_usable()
        if version is not None:
            return self._set(path, data, version)
        while True:
            # Only with a version the new one is known although an acknowledgement was lost.
            try:
                return self._set(path, data, self.get(path).version)
            except BadVersion:
                continue

    def delete(self, path: str, *, version: int | None = None, recursive: bool = False) -> None:
        """Delete a node, or node by node a whole branch; see `Tree.delete`."""
        if check_path(path) == ROOT:
            raise PipelineError("the root of the tree cannot be deleted: name a node below it")
        if recursive and version is not None:
            raise PipelineError(f"delete {path} either recursively or at a version, not both")
        self._require_usable()
        if recursive:
            self._delete_branch(path)
        else:
            self._delete(path, version)

    def children(self, path: str) -> list[str]:
        """Return the sorted names of the children; see `Tree.children`."""
        names: list[str] = self._read(path, lambda kazoo, full: kazoo.get_children_async(full))
        return sorted(names)

    def watch(self, path: str, callback: Callable[[Event], None]) -> Watch:
        """Call back after every change; see `Tree.watch`."""
        check_path(path)
        self._require_usable()
        assert self._watcher is not None
        return self._watcher.add(path, callback)

    def close(self) -> None:
        """End the session; does nothing in a forked child. See `Tree.close`."""
        if os.getpid() == self._pid:
            self._session.close()
            if self._watcher is not None:
                self._watcher.close()

    def _create(self, path: str, data: bytes, ephemeral: bool, sequential: bool) -> str:
        with creating(self._location, path):
            made = self._changes.make(
                lambda transaction: transaction.create(
                    self._full(path), data, ephemeral=ephemeral, sequence=sequential
                )
            )
        if not sequential:
            return path
        if made.answer is None:
            return self._made_by(made.transaction, path)
        return str(made.answer).removeprefix(self._root)

    def _made_by(self, transaction: int, path: str) -> str:
        """The path of a sequential node of which only the transaction is known that created it."""
        above = parent(path)
        for name in self.children(above):
            node = self.find(join(above, name))
            if node is not None and node.created == transaction:
                return join(above, name)
        raise BackendUnavailable(
            f"{self._location.shown}: the sequential node {path} was created, but the connection broke before its "
            "number was known, and another client has deleted it since"
        )

    def _set(self, path: str, data: bytes, version: int) -> int:
        self._require_possible(path, version)
        with translated(self._location, path, version):
            self._changes.make(lambda transaction: transaction.set_data(self._full(path), data, version))
        return version + 1

    def _delete(self, path: str, version: int | None = None) -> None:
        if version is not None:
            self._require_possible(path, version)
        expected = _ANY_VERSION if version is None else version
        with translated(self._location, path, version):
            self._changes.make(lambda transaction: transaction.delete(self._full(path), expected))

    def _require_possible(self, path: str, version: int) -> None:
        """Refuse what no node can have, some of which ZooKeeper takes for "any version"."""
        if not 0 <= version <= _LAST_VERSION:
            self.get(path)
            raise BadVersion(path, version)

    def _delete_branch(self, path: str) -> None:
        while True:
            for name in self.children(path):
                try:
                    self._delete_branch(join(path, name))
                except NoNode:
                    continue
            try:
                return self._delete(path)
            except NotEmpty:  # somebody has created a child meanwhile
                continue

    def _read(self, path: str, question: Callable[[Any, str], Any]) -> Any:
        check_path(path)
        self._require_usable()
        full = self._full(path)
        with translated(self._location, path):
            _, answer = self._session.read(lambda kazoo: [kazoo.sync_async(full), question(kazoo, full)])
        return answer

    def _make(self, full: str, path: str = ROOT) -> None:
        """See that a persistent node is there; who made it does not matter."""
        with suppress(NodeExists), creating(self._location, path):
            self._session.read(lambda kazoo: [kazoo.create_async(full)])

    def _full(self, path: str) -> str:
        return self._root if path == ROOT else self._root + path

    def _end_watches(self) -> None:
        if self._watcher is not None:
            self._watcher.wake()

    def _require_usable(self) -> None:
        """Raise before any lock is touched, which a forked child may have inherited locked."""
        if os.getpid() != self._pid:
            raise PipelineError(
                f"the tree {self._location.shown} was opened in process {self._pid} and cannot be used after "
                "a fork: open it in this process"
            )
        self._session.require()
