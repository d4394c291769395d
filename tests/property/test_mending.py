"""A job without Spark that is killed at any moment, and whose logs lose anything: mending always leads back.

What the job computes is a function of the epoch, and it checks its own state and output, so a wrong decision
shows.
"""

from __future__ import annotations

import shutil
from contextlib import ExitStack, suppress
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.backup.backup_job import INPUTS, Job
from tests.unit.mending.lost_logs import contents, lose, lose_entries, positions, started_again

from tidelock.home.home import Home
from tidelock.log.stores.files import FileStore
from tidelock.mending.mending import mend
from tidelock.recovery import Unrecoverable
from tidelock.spark.checkpoint import checkpoint

STEPS = st.lists(st.tuples(st.sampled_from(list(INPUTS)), st.booleans()), max_size=40)
"""Segments that do a batch, and whether they live long enough to commit it."""
LOSSES = st.lists(
    st.tuples(st.sampled_from(["words", "counts"]), st.integers(0, 12), st.integers(0, 12)), min_size=1, max_size=3
)
"""Logs that lose the epochs from the first to the last of these numbers, or everything if they are equal."""


class Killed(Exception):
    """The process ends here."""


def has_run(folder: Path, steps: list[tuple[str, bool]]) -> Job:
    job = Job(Home(folder / "home"))
    for segment, commits in steps:
        job.step(segment, commit=commits)
    return job


def damage(job: Job, losses: list[tuple[str, int, int]]) -> None:
    for node, first, last in losses:
        if first == last:
            if (job.home.root / "logs" / node).exists():
                lose(job, node)
        else:
            lose_entries(job, node, first, last)


@settings(max_examples=60, deadline=None)
@given(steps=STEPS)
def test_a_home_that_was_killed_is_left_as_it_is(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, bool]]
) -> None:
    job = has_run(tmp_path_factory.mktemp("home"), steps)
    before = contents(job.home)
    assert mend(job.home, job.home.known()) is None
    assert contents(job.home) == before


@settings(max_examples=80, deadline=None)
@given(steps=STEPS, losses=LOSSES)
def test_whatever_is_lost_the_results_are_as_if_nothing_had_been(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, bool]], losses: list[tuple[str, int, int]]
) -> None:
    job = has_run(tmp_path_factory.mktemp("home"), steps)
    last = max(positions(job).values()) + 2
    damage(job, losses)
    before = contents(job.home)
    try:
        mend(job.home, job.home.known())
    except Unrecoverable:
        assert contents(job.home) == before, "nothing is changed if nothing fits"
        return
    job = started_again(job.home)
    assert mend(job.home, job.home.known()) is None, "once is enough"
    job.run_to(last)
    job.check(last)


@settings(max_examples=60, deadline=None)
@given(steps=STEPS, losses=LOSSES, moment=st.integers(0, 16))
def test_mending_that_is_killed_is_done_again_with_the_same_result(
    tmp_path_factory: pytest.TempPathFactory,
    steps: list[tuple[str, bool]],
    losses: list[tuple[str, int, int]],
    moment: int,
) -> None:
    folder = tmp_path_factory.mktemp("home")
    job = has_run(folder, steps)
    last = max(positions(job).values()) + 2
    damage(job, losses)
    shutil.copytree(job.home.root, folder / "as it was")
    try:
        mend(job.home, job.home.known())
    except Unrecoverable:
        return
    expected = positions(job)

    shutil.rmtree(job.home.root)
    shutil.copytree(folder / "as it was", job.home.root)
    left = iter(range(moment))

    def dying(real):  # type: ignore[no-untyped-def]
        def call(*given, **named):  # type: ignore[no-untyped-def]
            if next(left, None) is None:
                raise Killed
            return real(*given, **named)

        return call

    with ExitStack() as patched:
        patched.enter_context(suppress(Killed))
        patched.enter_context(mock.patch.object(checkpoint, "_remove", dying(checkpoint._remove)))
        for change in ("take_over", "unpublish", "put", "delete"):
            patched.enter_context(mock.patch.object(FileStore, change, dying(getattr(FileStore, change))))
        mend(job.home, job.home.known())
    mend(job.home, job.home.known())
    assert positions(job) == expected
    job = started_again(job.home)
    job.run_to(last)
    job.check(last)
