"""What every part of the contract of log stores needs."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator

import pytest

from tidelock.log import EpochLog, LogWriter, open_store
from tidelock.log.store import LogStore
from tidelock.testing.logs import SCHEMA

ANY_STEP = range(1, 13)
"""One pauses before the first, the second, ... step that one takes with a store: there are fewer than so many."""
SPAWN = multiprocessing.get_context("spawn")


class LogFixtures:
    """A log that does not exist yet, and what is made of it."""

    @pytest.fixture
    def url(self) -> str:
        raise NotImplementedError("the backend's test class gives the URL")

    @pytest.fixture
    def store(self, url: str) -> LogStore:
        return open_store(url)

    @pytest.fixture
    def log(self, url: str) -> EpochLog:
        return EpochLog.create(url, SCHEMA)

    @pytest.fixture
    def writer(self, log: EpochLog) -> LogWriter:
        return log.take_over("the test")

    @pytest.fixture(autouse=True)
    def no_children_stay(self) -> Iterator[None]:
        yield
        assert not multiprocessing.active_children()
