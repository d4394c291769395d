"""Mending a home before a run: logs that were lost, or came back shorter, and the segments that have to go back.

Theory of operation
-------------------
A log may be in a store that forgets: a cache that restarts empty, or with the data of some seconds ago.
Checkpoints stay. Before a run every log is compared with the checkpoints of its writer and its readers. If they
fit, nothing is done. Otherwise `tidelock.recovery.adjust` chooses the freshest state that fits, as a restore
does: the windows are the pieces that the logs are in, the safe versions are what Spark's checkpoints can be put
back to.

A query that was killed may have begun a batch and not committed it. Spark runs that batch again, with the same
input. So if its entry is in the log already, the segment counts as being there: its readers may have read it.
It counts only as long as the input of the batch is held; otherwise the batch is forgotten.

Other jobs may have read what is published again now, perhaps cut otherwise. They do not go back with this home.
So every log that is put back says so (`EpochLog.recalls`), and a reader that is beyond that epoch stops.

Crash points. What is recalled is written down in the home first (twice, at worst). Then checkpoints go back, then
logs are cut, then cursors are set. Until a log is cut, looking again finds the same choice: of every segment the
chosen version is still there, and newer ones are not. A log that is gone is made by the run itself, under its old
identity.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from tidelock.epochs import Epoch
from tidelock.errors import InternalError
from tidelock.home.home import Home, Record
from tidelock.home.identities import remember_recalls
from tidelock.mending.logs import FoundLog
from tidelock.mending.rolling_back import finish_rolling_back, roll_back, safe_versions
from tidelock.recovery import Adjusted, Held, Link, Pieces, Remains, Unrecoverable, adjust, violations
from tidelock.recovery.adjust import Needs
from tidelock.recovery.cached import goes_on
from tidelock.spark.checkpoint.checkpoint import Checkpoint

Windows = Mapping[str, Held]


@dataclass(frozen=True)
class Mended:
    """What was lost, and what is done again because of it."""

    lost: Mapping[str, str]
    """By the names of logs, what they have lost."""
    again: Mapping[str, tuple[Epoch, Epoch]]
    """By the names of segments, the epochs that they do again: the first and the last."""
    sinks: Mapping[str, Epoch]
    """By the names of sinks, the first epoch that they deliver again."""

    @property
    def kind(self) -> str:
        """What kind of event it is."""
        return "logs lost" if self.lost else "state lost"

    def __str__(self) -> str:
        lost = "; ".join(f"log {name} has lost {what}" for name, what in self.lost.items())
        again = ", ".join(
            f"{name} from epoch {first} ({last - first + 1} epochs)" for name, (first, last) in self.again.items()
        )
        sinks = ", ".join(f"{name} from epoch {first}" for name, first in self.sinks.items())
        told = [lost or "state was lost", f"done again: {again or 'nothing'}"]
        return "; ".join([*told, f"delivered again: {sinks}"] if sinks else told)


def mend(
    home: Home,
    record: Record,
    *,
    safe: Mapping[str, Collection[Epoch]] | None = None,
    cached: Mapping[str, Epoch] | None = None,
    tell: Callable[[Mended], None] = lambda mended: None,
) -> Mended | None:
    """Make the logs and checkpoints of a home fit together; None if they do. Whoever calls this holds the home.

    Args:
        home: the home.
        record: what runs there.
        safe: for segments that also keep state elsewhere, the epochs at which they have it.
        cached: for those of them whose state is in a cache, the epoch at which it is there.
        tell: is called with what is going to happen, before it does.

    Raises:
        Unrecoverable: nothing fits; nothing was changed.
        BackendUnavailable: a store does not answer.
    """
    finish_rolling_back(home, [segment.name for segment in record.segments])
    mending = _Mending(home, record, safe or {}, cached or {})
    if mending.is_well():
        return None
    chosen, windows = mending.choose()
    mended = mending.outcome(chosen, windows)
    tell(mended)
    mending.perform(chosen, windows)
    return mended


class _Segment:
    """Where a segment is, by its checkpoint."""

    def __init__(self, home: Home, name: str) -> None:
        checkpoint = Checkpoint(None, home.checkpoint(name))
        self.committed = checkpoint.position()
        begun = checkpoint.begun()
        self.begun = begun if begun > self.committed else None
        """The end of a batch that was begun and not committed."""


class _Mending:
    """One look at a home, and what follows from it."""

    def __init__(
        self, home: Home, record: Record, safe: Mapping[str, Collection[Epoch]], cached: Mapping[str, Epoch]
    ) -> None:
        self._home = home
        self._record = record
        self._shape = record.shape()
        self._allowed = safe
        self._cached = cached
        self._segments = {s.name: _Segment(home, s.name) for s in record.segments}
        self._checkpointed: dict[str, frozenset[Epoch]] = {}
        self._logs = {s.name: FoundLog(s.log) for s in record.segments if s.log is not None}

    # -- looking

    def is_well(self) -> bool:
        """Whether everything fits as it is, so that the run can begin."""
        if not all(log.is_whole(self._segments[name].committed) for name, log in self._logs.items()):
            return False
        if any(self._lacks_state(name) and not self._goes_on(name) for name in self._segments):
            return False
        windows = {name: log.window(self._segments[name].committed) for name, log in self._logs.items()}
        found = {name: Remains((self._present(name, windows),), windows.get(name)) for name in self._shape}
        try:
            steps = adjust(self._shape, found).steps
        except Unrecoverable:
            return False
        changed = any(step.rewind or step.restart_log for step in steps.values())
        return not changed and all(self._can_repeat(name, windows) for name in self._shape)

    def _lacks_state(self, segment: str) -> bool:
        return segment in self._allowed and self._segments[segment].committed not in self._allowed[segment]

    def _goes_on(self, segment: str) -> bool:
        """Whether the cache has what a segment needs: also if that repeats the batch that it has begun."""
        at = self._segments[segment]
        return goes_on(self._cached.get(segment), at.committed, at.committed if at.begun is None else at.begun)

    def _present(self, segment: str, windows: Windows) -> Epoch:
        """Where a segment is, counting a batch that was begun if its entry is in the log already."""
        at, window = self._segments[segment], windows.get(segment)
        published = at.begun is not None and window is not None and at.begun in window.ends
        if at.begun is not None and published and self._can_repeat(segment, windows):
            return at.begun
        return at.committed

    def _can_repeat(self, segment: str, windows: Windows) -> bool:
        """Whether the logs hold the input of the batch that a segment has begun."""
        at = self._segments[segment]
        return at.begun is None or self._reads_again(segment, at.committed, at.begun, windows)

    def _reads_again(self, segment: str, after: Epoch, last: Epoch, windows: Windows) -> bool:
        """Whether the logs hold everything that a segment takes for the epochs behind ``after`` up to ``last``."""
        return all(
            _holds(windows[link.upstream], link.position(after), link.position(last))
            for link in self._shape[segment]
        )

    # -- choosing

    def choose(self) -> tuple[Adjusted, dict[str, Held]]:
        """The freshest state that fits, and the windows of the logs that it is made of.

        Raises:
            Unrecoverable: there is none.
        """
        pieces = {name: log.pieces(self._segments[name].committed) for name, log in self._logs.items()}
        found = {name: self._found(name, pieces.get(name)) for name in self._shape}
        adjusted = adjust(self._shape, found)
        if wrong := violations(self._shape, found, adjusted):
            raise InternalError(f"the adjusted state is not consistent: {'; '.join(wrong)}")
        return adjusted, {name: log.at(adjusted.version(name)) for name, log in pieces.items()}

    def _found(self, segment: str, log: Pieces | None) -> Remains:
        """The versions of a segment, and what some of them need: input that is read once more."""
        at, kept = self._segments[segment], self._kept(segment)
        # A batch that was begun counts if its entry is in the log already.
        published = at.begun is not None and log is not None and any(at.begun in one.ends for one in log.held)
        begun = {at.begun: (at.committed,)} if at.begun is not None and published else {}
        needs: dict[Epoch, tuple[Needs, ...]] = {}
        for version, own in {at.committed: (), **begun}.items():
            if not self._lacks_state(segment):
                needs[version] = (own,)
            elif self._shape[segment]:  # it makes its state anew; sources may cut their epochs otherwise
                needs[version] = tuple((before, *own) for before in sorted(kept) if before < version)
        usable = {version: ways for version, ways in needs.items() if ways and version not in kept}
        return Remains(tuple(sorted({*kept, *usable})), log, usable)

    def _kept(self, segment: str) -> frozenset[Epoch]:
        """The epochs at which a segment has all of its state."""
        versions = self._versions(segment)
        return versions & frozenset(self._allowed[segment]) if segment in self._allowed else versions

    def _versions(self, segment: str) -> frozenset[Epoch]:
        if segment not in self._checkpointed:
            self._checkpointed[segment] = frozenset(safe_versions(self._home, segment))
        return self._checkpointed[segment]

    def _alone(self, segment: str, present: Epoch, windows: Windows) -> Epoch | None:
        """From where a segment that has lost state comes back by itself: the logs still hold what it read."""
        if not self._shape[segment]:
            return None  # sources may cut their epochs otherwise
        versions = self._kept(segment)
        fitting = [v for v in versions if v < present and self._reads_again(segment, v, present, windows)]
        return max(fitting, default=None)

    # -- doing

    def outcome(self, chosen: Adjusted, windows: Windows) -> Mended:
        """What is going to be done, in words that a person can use."""
        lost = {name: self._loss(name, chosen) for name in self._logs}
        targets = {name: self._target(name, chosen, windows) for name in self._shape}
        again = {
            name: (Epoch(version + 1), self._segments[name].committed)
            for name, (version, _) in targets.items()
            if version < self._segments[name].committed
        }
        sinks = {s.name for s in self._record.segments if s.log is None}
        delivered = {name: first for name, (first, _) in again.items() if name in sinks and not targets[name][1]}
        return Mended({name: what for name, what in lost.items() if what is not None}, again, delivered)

    def _loss(self, log: str, chosen: Adjusted) -> str | None:
        missing = "epochs that a reader needs" if chosen.steps[log].restart_log else None
        return self._logs[log].loss(self._segments[log].committed) or missing

    def perform(self, chosen: Adjusted, windows: Windows) -> None:
        """Roll back what has to go back, then cut the logs, then set the cursors."""
        recalled = [name for name in self._logs if self._is_recalled(name, chosen, windows)]
        remember_recalls(self._home, {name: chosen.version(name) for name in recalled})
        for name in self._shape:
            version, same_input = self._target(name, chosen, windows)
            at = self._segments[name]
            keeps_begun = at.begun is None or self._keeps_begun(name, chosen, windows)
            if version < at.committed or not keeps_begun:
                roll_back(self._home, name, version, same_input=same_input)
        for name, log in self._logs.items():
            log.place(windows[name], chosen.version(name), self._positions(name, chosen, windows))

    def _is_recalled(self, log: str, chosen: Adjusted, windows: Windows) -> bool:
        """Whether somebody may have read epochs of a log that are published again."""
        at, version = self._segments[log], chosen.version(log)
        forgets_begun = at.begun is not None and not self._keeps_begun(log, chosen, windows)
        return forgets_begun or version < max(at.committed, self._logs[log].newest)

    def _target(self, segment: str, chosen: Adjusted, windows: Windows) -> tuple[Epoch, bool]:
        """The committed epoch that a segment goes back to, and whether it reads the very same input again."""
        version = chosen.version(segment)
        if self._lacks_state(segment) and version not in self._allowed[segment]:
            alone = self._alone(segment, version, windows)
            if alone is None:
                raise InternalError(f"segment {segment!r} was left at an epoch whose state is gone")
            return alone, True
        return min(version, self._segments[segment].committed), False

    def _keeps_begun(self, segment: str, chosen: Adjusted, windows: Windows) -> bool:
        """Whether a batch that was begun can be run again on the logs as they are going to be."""
        later = {
            name: Held(chosen.version(name))
            if chosen.steps[name].restart_log
            else window.rewound(chosen.version(name))
            for name, window in windows.items()
        }
        at = self._segments[segment]
        return chosen.version(segment) >= at.committed and self._can_repeat(segment, later)

    def _positions(self, log: str, chosen: Adjusted, windows: Windows) -> dict[str, Epoch]:
        """Where the readers of a log are going to be."""
        return {
            reader.name: min(
                Link(log, lag).position(self._target(reader.name, chosen, windows)[0])
                for read, lag in reader.inputs
                if read == log
            )
            for reader in self._record.segments
            if log in dict(reader.inputs)
        }


def _holds(window: Held, after: Epoch, last: Epoch) -> bool:
    """Whether a log has the epochs behind ``after`` up to ``last``, in whole entries."""
    return after == last or (window.is_boundary(after) and window.is_boundary(last))
