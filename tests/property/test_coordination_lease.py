"""Leases under random acquisitions, releases, lost sessions and meddling operators."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tidelock.coordination import EmbeddedTree, Lease, SessionExpired
from tidelock.errors import Fenced

TIMEOUT = 30_000.0  # in the machine's own time; real heartbeats are hours apart
CONTENDERS = 3

contenders = st.integers(0, CONTENDERS - 1)


class LeaseMachine(RuleBasedStateMachine):
    """At most one contender holds the lease, and tokens only grow."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.now = 1_000_000.0
        self.greatest = -1
        self.observer = self.open(1e9)
        self.contend()

    def open(self, timeout: float) -> EmbeddedTree:
        file = Path(self.folder.name) / "tree.db"
        return EmbeddedTree(file, session_timeout=timeout, clock=lambda: self.now)

    def contend(self) -> None:
        self.trees = [self.open(TIMEOUT) for _ in range(CONTENDERS)]
        self.leases = [Lease(tree, "/lease", owner=str(n)) for n, tree in enumerate(self.trees)]

    def holders(self) -> list[int]:
        return [number for number, lease in enumerate(self.leases) if self.holds(lease)]

    def holds(self, lease: Lease) -> bool:
        try:
            return lease.check() == lease.token
        except Fenced:
            return False

    @rule(who=contenders)
    def acquire(self, who: int) -> None:
        before = self.holders()
        acquired = self.leases[who].try_acquire()
        assert acquired == (before in ([], [who]))
        if acquired and not before:
            assert self.leases[who].token > self.greatest
            self.greatest = self.leases[who].token

    @rule(who=contenders)
    def release(self, who: int) -> None:
        others = [holder for holder in self.holders() if holder != who]
        self.leases[who].release()
        assert self.holders() == others

    @rule()
    def operator_removes_the_holder(self) -> None:
        if self.observer.find("/lease/holder") is not None:
            self.observer.delete("/lease/holder")
        assert self.holders() == []

    @rule()
    def all_are_stopped_for_too_long(self) -> None:
        self.now += TIMEOUT
        self.observer.find("/")  # somebody has to miss the sessions
        assert self.holders() == []
        for tree, lease in zip(self.trees, self.leases, strict=True):
            try:
                assert not lease.try_acquire()
            except SessionExpired:
                lease.release()
            tree.close()
        self.contend()

    @invariant()
    def one_holder_at_most(self) -> None:
        assert len(self.holders()) <= 1

    def teardown(self) -> None:
        for tree in [*self.trees, self.observer]:
            tree.close()
        self.folder.cleanup()


TestLease = LeaseMachine.TestCase
TestLease.settings = settings(max_examples=15, stateful_step_count=20, deadline=None, print_blob=True)
