"""What every part of the contract of shared trees needs."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import pytest

from tidelock.coordination import BadVersion, Event, EventKind, SessionExpired, Tree

Result = TypeVar("Result")

PATIENCE = 20.0
"""For how many seconds a client waits for what another one does."""


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


class Clients:
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


def increment(tree: Tree, path: str) -> None:
    """Add one to a number by compare-and-set."""
    while True:
        node = tree.get(path)
        try:
            tree.set(path, b"%d" % (int(node.data) + 1), version=node.version)
        except BadVersion:
            continue
        return


def is_over(tree: Tree) -> bool:
    """Whether the session of a client is over."""
    try:
        tree.find("/")
    except SessionExpired:
        return True
    return False


def in_threads(tasks: list[Callable[[], Result]]) -> list[Result]:
    """Do all of them at once."""
    with ThreadPoolExecutor(len(tasks)) as pool:
        return [future.result() for future in [pool.submit(task) for task in tasks]]
