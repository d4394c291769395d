"""Names of jobs: what the directory builds on the tree."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tidelock.alignment.directory import Directory, Job
from tidelock.coordination import (
    Tree,
)
from tidelock.errors import PipelineError
from tidelock.testing.contracts.trees.base import (
    Backend,
    Clients,
)
from tidelock.testing.waiting import eventually


class NamesContract(Clients):
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
