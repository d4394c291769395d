"""The embedded tree: the interface `Tree` on one SQLite file, without any server.

Any number of threads and processes of one machine may use the same file, on a local disk. What is
done here is only the order of things: check the call, begin a transaction, bury overdue sessions,
make sure that our own is alive, and apply a rule from `nodes`.
"""

from __future__ import annotations

import logging
import os
import re
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from tidelock.coordination.embedded import nodes
from tidelock.coordination.embedded.database import Database
from tidelock.coordination.embedded.sessions import Heartbeat, Session
from tidelock.coordination.embedded.watches import Watcher
from tidelock.coordination.errors import NodeExists
from tidelock.coordination.paths import ROOT, check_data, check_path
from tidelock.coordination.tree import Event, Node, Tree, Watch
from tidelock.errors import PipelineError, TidelockError

__all__ = ["EmbeddedTree"]

_LOGGER = logging.getLogger(__name__)

# A relative path would mean another tree in every working directory; options are not supported.
_ABSOLUTE_FILE = re.compile(r"/(?!/)[^?#]*[^?#/]")


class EmbeddedTree(Tree):
    """A client of the tree in `file`; see `Tree` for what each method promises.

    Raises `LogCorrupt` when the file is damaged, removed or replaced. After a fork the child cannot
    use the client (`PipelineError`), and closing it there does nothing: the parent still owns the
    session. Open a client in the child instead.
    """

    def __init__(
        self,
        file: str | Path,
        *,
        session_timeout: float = 10.0,
        busy_timeout: float = 10.0,
        poll_interval: float = 0.02,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Open a client with a session of its own; the file and its folder are created if needed.

        Args:
            file: the SQLite file, on a local disk.
            session_timeout: seconds without a heartbeat after which others end this session.
            busy_timeout: seconds to wait for other writers before `BackendUnavailable`.
            poll_interval: seconds until a watch notices a change by another process.
            clock: seconds that grow alike for every client of the file.

        Raises:
            PipelineError: the file belongs to another application.
            UnsupportedFormat: the file was written by a newer Tidelock.
            LogCorrupt: the file is damaged.
            BackendUnavailable: it is locked, or the disk refuses.
        """
        if session_timeout <= 0:
            raise PipelineError(f"a session time-out must be positive, not {session_timeout}")
        self._file = Path(file)
        self._pid = os.getpid()
        with ExitStack() as opened:
            self._database = opened.enter_context(closing(self._open(busy_timeout)))
            with self._database.write() as rows:
                self._session = Session(rows, str(self._file), session_timeout, clock)
            opened.callback(self._end_session)
            beats = opened.enter_context(closing(self._open(busy_timeout, durable=False)))
            opened.enter_context(closing(Heartbeat(beats, self._session)))
            sights = opened.enter_context(closing(self._open(busy_timeout)))
            self._watcher = Watcher(sights, self._session, poll_interval, self._bury_overdue)
            opened.callback(self._watcher.close)
            self._opened = opened.pop_all()

    @classmethod
    def from_url(cls, url: str, session_timeout: float) -> EmbeddedTree:
        """Open ``embedded:/absolute/file.db`` (or ``embedded:///absolute/file.db``).

        Raises:
            PipelineError: the URL is malformed.
        """
        return cls.at(url)(session_timeout)

    @classmethod
    def at(cls, url: str) -> Callable[[float], EmbeddedTree]:
        """What opens the tree at a URL, for a session timeout; the URL has been checked.

        The path is taken as it is written, without percent escapes.

        Raises:
            PipelineError: the URL is malformed.
        """
        path = url.removeprefix("embedded:")
        path = path.removeprefix("//") if path.startswith("///") else path
        if not _ABSOLUTE_FILE.fullmatch(path):
            raise PipelineError(
                f"malformed URL {url!r}: write embedded:/absolute/file.db, a file on this machine and no options"
            )
        return lambda session_timeout: cls(path, session_timeout=session_timeout)

    def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        make_parents: bool = False,
    ) -> str:
        """Create a node, and missing parents in the same step; see `Tree.create`."""
        check_data(check_path(path), data)
        if path == ROOT:
            raise NodeExists(path)
        with self._writing() as rows:
            if make_parents:
                nodes.create_missing_parents(rows, path)
            owner = self._session.id if ephemeral else None
            return nodes.create(rows, path, data, session=owner, sequential=sequential)

    def get(self, path: str) -> Node:
        """Return the node or raise `NoNode`; see `Tree.get`."""
        check_path(path)
        with self._reading() as rows:
            return nodes.get(rows, path)

    def set(self, path: str, data: bytes, *, version: int | None = None) -> int:
        """Replace the data and return the new version; see `Tree.set`."""
        check_data(check_path(path), data)
        with self._writing() as rows:
            return nodes.set_data(rows, path, data, version)

    def delete(self, path: str, *, version: int | None = None, recursive: bool = False) -> None:
        """Delete a node, or in one step a whole branch; see `Tree.delete`."""
        if check_path(path) == ROOT:
            raise PipelineError("the root of the tree cannot be deleted: name a node below it")
        if recursive and version is not None:
            raise PipelineError(f"delete {path} either recursively or at a version, not both")
        with self._writing() as rows:
            if recursive:
                nodes.delete_tree(rows, path)
            else:
                nodes.delete(rows, path, version)

    def children(self, path: str) -> list[str]:
        """Return the sorted names of the children; see `Tree.children`."""
        check_path(path)
        with self._reading() as rows:
            return nodes.children(rows, path)

    def watch(self, path: str, callback: Callable[[Event], None]) -> Watch:
        """Call back after every change; see `Tree.watch`."""
        check_path(path)
        self._require_usable()
        return self._watcher.add(path, callback)

    def close(self) -> None:
        """End the session; does nothing in a forked child. See `Tree.close`."""
        if os.getpid() == self._pid:
            self._session.over.set()
            self._opened.close()

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """Change the tree in one transaction, in which no dead session can be seen."""
        self._require_usable()
        with self._database.write() as rows:
            self._session.require(rows)
            self._session.bury_overdue(rows)
            yield rows
        self._watcher.wake()

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        """Read the tree on one snapshot, in which no dead session can be seen."""
        self._require_usable()
        with self._database.read() as rows:
            overdue = self._session.sees_overdue(rows)
        if overdue:
            self._bury_overdue()
        with self._database.read() as rows:
            self._session.require(rows)
            yield rows

    def _bury_overdue(self) -> None:
        with self._writing():
            pass

    def _require_usable(self) -> None:
        """Raise before any lock is touched, which a forked child may have inherited locked."""
        if os.getpid() != self._pid:
            raise PipelineError(
                f"the tree {self._file} was opened in process {self._pid} and cannot be used after "
                "a fork: open it in this process"
            )
        self._session.require_locally()

    def _open(self, busy_timeout: float, *, durable: bool = True) -> Database:
        return Database(self._file, busy_timeout=busy_timeout, durable=durable)

    def _end_session(self) -> None:
        try:
            with self._database.write() as rows:
                self._session.end(rows)
        except TidelockError as error:
            _LOGGER.warning("session with %s is left to expire: %s", self._file, error)
