"""Disaster recovery, the first half: a home is copied while its queries run (Segment Backup, chapter 3).

Theory of operation
-------------------
A pass goes through the segments, readers before those they read from. For each it takes the newest committed
batch, copies the checkpoint's files of that batch, the segment's log and the epochs that its sink has written, and
at last writes the snapshot, a document that names them all: what no snapshot names does not count.

A snapshot is never ahead of the snapshots of what it reads from. A log entry can be read before the batch that
made it is committed, so a reader may be ahead for a moment; then an earlier batch of it is taken. Hence the
snapshots of a complete pass fit together. Some older ones are kept, so whatever ends a pass in the middle leaves
the state of the pass before, or a fresher one; `tidelock.recovery.adjust` finds it.

Of a segment whose state is in a cache only the batches count of which there is a snapshot of that state; it is
copied first.

Nothing goes before it is copied: the cursor `backup` on every log that a segment reads stays behind the oldest
snapshot that is kept of each reader. A log that no segment reads has no such cursor: without cursors it keeps what
its retention says, and with this one alone it would keep nothing. Its copy follows it.

Before anything older goes, what was copied is glued together as a restore would do it: a home that has lost a
log, and was not mended yet, is no copy, and must not replace one.

Before a pass, and before its outcome counts, the owner of the place is looked up (`backup.owners`): a run whose
home was restored elsewhere, and is copied from there, stops copying.
"""

from __future__ import annotations

import fcntl
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from tidelock.backup.checkpoints import CheckpointCopy, committed
from tidelock.backup.generations import Generation, check_owner, complete, open_generation, withdraw
from tidelock.backup.logs import LogCopy
from tidelock.backup.owners import CopyingRun
from tidelock.backup.store import BackupStore
from tidelock.credentials import redacted, without_credentials
from tidelock.epochs import BEFORE_FIRST, Epoch
from tidelock.errors import BackendUnavailable, Fenced, LogCorrupt, LogNotFound, PipelineError, TidelockError
from tidelock.home.home import Home, Record, SegmentRecord
from tidelock.log import EpochLog
from tidelock.recovery import Link, Remains, Unrecoverable, adjust
from tidelock.spark.checkpoint.snapshots import Snapshot

CURSOR = "backup"
"""The consumer that a copy is for the logs."""

_KEPT = 3
_ATTEMPTS = 5


@dataclass(frozen=True)
class BackupProgress:
    """What one pass has done."""

    generation: str
    copied: dict[str, Epoch]
    """The epoch of every segment's newest snapshot."""
    bytes: int
    seconds: float


class Backup:
    """Copies a home to a URL, again and again; the queries are not touched.

    Owned by the thread that copies. It shares nothing with the run but files and logs.
    """

    def __init__(self, home: Home, url: str, clock: Callable[[], float] = time.time) -> None:
        self._home = home
        self._store = BackupStore(url)
        self._clock = clock
        self._run = CopyingRun(uuid.uuid4().hex)
        self._generation: Generation | None = None

    def run_until(
        self,
        stop: threading.Event,
        pause: float,
        failed: Callable[[Exception], None],
        copied: Callable[[], None] = lambda: None,
        displaced: Callable[[Exception], None] | None = None,
    ) -> None:
        """Copy until ``stop`` is set, ``pause`` seconds between passes; what fails is told and tried again.

        It also ends when copies of this home no longer count, and tells ``displaced``, or ``failed`` if there is
        none. Then no log waits for the copy any more.
        """
        while not stop.is_set():
            try:
                with self.alone():
                    self._copy_until(stop, pause, failed, copied)
            except Fenced as error:
                (displaced or failed)(error)
                return
            except Exception as error:  # a pipeline never ends because of its backup
                failed(error)
            stop.wait(pause)

    def _copy_until(
        self, stop: threading.Event, pause: float, failed: Callable[[Exception], None], copied: Callable[[], None]
    ) -> None:
        while not stop.is_set():
            try:
                self.copy()
            except Fenced:
                with suppress(TidelockError):  # at the latest a run without backup lets them go
                    release(self._home)
                raise
            except Exception as error:
                failed(error)
            else:
                copied()
            stop.wait(pause)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep other processes from copying this home meanwhile: each would trust what it remembers of the copy.

        Raises:
            PipelineError: another process copies it.
        """
        self._home.root.mkdir(parents=True, exist_ok=True)
        with (self._home.root / "copying").open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise PipelineError(
                    f"another process already copies {self._home.root}: a run with --backup copies all the time, "
                    "so nothing is to be done; wait for the end of any other `tidelock backup`"
                ) from None
            yield

    def copy(self) -> BackupProgress:
        """Copy what is new: one pass. Whatever ends it, the copy can be restored if it could be before.

        Raises:
            PipelineError: nothing has run here, or the URL holds the copy of another home.
            BackendUnavailable: the target does not work.
            LogCorrupt: a log of the home is damaged, or has lost what a copy needs; the copy before stays.
            Fenced: copies of this home no longer count, another one has taken its place, or another process
                copies this one; nothing of that is touched.
        """
        started = self._clock()
        try:
            generation = self._opened()
            before = generation.bytes_written
            self._copy_segments(generation)
            _check_restorable(generation)
            self._trim(generation)
            complete(self._store, self._home, generation, self._run)
        except Exception as error:
            if isinstance(error, Fenced) and self._generation is not None:
                with suppress(BackendUnavailable, LogCorrupt):  # then it stays, and does no harm
                    withdraw(self._store, self._generation, self._run)
            self._generation = None  # what the target really holds is looked up again
            said = f"{type(error).__name__}: {redacted(str(error))}"
            with suppress(OSError):  # no room in the home: what failed is told all the same
                self._report({"error": said, "failed_at": self._clock()})
            raise
        seconds = self._clock() - started
        copied = {name: _newest(copy).epoch for name, copy in generation.checkpoints.items()}
        progress = BackupProgress(generation.name, copied, generation.bytes_written - before, seconds)
        self._report(self._facts(generation, progress))
        return progress

    def _opened(self) -> Generation:
        record, known = self._home.known(), self._generation
        if known is None or known.record != record or known.has_gone_back():
            known = self._generation = open_generation(self._store, self._home, record, self._run)
        check_owner(self._store, self._home, known, self._run)
        _register(record, anew=known.is_empty)
        return known

    # -- one segment

    def _copy_segments(self, generation: Generation) -> None:
        copied: dict[str, Epoch] = {}
        for segment in reversed(generation.record.segments):
            copied[segment.name] = self._copy_segment(generation, segment, copied)

    def _copy_segment(self, generation: Generation, segment: SegmentRecord, copied: dict[str, Epoch]) -> Epoch:
        copy = generation.checkpoints[segment.name]
        settled, state = generation.settled(segment.name), generation.states.get(segment.name)
        if state is not None:
            state.drop_replaced(settled)
            state.copy()
        snapshot = self._snapshot(copy, segment, copied, None if state is None else state.ends)
        self._copy_outcome(generation, segment, snapshot or _newest(copy), settled)
        if snapshot is not None:
            _check_follows(copy, segment, snapshot)
            copy.add(snapshot)
        return _newest(copy).epoch

    def _snapshot(
        self,
        copy: CheckpointCopy,
        segment: SegmentRecord,
        copied: dict[str, Epoch],
        state: frozenset[Epoch] | None,
    ) -> Snapshot | None:
        """A snapshot of the newest batch that fits, its files copied; None if the last one is of that batch.

        ``state``: the epochs at which the segment's cached state was copied, if it has any.
        """
        number = copy.newest.number + 1 if copy.newest else 0
        for _ in range(_ATTEMPTS):
            batches, taken_at = self._fitting(segment, copied), self._clock()
            if state is not None:
                batches = {batch: epoch for batch, epoch in batches.items() if epoch in state}
            if not batches:
                return None if copy.newest else Snapshot(number, None, BEFORE_FIRST, taken_at, {}, {})
            batch = max(batches)
            if copy.newest and copy.newest.batch == batch:
                return None
            snapshot = Snapshot(number, batch, batches[batch], taken_at, batches, copy.copy_files(batch))
            if snapshot.epoch in snapshot.safe(snapshot.files):
                return snapshot  # otherwise some of it was cleaned up, and there is a newer batch
        raise BackendUnavailable(
            f"segment {segment.name}: Spark cleans up batches faster than they can be copied; raise "
            "spark.sql.streaming.minBatchesToRetain, or copy to a nearer place"
        )

    def _fitting(self, segment: SegmentRecord, copied: dict[str, Epoch]) -> dict[int, Epoch]:
        """The committed batches of a segment that are not ahead of what it reads from."""
        # Their positions first: they only grow, and are copied later.
        limits = [
            (Link(log, lag), copied[log] if log in copied else position(self._home, log))
            for log, lag in segment.inputs
            if log != segment.name
        ]
        found = committed(self._home.checkpoint(segment.name))
        return {
            batch: epoch
            for batch, epoch in found.items()
            if all(link.position(epoch) <= limit for link, limit in limits)
        }

    def _copy_outcome(
        self, generation: Generation, segment: SegmentRecord, snapshot: Snapshot, settled: Epoch
    ) -> None:
        """Copy what a segment has given to others up to the epoch of ``snapshot``, and perhaps more."""
        if segment.name in generation.logs:
            generation.logs[segment.name].copy()
        for letters in generation.dead(segment.name):
            _copy_letters(letters)
        generation.outputs[segment.name].copy(snapshot.epoch, settled)

    # -- what is no longer needed

    def _trim(self, generation: Generation) -> None:
        generation.store.sync()  # the logs of the home let go of what is copied
        for copy in generation.checkpoints.values():
            copy.keep(_KEPT)
        for name, log in generation.logs.items():
            _trim_log(generation, name, log)
        for name, state in generation.states.items():
            state.cut(Epoch(generation.checkpoints[name].snapshots[0].epoch - 1))

    # -- how it is going

    def _facts(self, generation: Generation, progress: BackupProgress) -> dict[str, Any]:
        segments = {
            name: {"copied": _newest(copy).epoch, "taken_at": _newest(copy).taken_at}
            for name, copy in generation.checkpoints.items()
        }
        return {
            "generation": progress.generation,
            "finished_at": self._clock(),
            "seconds": progress.seconds,
            "bytes": progress.bytes,
            "error": None,
            "segments": _with_gaps(self._home, segments, self._clock()),
        }

    def _report(self, fields: dict[str, Any]) -> None:
        before = self._home.document("backup") or {}
        self._home.put_document("backup", {**before, "url": self._store.url, **fields})


def status(home: Home, clock: Callable[[], float] = time.time) -> dict[str, Any]:
    """How far the copy of a home is, and how far behind the home: the freshness gap (Segment Backup, section 3.1).

    Raises:
        PipelineError: the home has no backup.
    """
    document = home.document("backup")
    if document is None:
        raise PipelineError(f"{home.root} has no backup: start its pipeline with `tidelock run --backup URL`")
    url = without_credentials(document["url"])
    return {**document, "url": url, "segments": _with_gaps(home, document.get("segments", {}), clock())}


def release(home: Home) -> None:
    """Let the logs of a home go on without waiting for its copy: for a run that has no backup any more."""
    for segment in home.known().segments:
        log = _opened_log(segment.log)
        if log is not None:
            log.forget(CURSOR)


def position(home: Home, segment: str) -> Epoch:
    """The newest committed epoch of a segment, whose query may be running."""
    return max(committed(home.checkpoint(segment)).values(), default=BEFORE_FIRST)


def _with_gaps(home: Home, segments: dict[str, Any], now: float) -> dict[str, Any]:
    return {name: _with_gap(copied, position(home, name), now) for name, copied in segments.items()}


def _with_gap(copied: dict[str, Any], live: Epoch, now: float) -> dict[str, Any]:
    """What is known of a segment's copy, with its distance to the segment, in epochs and in seconds."""
    behind = max(0, live - copied["copied"])
    return {**copied, "live": live, "behind": behind, "age": now - copied["taken_at"] if behind else 0.0}


def _newest(copy: CheckpointCopy) -> Snapshot:
    """The newest snapshot of a segment that has been copied."""
    return copy.snapshots[-1]


def _check_follows(copy: CheckpointCopy, segment: SegmentRecord, snapshot: Snapshot) -> None:
    """See that what was copied after a snapshot was taken belongs to it.

    Raises:
        BackendUnavailable: the home was put back meanwhile.
    """
    if copy.has_left(snapshot):
        raise BackendUnavailable(
            f"segment {segment.name} was put back to an earlier epoch while it was copied; the next pass copies it"
        )


def _copy_letters(copy: LogCopy) -> None:
    """Copy a log of dead letters; it counts them by itself, and goes back with its home."""
    if not copy.is_of_this_log():
        copy.clear()
    copy.drop_replaced(BEFORE_FIRST)
    copy.copy()


def _register(record: Record, *, anew: bool) -> None:
    """Keep the logs from dropping what has not been copied, from now on; ``anew``: nothing has been."""
    for segment in record.segments:
        log = _opened_log(segment.log) if record.readers(segment.name) else None
        if log is not None and (anew or log.cursor(CURSOR) is None):
            log.register(CURSOR)


def _check_restorable(generation: Generation) -> None:
    """See that a restore of what was copied would find a state in which everything fits together.

    Raises:
        LogCorrupt: it would not, because the home has lost something.
    """
    found = {
        name: Remains(
            _versions(generation, name), generation.logs[name].pieces() if name in generation.logs else None
        )
        for name in generation.checkpoints
    }
    try:
        adjust(generation.record.shape(), found)
    except Unrecoverable as missing:
        raise LogCorrupt(
            f"the home has lost what a copy needs, so the last whole copy stays as it is: {missing}. A start of "
            "the pipeline mends its home, and the next copy is of that"
        ) from missing


def _versions(generation: Generation, segment: str) -> tuple[Epoch, ...]:
    """The versions that a restore could put a segment back to."""
    snapshots, state = generation.checkpoints[segment].snapshots, generation.states.get(segment)
    found = {version for snapshot in snapshots for version in snapshot.safe(snapshot.files)}
    return tuple(sorted(v for v in found if state is None or v in state.ends or v == BEFORE_FIRST))


def _trim_log(generation: Generation, name: str, copy: LogCopy) -> None:
    """Give the log free up to what all kept snapshots of its readers have passed; then shorten its copy too."""
    log = copy.log()
    if log is None:
        return
    positions = [
        Link(name, lag).position(generation.checkpoints[reader.name].snapshots[0].epoch)
        for reader in generation.record.segments
        for read, lag in reader.inputs
        if read == name
    ]
    if positions:
        log.move_cursor(CURSOR, min(*positions, copy.tail))
    copy.cut(min([*positions, log.head()]))


def _opened_log(url: str | None) -> EpochLog | None:
    try:
        return None if url is None else EpochLog.open(url)
    except LogNotFound:
        return None
