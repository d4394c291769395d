"""A home whose logs have lost epochs: its segments go back to the newest state in which all of them fit together.

A log never ends before what its writer has committed: an entry is published first. If it does, its store has come
back empty or with older data. What is lost can be made again from older snapshots: `tidelock.recovery.adjust`
chooses the freshest versions that fit (Segment Backup, section 3.5). Each checkpoint is rolled back to its
version, each log rewound to it, each cursor put where its reader is, and file sinks forget what they wrote later.
Sources that are read again may be cut into other epochs than before.

Every step can be done again, and until the last one is done the logs still look as if something was lost, or all
fits: a process that is killed on the way leaves it to the next run.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tidelock.epochs import BEFORE_FIRST, Epoch
from tidelock.errors import InternalError
from tidelock.log import EpochLog
from tidelock.log.sealed import seal, unseal
from tidelock.recovery import Found, Held, Step, adjust, violations
from tidelock.runtime.backup_checkpoints import listed
from tidelock.runtime.backup_logs import stored_epochs
from tidelock.runtime.backup_snapshots import Snapshot, StoredFile
from tidelock.runtime.home import Home, Record
from tidelock.spark.checkpoint import Checkpoint

_OWNER = "a start after a loss"


@dataclass(frozen=True)
class _Left:
    """What is left of a segment."""

    checkpoint: Checkpoint
    log: EpochLog | None

    @cached_property
    def versions(self) -> dict[Epoch, int | None]:
        """The epochs that it can be put back to, each with the batch to restart after."""
        committed = self.checkpoint.committed()
        if not committed:
            return {BEFORE_FIRST: None}
        newest = max(committed)
        files = {path: StoredFile(path, 0, 0) for path in listed(Path(self.checkpoint.location), newest)}
        return Snapshot(0, newest, committed[newest], 0.0, committed, files).safe(files)

    @property
    def has_lost(self) -> bool:
        """Whether its log ends before what the segment has committed."""
        return self.log is not None and self._tail(self.log) < self.checkpoint.position()

    def found(self) -> Found:
        """The same as `adjust` wants it. An empty log may begin behind any version."""
        window = None
        if self.log is not None:
            ranges = self.log.ranges()
            head = Epoch(ranges[0].first - 1) if ranges else self.checkpoint.position()
            window = Held(head, tuple(covers.last for covers in ranges))
        return Found(tuple(sorted(self.versions)), window)

    @staticmethod
    def _tail(log: EpochLog) -> Epoch:
        return max((covers.last for covers in log.ranges()), default=BEFORE_FIRST)


def adjust_home(home: Home) -> dict[str, Epoch] | None:
    """Bring the segments of a home together whose logs have lost epochs; the logs themselves have to exist.

    Returns the epochs after which the segments go on; None if they all go on where they were.

    Raises:
        Unrecoverable: no versions are left that fit together.
        BackendUnavailable: a log cannot be read.
    """
    record = home.known()
    left = {s.name: _look(home.checkpoint(s.name), s.log) for s in record.segments}
    _restore_identities(record, left)
    if not any(segment.has_lost for segment in left.values()):
        return None
    shape, found = record.shape(), {name: segment.found() for name, segment in left.items()}
    adjusted = adjust(shape, found)
    if wrong := violations(shape, found, adjusted):
        raise InternalError(f"the adjusted state is not consistent: {'; '.join(wrong)}")
    versions = {name: step.version for name, step in adjusted.steps.items()}
    for name, step in adjusted.steps.items():
        _go_back(left[name], step, record.reader_positions(name, versions))
        _forget_output(Path(home.out(name)), step.version)
    return versions if any(step.roll_back or step.rewind for step in adjusted.steps.values()) else None


def _look(location: str, log: str | None) -> _Left:
    return _Left(Checkpoint(None, location), None if log is None else EpochLog.open(log))


def _restore_identities(record: Record, left: Mapping[str, _Left]) -> None:
    """Give logs that were made anew the identity under which their readers know them."""
    for reader in record.segments:
        known = left[reader.name].checkpoint.logs_read()
        for name, _ in reader.inputs:
            log, identity = left[name].log, known.get(name)
            if log is not None and identity not in (None, log.header.id) and not log.ranges():
                fields = unseal(log.store.get("log") or b"", f"{log.shown}: the log's header", dict)
                log.store.put("log", seal({**fields, "id": identity}))


def _go_back(segment: _Left, step: Step, readers: Mapping[str, Epoch]) -> None:
    # Also without a newer version: a batch that has begun holds epochs of logs that are going to change.
    segment.checkpoint.roll_back(segment.versions[step.version])
    if segment.log is None:
        return
    for consumer, epoch in segment.log.cursors().items():
        if epoch > step.version:
            segment.log.move_cursor(consumer, step.version)
    for reader, epoch in readers.items():
        segment.log.move_cursor(reader, epoch)
    ranges = segment.log.ranges()
    if ranges and ranges[-1].last > step.version:
        head = Epoch(ranges[0].first - 1)
        segment.log.take_over(_OWNER).rewind(max(head, step.version))


def _forget_output(folder: Path, last: Epoch) -> None:
    for made in folder.glob("epoch=*"):
        if any(epoch > last for epoch in stored_epochs([made.name])):
            shutil.rmtree(made)
