"""Agreed positions under arbitrary interleaving: looking, making and dropping, deaths in between."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.memory_logs import MemoryLog

from tidelock.following import agreed_positions
from tidelock.following.agreed_positions import AgreedPositions
from tidelock.following.merging import Position, newer

JOBS = 3
jobs = st.integers(0, JOBS - 1)
KEPT = 3


class Died(Exception):
    """A job was killed."""


class Agreeing(RuleBasedStateMachine):
    """Three jobs over two logs. Between a job's look and its proposal anything may happen, for ever so long."""

    @initialize()
    def begin(self) -> None:
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(agreed_positions, "KEPT", KEPT)
        self.logs = [MemoryLog("a"), MemoryLog("b")]
        self.jobs = [AgreedPositions(self.logs) for _ in range(JOBS)]
        self.looked: dict[int, Position | None] = {}
        self.agreed: list[Position] = []  # all that ever were, in order

    def base(self, job: int) -> Position:
        newest = self.looked[job]
        return {"a": -1, "b": -1} if newest is None else newest

    @rule(job=jobs)
    def look(self, job: int) -> None:
        found = self.jobs[job].agreed()
        assert found == self.agreed[len(self.agreed) - len(found) :], "the newest ones, without a gap"
        assert len(found) >= min(len(self.agreed), 1)
        self.looked[job] = self.jobs[job].newest()
        assert self.looked[job] == (self.agreed[-1] if self.agreed else None)

    @rule(job=jobs, a=st.integers(1, 3), b=st.integers(1, 3), ahead=st.integers(0, 4))
    def propose(self, job: int, a: int, b: int, ahead: int) -> None:
        """Behind the newest that the job has seen; or further, if it is ahead of that itself."""
        if job not in self.looked:
            return
        base = newer(self.base(job), {"a": self.base(job)["a"] + ahead, "b": -1})
        position = {"a": base["a"] + a, "b": base["b"] + b}
        stale = self.looked.pop(job) != (self.agreed[-1] if self.agreed else None)
        made = self.jobs[job].propose(position)
        assert made is not stale, "who has seen the newest is heard, and nobody else"
        if made:
            self.agreed.append(position)
            assert len(self.logs[0].store.names("meeting/")) <= KEPT

    @rule(job=jobs, times=st.integers(1, KEPT + 3))
    def agree_often(self, job: int, times: int) -> None:
        for _ in range(times):
            self.look(job)
            self.propose(job, 1, 2, 0)

    @rule(job=jobs, deletions=st.integers(0, 2))
    def agree_and_die_while_dropping(self, job: int, deletions: int) -> None:
        self.look(job)
        position = {name: at + 1 for name, at in self.base(job).items()}
        self.looked.pop(job)
        store = self.logs[0].store
        delete, left = store.delete, iter(range(deletions))
        with pytest.MonkeyPatch.context() as patch, contextlib.suppress(Died):
            patch.setattr(store, "delete", lambda name: delete(name) if next(left, None) is not None else _die())
            self.jobs[job].propose(position)
        self.agreed.append(position)
        self.jobs[job] = AgreedPositions(self.logs)

    @rule(job=jobs, another=jobs)
    def propose_while_another_does(self, job: int, another: int) -> None:
        """The other one is faster, right before the document is made."""
        if job == another or not {job, another} <= self.looked.keys():
            return
        self.logs[0].store.before_create = lambda: self.propose(another, 1, 1, 0)
        self.propose_late(job)

    def propose_late(self, job: int) -> None:
        position = {name: at + 1 for name, at in self.base(job).items()}
        seen, before = self.looked.pop(job), len(self.agreed)
        made = self.jobs[job].propose(position)
        self.logs[0].store.before_create = None
        if made:
            assert len(self.agreed) == before, "the other one was stale, and this one was not"
            self.agreed.append(position)
        else:
            assert seen != self.agreed[-1]

    @rule(job=jobs)
    def propose_and_die(self, job: int) -> None:
        """Right after the document is made. A stale one must not count, one that is not stale does."""
        if job not in self.looked:
            return
        position = {name: at + 1 for name, at in self.base(job).items()}
        stale = self.looked.pop(job) != (self.agreed[-1] if self.agreed else None)
        made = len(self.logs[0].store.made)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(self.jobs[job], "_counts", _die)
            try:
                self.jobs[job].propose(position)
            except Died:
                assert len(self.logs[0].store.made) == made + 1
        if not stale:
            self.agreed.append(position)
        self.jobs[job] = AgreedPositions(self.logs)

    @rule(job=jobs)
    def restart(self, job: int) -> None:
        self.jobs[job] = AgreedPositions(self.logs)
        self.looked.pop(job, None)

    @rule(back=st.integers(0, 3))
    def logs_are_truncated(self, back: int) -> None:
        """Up to one of the newest agreed positions: nobody is before that."""
        if len(self.agreed) <= back:
            return
        for log in self.logs:
            to = self.agreed[-1 - back][log.header.id]
            while log.tail <= to:
                log.grow()
            log.cut_head(to)

    @invariant()
    def they_ascend(self) -> None:
        for one, two in zip(self.agreed, self.agreed[1:], strict=False):
            assert all(two[name] > at for name, at in one.items())

    def teardown(self) -> None:
        if hasattr(self, "patch"):
            self.patch.undo()


def _die(*_: object) -> None:
    raise Died


TestAgreeing = Agreeing.TestCase
TestAgreeing.settings = settings(max_examples=150, stateful_step_count=40, deadline=None, print_blob=True)
