"""Checkpoints that a query could not start from: of an unknown format, or with files that a power cut has torn.

Spark writes the files of its logs aside and renames them, but does not put them on disk. A killed process leaves
them whole; a power cut may leave those of the last seconds empty, and then Spark does not start the query any
more. They are looked at in the order in which Spark writes them: the offsets of a batch, its commit, the offsets
of the next one. Those at the end of it that are torn are removed, all or none, if what was in each of them can be
found again, or was seen by nobody:

* a **commit**: the batch counts as begun and not finished, as after a kill one moment earlier, and is done again;
* **offsets**, if the batch takes the same epochs by itself (the segment reads logs, one epoch at a time), or if
  Spark has written nothing after them and the segment's log has no entry of the batch, so that its end can be
  decided anew.

Anything else is for a person to look at: rows may have been published or delivered that nobody knows the end of.

A torn commit may be of a batch that was finished, whose input was dropped since. Then segment and logs do not fit
together any more, which is for `mending` to find.

Crash points. The last file goes first, so what a kill leaves is what an earlier power cut would have left.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import takewhile

from tidelock.errors import LogCorrupt, LogNotFound
from tidelock.home.home import Home, Record, SegmentRecord
from tidelock.log import EpochLog
from tidelock.mending.rolling_back import finish_rolling_back
from tidelock.spark.checkpoint.checkpoint import Checkpoint
from tidelock.spark.checkpoint.layout import LogFile


@dataclass(frozen=True)
class Removed:
    """A torn file of a segment's checkpoint that was removed."""

    segment: str
    file: LogFile
    then: str

    def __str__(self) -> str:
        return f"{self.file.path} was torn, as a power cut leaves it, and is removed: {self.then}"


def mend_checkpoints(home: Home, record: Record) -> list[Removed]:
    """See that queries can start from the checkpoints of a home, and remove torn files where that is safe.

    A roll-back that was cut off is finished first: it may remove them anyway. Idempotent. Whoever calls this holds
    the home.

    Raises:
        UnsupportedFormat: a checkpoint has a format that is not known; no torn file was removed.
        LogCorrupt: a file is torn that has to be known; no torn file was removed.
        BackendUnavailable: a roll-back cannot be finished.
    """
    finish_rolling_back(home, [segment.name for segment in record.segments])
    found = [removed for segment in record.segments for removed in _removable(home, record, segment)]
    for removed in found:
        Checkpoint(None, home.checkpoint(removed.segment)).drop(removed.file)
    return found


def _removable(home: Home, record: Record, segment: SegmentRecord) -> list[Removed]:
    """The torn files of a segment, the last one first."""
    checkpoint = Checkpoint(None, home.checkpoint(segment.name))
    checkpoint.check_state()
    files = checkpoint.logged()
    torn = [file for file in files if checkpoint.is_torn(file)]
    last = list(takewhile(torn.__contains__, reversed(files)))
    if len(last) < len(torn):
        raise _has_to_be_known(segment, checkpoint, torn[0])
    found = []
    for file in last:
        then = _without(checkpoint, record, segment, file, is_last=file == files[-1])
        if then is None:
            raise _has_to_be_known(segment, checkpoint, file)
        found.append(Removed(segment.name, file, then))
    return found


def _without(
    checkpoint: Checkpoint, record: Record, segment: SegmentRecord, file: LogFile, *, is_last: bool
) -> str | None:
    """What comes of a batch without one of its files; None if that cannot be told."""
    batch = file.batch
    if file.is_commit:
        return f"batch {batch} is done again"
    if segment.inputs and _epochs_per_batch(record, segment) == 1:
        return f"batch {batch} takes the same epoch again"
    if is_last and segment.log is not None and not _has_published(segment.log, checkpoint.query_id(), batch):
        return f"nothing of batch {batch} was published, and where it ends is decided anew"
    return None


def _has_to_be_known(segment: SegmentRecord, checkpoint: Checkpoint, file: LogFile) -> LogCorrupt:
    return LogCorrupt(
        f"segment {segment.name}: {checkpoint.location}/{file.path} is torn, as a power cut leaves a file that "
        f"Spark had not put on disk, and batch {file.batch} may have been published or delivered already. "
        "Restore the home from a backup, or use a new one; if nobody has used what this segment gave from "
        "that batch on, remove the file and all later ones in offsets and commits, and the batch is decided anew"
    )


def _epochs_per_batch(record: Record, segment: SegmentRecord) -> int | None:
    """How many epochs a batch takes by the plan; None if that is not known."""
    planned = [one for one in record.plan.get("segments", []) if list(one["operators"]) == list(segment.operators)]
    return planned[0].get("epochs_per_batch") if planned else None


def _has_published(url: str, query: str, batch: int) -> bool:
    """Whether the log has an entry of the batch, or that cannot be told."""
    try:
        log = EpochLog.open(url)
    except LogNotFound:
        return True
    ranges = log.ranges()
    if not ranges:
        return False
    newest = log.manifest(ranges[-1])
    return newest.query != query or newest.batch >= batch
