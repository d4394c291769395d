"""Runs that copy to one place pause anywhere, restores happen at any time: there is always a usable copy.

Every run is a thread that stops before each of its operations on the store, until it is told to do the next one;
so one schedule has one outcome. A run begins as the first home or as one that is restored; whoever pauses in the
middle of a pass and goes on later is a zombie; one that is abandoned there never does. The homes have no segments,
so a pass is little more than what decides whose copy counts; one test has a real job. After every step:

* of what was removed, nothing is of a home that is no ancestor of the remover's;
* what a restore takes is whole, and there is no complete copy of a successor.

In the end whoever was displaced has a successor, or somebody else has a complete copy.
"""

from __future__ import annotations

import dataclasses
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from types import SimpleNamespace
from unittest import mock
from uuid import UUID

import pytest
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import event, given, settings
from hypothesis import strategies as st
from tests.unit.backup.backup_job import Job

from tidelock.backup import generations as backup_generations
from tidelock.backup.backup import Backup
from tidelock.backup.generations import ancestors, copied_record, read_claims
from tidelock.backup.owners import newest
from tidelock.backup.restore import restore
from tidelock.backup.store import BackupStore
from tidelock.errors import Fenced, TidelockError
from tidelock.home.home import Home, Record

OPERATIONS = ("read", "sizes", "folders", "write", "upload", "remove", "remove_folder")
WAIT = 60
TO_THE_END = 10_000


class Pausing:
    """A run's copy, one operation on the store at a time, in a thread of its own."""

    def __init__(self, home: Home, url: str) -> None:
        self.home, self.backup = home, Backup(home, url)
        self.outcome: BaseException | None = None
        self.removed: list[str] = []
        self.claimed: list[str] = []
        self._go, self._paused = threading.Semaphore(0), threading.Semaphore(0)
        self._abandoned = False
        self._thread: threading.Thread | None = None

    @property
    def displaced(self) -> bool:
        return isinstance(self.outcome, Fenced)

    @property
    def is_abandoned(self) -> bool:
        return self._abandoned

    def step(self, operations: int) -> None:
        """Go on with a pass, or begin one, and pause again after so many operations or at its end."""
        if self._abandoned:
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._copy, daemon=True)
            self._thread.start()
            assert self._paused.acquire(timeout=WAIT)
        for _ in range(operations):
            if self._thread is None:
                return
            self._go.release()
            assert self._paused.acquire(timeout=WAIT)
            if not self._thread.is_alive() or self._ended:
                self._thread.join(WAIT)
                self._thread = None

    def abandon(self) -> None:
        """It never wakes up again."""
        self._abandoned = True
        self._go.release()

    def _copy(self) -> None:
        self._ended = False
        CURRENT.run = self
        try:
            self.pause()
            self.backup.copy()
            self.outcome = None
        except (TidelockError, SystemExit) as error:
            self.outcome = error
        self._ended = True
        self._paused.release()

    def pause(self) -> None:
        self._paused.release()
        self._go.acquire()
        if self._abandoned:
            raise SystemExit


CURRENT = threading.local()


@contextmanager
def pausing() -> Iterator[None]:
    """Every operation on a store pauses the run that does it; who is no run is not paused."""

    def paused(name: str, real):  # type: ignore[no-untyped-def]
        def operation(store: BackupStore, *given):  # type: ignore[no-untyped-def]
            run = getattr(CURRENT, "run", None)
            if run is not None:
                run.pause()
                if name == "remove_folder":
                    run.removed.append(f"{store.url}/{given[0]}")
                elif given[:1] == ("owner.json",) and name == "write":
                    run.claimed.append(store.url)
            return real(store, *given)

        return operation

    changes = {name: paused(name, getattr(BackupStore, name)) for name in OPERATIONS}
    with mock.patch.multiple(BackupStore, **changes), mock.patch.object(os, "fsync", lambda descriptor: None):
        yield


class Place:
    """One place for copies, and the runs that copy to it."""

    def __init__(self, folder: Path, make: Callable[[Home], None]) -> None:
        self._folder = folder
        self.url = f"memory://{folder.name}"
        self.runs: list[Pausing] = []
        self._had_copy = False
        self._begin(make)

    def _begin(self, make: Callable[[Home], object]) -> None:
        home = Home(self._folder / f"home-{len(self.runs)}")
        make(home)
        self.runs.append(Pausing(home, self.url))

    def restore(self) -> None:
        if self._had_copy and len(self.runs) < 4:
            self._begin(lambda home: restore(self.url, home))

    def lose(self, run: Pausing) -> None:
        """The first one stays: without it there would be nothing to look at."""
        if run is not self.runs[0]:
            run.abandon()

    def check(self) -> None:
        claims = read_claims(BackupStore(self.url))
        owners = {self._generation(url): run.home.identity() for run in self.runs for url in run.claimed}
        for run in self.runs:
            allowed = self._line(run)
            gone = {self._generation(url) for url in run.removed}
            assert {owners[name] for name in gone} <= allowed, "the copy of another was removed"
        taken = newest(claims)
        assert (taken is not None) or not self._had_copy, "there is no copy any more"
        if taken is not None:
            self._had_copy = True
            copied_record(BackupStore(self.url).under(taken.name))
            assert not any(other.complete and other.succeeds(taken) for other in claims)

    def _generation(self, url: str) -> str:
        return url.removeprefix(f"{self.url}/").partition("/")[0]

    def finish(self) -> None:
        """Everybody wakes up, the newest first; then there is one owner, and the copy is its."""
        for run in [*reversed(self.runs), *self.runs]:
            run.step(TO_THE_END)
            self.check()
        alive = [run for run in self.runs if not run.is_abandoned]
        displaced = [run for run in alive if run.displaced]
        event(f"{len(self.runs)} runs, {len(alive)} alive, {len(displaced)} displaced")
        assert all(run.outcome is None or run.displaced for run in alive), [run.outcome for run in alive]
        taken = newest(read_claims(BackupStore(self.url)))
        owner = None if taken is None else taken.home
        left = [run.home.identity() for run in alive if not run.displaced]
        assert left == [owner] or (not left and alive != self.runs)
        assert all(owner not in self._line(run) or self._is_succeeded(run) for run in displaced)

    def _line(self, run: Pausing) -> set[str | None]:
        return {run.home.identity(), *ancestors(run.home)}

    def _is_succeeded(self, run: Pausing) -> bool:
        return any(run.home.identity() in ancestors(other.home) and other.claimed for other in self.runs)

    def abandon(self) -> None:
        for run in self.runs:
            run.abandon()


@contextmanager
def place_for(folder: Path, make: Callable[[Home], None], seed: int = 0) -> Iterator[Place]:
    MemoryFileSystem.store.clear()
    chance = Random(seed)  # of two claims with one token the names decide
    names = SimpleNamespace(uuid4=lambda: UUID(int=chance.getrandbits(128)))
    with pausing(), mock.patch.object(backup_generations, "uuid", names):
        place = Place(folder, make)
        try:
            yield place
        finally:
            place.abandon()


KINDS = ["copy", "copy", "copy", "finish", "restore", "restore", "put back", "abandon"]
STEPS = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 3), st.integers(1, 12)), min_size=5, max_size=40)


@settings(max_examples=60, deadline=None)
@given(steps=STEPS, seed=st.integers(0, 99))
def test_there_is_always_a_usable_copy_of_the_newest_owner(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int, int]], seed: int
) -> None:
    with place_for(tmp_path_factory.mktemp("place"), without_segments, seed) as place:
        for number, (what, who, size) in enumerate(steps):
            run = place.runs[who % len(place.runs)]
            if what == "restore":
                place.restore()
            elif what == "put back":
                put_back(run.home, number)
            elif what == "abandon":
                place.lose(run)
            else:
                run.step(TO_THE_END if what == "finish" else size)
            place.check()
        place.finish()


def without_segments(home: Home) -> None:
    home.remember(Record("numbers", {}, {}, (), {}))


def put_back(home: Home, number: int) -> None:
    """From now on the home has another history, so its copy goes on in a new generation."""
    home.remember(dataclasses.replace(home.known(), plan={"number": number}))


PASSES = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 90), st.booleans()), min_size=3, max_size=8)


@pytest.mark.chaos
@settings(max_examples=5, deadline=None)
@given(passes=PASSES)
def test_a_job_goes_on_from_whatever_copy_there_is(
    tmp_path_factory: pytest.TempPathFactory, passes: list[tuple[int, int, bool]]
) -> None:
    folder = tmp_path_factory.mktemp("place")
    with place_for(folder, lambda home: Job(home).run_to(3)) as place:
        place.runs[0].step(TO_THE_END)
        for who, size, restores in passes:
            run = place.runs[who % len(place.runs)]
            Job(run.home).run_to(Job(run.home).position("words") + 1)
            run.step(size)
            place.check()
            if restores:
                place.restore()
        place.finish()
        home = Home(folder / "last")
        restore(place.url, home)
        last = Job(home).position("words") + 2
        Job(home).run_to(last)
        Job(home).check(last)
