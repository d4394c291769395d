"""Rolling back one segment: which epochs it can be put back to, and doing it.

Crash points. The replay is written first, as one that is still to be carried out; then the checkpoint goes
back; then the replay is written as carried out. `finish_rolling_back` does the rest wherever that was cut off, or
has failed, before the segment is started again; so nobody ever sees half of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tidelock.epochs import BEFORE_FIRST, Epoch
from tidelock.errors import InternalError
from tidelock.home.home import Home
from tidelock.spark.checkpoint.checkpoint import Checkpoint
from tidelock.spark.checkpoint.layout import FIRST_BATCH
from tidelock.spark.checkpoint.replay import Replay, read_replay
from tidelock.spark.checkpoint.versions import safe_batches


def safe_versions(home: Home, segment: str) -> dict[Epoch, int | None]:
    """The epochs that a segment can be put back to, each with the batch that it goes on behind.

    A version is safe if all the state that it needs is there. A segment can begin from nothing as long as Spark
    still knows its first batch, and that one began with the first epoch.
    """
    checkpoint = Checkpoint(None, home.checkpoint(segment))
    committed = checkpoint.committed()
    if not committed:
        return {BEFORE_FIRST: None}
    newest = max(committed)
    found = checkpoint.files(newest)
    safe = safe_batches(committed, found, frozenset(found), f"the checkpoint at epoch {committed[newest]}")
    begins = FIRST_BATCH in committed and checkpoint.offsets(FIRST_BATCH).is_first
    from_nothing: dict[Epoch, int | None] = {BEFORE_FIRST: None} if begins else {}
    return {**from_nothing, **safe}


def roll_back(home: Home, segment: str, version: Epoch, *, same_input: bool = False) -> None:
    """Put a segment back to ``version``, a safe one or its newest; its batches behind it are done again. Durable.

    ``same_input``: it reads again what it had read, so a sink delivers nothing again that it had delivered, and it
    can begin from nothing also behind a log that did not begin with the first epoch. The segment must not run. Its
    log and its cursors are left alone.

    Raises:
        InternalError: the version is not a safe one.
        BackendUnavailable: the checkpoint cannot be changed; the next run tries again.
    """
    checkpoint = Checkpoint(None, home.checkpoint(segment))
    committed, begun, done = checkpoint.committed(), checkpoint.begun(), checkpoint.position()
    versions = {**safe_versions(home, segment), done: max(committed, default=None)}
    if same_input and FIRST_BATCH in committed:
        versions[BEFORE_FIRST] = None
    if version not in versions:
        raise InternalError(f"segment {segment!r} cannot be put back to epoch {version}")
    before = read_replay(home.replay(segment))
    still = [end for end in before.ends if end > begun] if before else []
    ends = sorted({end for end in [*committed.values(), begun, *still] if end > version})
    delivered = max(done, before.delivered if before else BEFORE_FIRST) if same_input else BEFORE_FIRST
    _carry_out(home, segment, Replay(version, versions[version], tuple(ends), delivered))


def finish_rolling_back(home: Home, segments: Iterable[str]) -> None:
    """Roll back those of these segments for which that was begun and cut off. They must not run. Idempotent.

    One that has run on since, beyond all that it was to do again, is left where it is.

    Raises:
        BackendUnavailable: a checkpoint cannot be changed; the next run tries again.
    """
    for segment in segments:
        replay = read_replay(home.replay(segment))
        if replay is None or replay.rolled_back:
            continue
        if _has_run_on(home, segment, replay):
            replace(replay, rolled_back=True).write(home.replay(segment))
        else:
            _carry_out(home, segment, replay)


def _has_run_on(home: Home, segment: str, replay: Replay) -> bool:
    """Whether a segment has done more than it had done, or has forgotten to where it was to go back."""
    checkpoint = Checkpoint(None, home.checkpoint(segment))
    if replay.batch is not None and not checkpoint.has_begun(replay.batch):
        return True
    return checkpoint.farthest() > max(replay.ends, default=replay.after)


def _carry_out(home: Home, segment: str, replay: Replay) -> None:
    replay.write(home.replay(segment))
    Checkpoint(None, home.checkpoint(segment)).roll_back(replay.batch)
    replace(replay, rolled_back=True).write(home.replay(segment))
