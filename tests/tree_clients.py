"""What clients of shared trees have running in this process, and what becomes of them in others."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from typing import Any

from tidelock.coordination import Tree, open_tree
from tidelock.errors import PipelineError

# Of kazoo, and of the project's own clients.
_NAMES = ("zk_loop", "tidelock-heartbeat", "tidelock-watch", "tidelock-zookeeper-end")


def client_threads() -> set[str]:
    """The threads in which clients of this process keep up their connections and sessions, told apart."""
    return {
        f"{thread.name} {thread.ident}"
        for thread in threading.enumerate()
        if any(name in thread.name for name in _NAMES)
    }


@contextmanager
def process(target: Callable[..., None], *arguments: Any) -> Iterator[BaseProcess]:
    """Run `target` in a new process and kill it at the end, if it is still there."""
    child = multiprocessing.get_context("spawn").Process(target=target, args=arguments, daemon=True)
    child.start()
    try:
        yield child
    finally:
        child.kill()
        child.join()


def fork_a_client(url: str) -> None:
    """To be run in a process of its own: a child of it cannot use the client, and ends nothing of it."""
    with open_tree(url) as tree:
        tree.create("/mine", ephemeral=True)
        child = os.fork()
        if child == 0:
            os._exit(_use_in_child(tree, url))
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        assert tree.get("/mine").ephemeral  # the child's close() did not end our session


def _use_in_child(tree: Tree, url: str) -> int:
    """Return 0 if the inherited client is refused and a new one works."""
    try:
        tree.get("/mine")
    except PipelineError as error:
        assert "fork" in str(error)
        tree.close()
        with open_tree(url) as own:
            return 0 if own.find("/mine") is not None else 1
    return 2
