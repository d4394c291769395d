"""Disaster recovery, the second half: a home is made from whatever had been copied when the first one was lost.

Theory of operation
-------------------
Everything is verified as it is downloaded, and what is damaged does not count. That leaves every segment with some
safe versions and its log with some run of entries, and `tidelock.recovery.adjust` chooses the freshest state in
which they fit together (Segment Backup, section 3.5). Then each checkpoint is rolled back to its version, each log
rewound to it, each cursor put where its reader is. Readers in other jobs may have come further: every log says to
which epoch it was put back, and they stop if they have.

A restore begins with the folder `restoring`, which of several only one can make, in a directory in which nothing
else is. The record of the home is written last, when that folder has gone. A restore that is killed leaves a
directory that is not a home, and that another restore refuses: remove it and restore again.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tidelock.backup.generations import copied_record, read_claims, remember_ancestors
from tidelock.backup.owners import OwnerClaim, newest
from tidelock.backup.restore_checkpoints import CheckpointRestore
from tidelock.backup.restore_logs import LogRestore, OutputRestore
from tidelock.backup.store import BackupStore
from tidelock.epochs import BEFORE_FIRST, Epoch
from tidelock.errors import BackendUnavailable, InternalError, LogCorrupt, PipelineError, TidelockError
from tidelock.home.home import Home, Record
from tidelock.placing import make_folder, remove_tree, sync_tree
from tidelock.recovery import Adjusted, Held, Remains, adjust, violations
from tidelock.urls import directory

_ATTEMPTS = 5


@dataclass(frozen=True)
class RestoredSegment:
    """Where a segment was in the copy, and where it goes on."""

    copied: Epoch
    """The epoch of its newest snapshot."""
    restored: Epoch
    """The epoch from which it goes on; what it did later is done again."""
    rewound: int
    """How many entries of its log were dropped."""
    log_restarted: bool
    """Whether its log begins anew after the restored epoch."""

    @property
    def rolled_back(self) -> int:
        """How many copied epochs it has to do again, so that all segments fit together."""
        return max(0, self.copied - self.restored)


@dataclass(frozen=True)
class Restored:
    """What a restore has made. Its fields are plain: `dataclasses.asdict` and JSON take it as it is."""

    generation: str
    segments: Mapping[str, RestoredSegment]
    sinks: Mapping[str, Epoch]
    """For every sink the epoch after which it goes on: later ones that it had delivered are delivered again."""
    damaged: tuple[str, ...]
    """What was found torn, damaged or missing in the copy."""


def restore(url: str, home: Home) -> Restored:
    """Make ``home`` from the copy at ``url``. If that fails, nothing is left of it.

    Raises:
        PipelineError: the home is not empty, there is no complete copy, a place was asked for a log that is not
            in it, or there is a log already.
        Fenced: somebody has taken over a log while it was restored.
        Unrecoverable: what is left of the copy does not fit together.
        LogCorrupt: the copy's own documents are damaged.
        BackendUnavailable: the copy cannot be read.
    """
    store = BackupStore(url)
    for _ in range(_ATTEMPTS):
        claims = read_claims(store)
        restored = _restore_from(store, _newest(store, claims), claims, home)
        if restored is not None:
            return restored
    raise BackendUnavailable(
        f"the copies at {store.url} replace each other faster than one can be restored: try again"
    )


def _newest(store: BackupStore, claims: list[OwnerClaim]) -> OwnerClaim:
    claim = newest(claims)
    if claim is None:
        raise PipelineError(
            f"{store.url} holds no complete copy of a home: give the URL that `tidelock run --backup` was given. "
            "If it is that one, the job was lost before its first copy was complete: start it in an empty home"
        )
    return claim


def _is_replaced(store: BackupStore, taken: OwnerClaim) -> bool:
    return _newest(store, read_claims(store)).name != taken.name


def _restore_from(store: BackupStore, taken: OwnerClaim, claims: list[OwnerClaim], home: Home) -> Restored | None:
    """Make ``home`` from one generation; None, and nothing is left of it, if that was replaced meanwhile.

    ``claims`` has all that were there when it was chosen.
    """
    restoration = _Restoration(store, taken, home)
    restoration.begin()
    try:
        restored = restoration.run()
        if not _is_replaced(store, taken):
            restoration.finish(claims)
            return restored
    except BaseException as error:
        restoration.undo()
        if isinstance(error, TidelockError) and _is_replaced(store, taken):
            return None
        raise
    restoration.undo()
    return None


class _Restoration:
    """One restore, from the look at the copy to the new home."""

    def __init__(self, place: BackupStore, taken: OwnerClaim, home: Home) -> None:
        self._origin = place
        self._taken = taken
        self._store = place.under(taken.name)
        self._home = home
        self._checkpoints: dict[str, CheckpointRestore] = {}
        self._logs: dict[str, LogRestore] = {}
        self._outputs: dict[str, OutputRestore] = {}
        self._dead: dict[str, LogRestore] = {}
        self._states: dict[str, LogRestore] = {}

    def begin(self) -> None:
        """Take the directory: nobody else restores into it from now on.

        Raises:
            PipelineError: there is something in it; nothing was touched.
        """
        try:
            make_folder(self._home.root)
            self._working.mkdir()
        except FileExistsError:
            raise self._not_empty() from None
        if any(found != self._working for found in self._home.root.iterdir()):
            self._working.rmdir()
            raise self._not_empty()

    def _not_empty(self) -> PipelineError:
        return PipelineError(
            f"{self._home.root} is not empty: give a directory that is, or does not exist yet. A restore that was "
            "killed, or is under way, leaves something there, too"
        )

    def run(self) -> Restored:
        """Make everything but what makes it a home."""
        self._record = copied_record(self._store)
        self._fetch()
        adjusted, windows = self._adjusted()
        segments = {name: self._place(name, adjusted, windows.get(name)) for name in adjusted.steps}
        for letters in self._dead.values():
            letters.place_whole()
        remove_tree(self._staging)
        sinks = {s.name: adjusted.version(s.name) for s in self._record.segments if s.log is None}
        return Restored(self._taken.name, segments, sinks, tuple(self._damaged()))

    def finish(self, claims: list[OwnerClaim]) -> None:
        """Make it a home, the successor of the one that was copied, and of those that came no further. Durable."""
        sync_tree(self._home.root)
        # What was copied may have been replaced by its own run by now; whose it was is known from before.
        remember_ancestors(self._home, self._taken, [*claims, *read_claims(self._origin)])
        remove_tree(self._working, durable=True)
        self._home.remember(_moved(self._record, self._home))

    def undo(self) -> None:
        """Remove what was made; the directory was empty before, and nobody else's as long as it is not again."""
        for log in self._logs.values():
            log.discard()
        for made in self._home.root.glob("*"):
            if made != self._working:
                shutil.rmtree(made) if made.is_dir() else made.unlink()
        remove_tree(self._working)

    @property
    def _working(self) -> Path:
        return self._home.root / "restoring"

    @property
    def _staging(self) -> Path:
        return self._working / "files"

    # -- looking

    def _fetch(self) -> None:
        nodes = [node for segment in self._record.segments for node in segment.operators]
        self._home.places.check(nodes, [s.name for s in self._record.segments if s.log is not None])
        for segment in self._record.segments:
            name = segment.name
            self._checkpoints[name] = CheckpointRestore(self._store, name, self._staging)
            out, copied = Path(self._home.out(name)), self._checkpoints[name].copied
            self._outputs[name] = OutputRestore(self._store, name, out, copied)
            if segment.cached is not None:
                url = self._own(self._home.snapshots(segment.cached))
                self._states[name] = LogRestore(self._store, f"state/{segment.cached}", url)
                self._states[name].fetch()
            if segment.log is not None:
                self._logs[name] = LogRestore(self._store, f"logs/{name}", self._url(name))
                self._logs[name].fetch()
        for name in sorted({path.partition("/")[0] for path in self._store.sizes("dead")}):
            self._dead[name] = LogRestore(self._store, f"dead/{name}", self._own(self._home.letters(name)))
            self._dead[name].fetch()

    def _url(self, log: str) -> str:
        """Where a log is made: where it was asked for, or in the home."""
        url = self._home.log(log)
        return url if self._home.places.is_asked(log) else self._own(url)

    def _own(self, url: str) -> str:
        """``url``, which is in the home: the last guard against names in the copy that would lead elsewhere."""
        if not directory(url).resolve().is_relative_to(self._home.root.resolve()):
            raise LogCorrupt(f"{url} is outside of {self._home.root}: somebody has changed what is stored")
        return url

    def _adjusted(self) -> tuple[Adjusted, dict[str, Held]]:
        """The state to restart from, and the windows of the logs that it is made of."""
        shape = self._record.shape()
        pieces = {name: log.pieces() for name, log in self._logs.items()}
        found = {name: Remains(self._safe(name), pieces.get(name)) for name in shape}
        adjusted = adjust(shape, found)
        if wrong := violations(shape, found, adjusted):
            raise InternalError(f"the adjusted state is not consistent: {'; '.join(wrong)}")
        return adjusted, {name: log.at(adjusted.version(name)) for name, log in pieces.items()}

    def _safe(self, segment: str) -> tuple[Epoch, ...]:
        """The versions of a segment; if possible those from which damaged output is written again."""
        safe = self._checkpoints[segment].safe()
        if segment in self._states:
            kept = self._states[segment].ends() | {BEFORE_FIRST}
            safe = tuple(version for version in safe if version in kept)
        first = min(self._outputs[segment].incomplete, default=None)
        return safe if first is None else tuple(v for v in safe if v < first) or safe

    def _damaged(self) -> Iterator[str]:
        for restores in (self._checkpoints, self._logs, self._outputs, self._dead, self._states):
            for restored in restores.values():
                yield from restored.damaged

    # -- making

    def _place(self, name: str, adjusted: Adjusted, window: Held | None) -> RestoredSegment:
        step = adjusted.steps[name]
        self._checkpoints[name].place(step.version, Path(self._home.checkpoint(name)))
        self._outputs[name].keep(step.version)
        if name in self._states:
            self._states[name].place_entry(step.version)
        rewound = 0
        if window is not None:
            versions = {segment: other.version for segment, other in adjusted.steps.items()}
            readers = self._record.reader_positions(name, versions)
            rewound = self._logs[name].place(window, step.version, readers)
            self._logs[name].recall(step.version)
        return RestoredSegment(self._checkpoints[name].copied, step.version, rewound, step.restart_log)


def _moved(record: Record, home: Home) -> Record:
    """The record of the new home: its logs are where that has them."""
    moved = {s.log: home.log(s.name) for s in record.segments if s.log is not None}
    segments = tuple(replace(s, log=moved[s.log]) if s.log else s for s in record.segments)
    subjects = {subject: moved.get(url, url) for subject, url in record.subjects.items()}
    return replace(record, segments=segments, subjects=subjects)
