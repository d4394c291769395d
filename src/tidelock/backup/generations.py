"""Generations: a copy that follows one history of a home.

    <generation>/owner.json                      whose it is: its claim, and which run copies (sealed)
    <generation>/complete.json                   is there once a restore can take it; the claim again (sealed)
    <generation>/home.json                       the home's record, sealed
    <generation>/segments/<segment>/files/<path>@<crc32>
    <generation>/segments/<segment>/snapshots/<number>.json
    <generation>/logs/<node>/, dead/<name>/, state/<operator>/
                                                 log.json, aside/, entries/, parts/
    <generation>/out/<sink>/epoch=<n>/, epoch=<n>.json
    current.json                                 of release 0.1.0: which generation was complete (sealed)

A home that was restored, or put back to an older epoch, makes some epochs again, perhaps with other rows in them.
Old snapshots must never meet new log entries. So a copy goes on in the same generation only if the home still has
the very batches of its newest snapshots, and the very entries that were copied beyond them; otherwise it begins a
new one. What else was copied beyond them (output, cached state, dead letters) no snapshot needs yet: it is dropped
where it differs, and copied again. The old generation is what a restore takes until the new one is complete, and
is removed then. `backup.owners` has the rules for several homes that copy to one place.

A run that was removed from the place while it paused may still write into its folder: also `complete.json`, if it
has looked up the owner before. So that alone makes nothing complete. A generation is removed in the order
`complete.json`, `home.json`, folders, `owner.json`, and complete is what has all three documents.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from tidelock.backup.checkpoints import CheckpointCopy
from tidelock.backup.logs import LogCopy
from tidelock.backup.outputs import OutputCopy
from tidelock.backup.owners import (
    CopyingRun,
    OwnerClaim,
    displacing,
    is_generation,
    next_name,
    removable,
    succeeded,
    token_of,
)
from tidelock.backup.store import BackupStore
from tidelock.epochs import BEFORE_FIRST, Epoch
from tidelock.errors import BackendUnavailable, Fenced, LogCorrupt, PipelineError
from tidelock.home.home import Home, Record
from tidelock.log.sealed import seal, unseal
from tidelock.urls import masked

_CURRENT = "current.json"
_OWNER = "owner.json"
_COMPLETE = "complete.json"
_RECORD = "home.json"
_ANCESTRY = "ancestry"


# -- claims


def read_claims(store: BackupStore) -> list[OwnerClaim]:
    """The claims at a place: all generations, complete or not.

    Raises:
        LogCorrupt: the only document that says which copy is complete is damaged.
    """
    found = [_claim(store, name) for name in store.folders() if is_generation(name)]
    if any(claim.complete for claim in found):
        return found  # whatever a run of 0.1.0 has left behind does not count any more
    current = _current(store)
    return [replace(claim, complete=claim.complete or claim.name == current) for claim in found]


def _claim(store: BackupStore, name: str) -> OwnerClaim:
    complete, owner = store.read(f"{name}/{_COMPLETE}"), store.read(f"{name}/{_OWNER}")
    is_whole = complete is not None and (owner is not None or not token_of(name))
    is_whole = is_whole and store.read(f"{name}/{_RECORD}") is not None
    for data in (owner, complete):  # one of them may be damaged; release 0.1.0 wrote neither
        with suppress(LogCorrupt):
            if data is not None:
                return unseal(data, f"{store.url}/{name}", lambda fields: _claimed(name, is_whole, fields))
    return OwnerClaim(name, is_whole)


def _claimed(name: str, is_whole: bool, fields: dict[str, Any]) -> OwnerClaim:
    return OwnerClaim(name, is_whole, str(fields["home"]), frozenset(fields["ancestors"]), fields.get("run"))


def _current(store: BackupStore) -> str | None:
    data = store.read(_CURRENT)
    if data is None:
        return None
    return unseal(data, f"{store.url}/{_CURRENT}", lambda fields: str(fields["generation"]))


def ancestors(home: Home) -> frozenset[str]:
    """The homes and generations that a home succeeds, if it was restored."""
    return home.sealed_document(_ANCESTRY, lambda fields: frozenset(fields["ancestors"])) or frozenset()


def remember_ancestors(home: Home, taken: OwnerClaim, claims: Iterable[OwnerClaim]) -> None:
    """Write down in a home that is being restored from ``taken`` whom of these it succeeds. Durable."""
    unfinished = [claim for claim in claims if not claim.complete]
    home.seal_document(_ANCESTRY, {"ancestors": sorted(succeeded(taken, unfinished))})


# -- one generation


class Generation:
    """The copies of everything that a home has, in one generation of a store."""

    def __init__(self, store: BackupStore, name: str, home: Home, record: Record) -> None:
        self.name = name
        self.store = store.under(name)
        self.record = record
        self._home = home
        self.checkpoints = {
            s.name: CheckpointCopy(self.store, s.name, home.checkpoint(s.name)) for s in record.segments
        }
        self.logs = {s.name: LogCopy(self.store, f"logs/{s.name}", s.log) for s in record.segments if s.log}
        self.states = {
            s.name: LogCopy(self.store, f"state/{s.cached}", home.snapshots(s.cached))
            for s in record.segments
            if s.cached
        }
        self.outputs = {s.name: OutputCopy(self.store, s.name, home.out(s.name)) for s in record.segments}
        self._dead: dict[str, LogCopy] = {}

    @property
    def owner(self) -> str:
        """The identity of the home that is copied."""
        return self._home.identity()

    def claim(self, ancestors: frozenset[str], run: CopyingRun) -> None:
        """Write down whose copy this is, and who copies: from now on everybody can see it."""
        claim = {"home": self.owner, "ancestors": sorted(ancestors), "run": run.mark}
        self.store.write(_OWNER, seal(claim))

    def begin(self) -> None:
        """Write down what is copied."""
        self.store.write(_RECORD, self.record.encode())

    def complete(self, ancestors: frozenset[str]) -> None:
        """Let a restore take it. First all that was copied is made to survive a loss of power, and then that."""
        self.store.sync()
        sealed = seal({"generation": self.name, "home": self.owner, "ancestors": sorted(ancestors)})
        if self.store.read(_COMPLETE) != sealed:  # also of one that only says so in the way of 0.1.0
            self.store.write(_COMPLETE, sealed)
            self.store.sync()

    def dead(self, segment: str) -> list[LogCopy]:
        """The copies of the logs that keep what was set aside for a segment."""
        for folder in (self._home.root / "dead").glob(f"{segment}.*"):
            if folder.name not in self._dead:
                url = self._home.letters(folder.name)
                self._dead[folder.name] = LogCopy(self.store, f"dead/{folder.name}", url)
        return [copy for name, copy in self._dead.items() if name.startswith(f"{segment}.")]

    @property
    def is_empty(self) -> bool:
        """Whether no segment has a snapshot yet."""
        return not any(copy.snapshots for copy in self.checkpoints.values())

    @property
    def bytes_written(self) -> int:
        """What has been copied so far by this process."""
        return self.store.bytes_written

    def is_continued(self) -> bool:
        """Whether the home's history is the one that was copied, or goes on from it."""
        if self.store.read(_RECORD) != self.record.encode():
            return False
        return (
            all(copy.is_continued() for copy in self.checkpoints.values())
            and all(copy.is_continued(self.settled(name)) for name, copy in self.logs.items())
            and all(copy.is_of_this_log() for copy in self.states.values())
        )

    def has_gone_back(self) -> bool:
        """Whether the home was put back to an older epoch since the last pass, or makes logs anew."""
        return (
            any(copy.has_gone_back() for copy in self.checkpoints.values())
            or any(copy.has_gone_back(self.settled(name)) for name, copy in self.logs.items())
            or not all(copy.is_of_this_log() for copy in self.states.values())
        )

    def settled(self, segment: str) -> Epoch:
        """The epoch of a segment's newest snapshot: whoever follows that never makes what is before it again."""
        newest = self.checkpoints[segment].newest
        return BEFORE_FIRST if newest is None else newest.epoch

    @property
    def has_nothing(self) -> bool:
        """Whether no batch has been copied, so that there is nothing to lose."""
        return not any(copy.newest and copy.newest.files for copy in self.checkpoints.values())

    def is_related(self) -> bool:
        """Whether this is a copy of the same queries or logs, in whatever history."""
        return any(copy.is_related() for copy in self.checkpoints.values()) or any(
            log.is_related() for log in self.logs.values()
        )


def open_generation(
    store: BackupStore,
    home: Home,
    record: Record,
    run: CopyingRun,
    chance: Callable[[], str] = lambda: uuid.uuid4().hex[:16],
) -> Generation:
    """The generation in which the copy of ``home`` goes on, or a new one; it is claimed for ``run``.

    Raises:
        PipelineError: the store holds the copy of another home.
        Fenced: it holds the copy of a home that has taken this one's place, or a later run copies this one.
    """
    claims, me = read_claims(store), home.identity()
    before = ancestors(home).union(*(claim.ancestors for claim in claims if claim.home == me))
    before |= _check_free(store, home, record, claims, before)
    _check_alone(store, home, claims, run)
    own = [c for c in claims if c.home == me or (c.name not in before and _is_old(store, c, record.pipeline))]
    for claim in sorted(own, key=lambda claim: claim.rank, reverse=True):
        generation = Generation(store, claim.name, home, record)
        if generation.is_continued():
            if claim.run != run.mark:
                generation.claim(before, run)
            return generation
    generation = Generation(store, next_name(claims, chance()), home, record)
    generation.claim(before | {claim.name for claim in own}, run)
    generation.begin()
    return generation


def _check_free(
    store: BackupStore, home: Home, record: Record, claims: list[OwnerClaim], before: frozenset[str]
) -> frozenset[str]:
    """See that what a restore would take may be replaced by a copy of this home; whom it succeeds then."""
    mine = OwnerClaim("", complete=False, home=home.identity(), ancestors=before)
    rival = displacing(claims, mine)
    if rival is None:
        return frozenset()
    if rival.succeeds(mine):
        raise _displaced(store, home, rival)
    copied = _copied_as(store, rival.name, home, record)
    if copied.record.pipeline != record.pipeline or not (copied.has_nothing or copied.is_related()):
        raise PipelineError(
            f"{store.url} holds the copy of another home: give an empty place to the backup of {home.root}, or "
            "remove what is there"
        )
    if rival.home is None:
        return frozenset()
    if copied.has_nothing and not ancestors(home):
        return succeeded(rival)
    raise _displaced(store, home, rival)


def _displaced(store: BackupStore, home: Home, by: OwnerClaim) -> Fenced:
    return Fenced(
        f"copies of {home.root} to {masked(store.url)} no longer count: another home (generation {by.name}) was "
        "restored from there, or started anew with the same place, and copies to it. If that one is the job that "
        "goes on, stop this one; if this one is, give another place to its backup"
    )


def _check_alone(store: BackupStore, home: Home, claims: list[OwnerClaim], run: CopyingRun) -> None:
    if not run.is_last(claim for claim in claims if claim.home == home.identity()):
        raise Fenced(
            f"copies of {home.root} to {masked(store.url)} no longer count: another process that was started "
            "later copies a home of the same identity to it. A directory that was copied by hand is the same home "
            "for its backup: stop one of the two, or give another place to its backup"
        )


def check_owner(store: BackupStore, home: Home, generation: Generation, run: CopyingRun) -> list[OwnerClaim]:
    """See that a generation still counts; the claims as they are now.

    Raises:
        Fenced: somebody has taken the place of its home, or a later run copies that.
        BackendUnavailable: somebody has removed it; the next pass begins another.
    """
    claims = read_claims(store)
    expected = OwnerClaim(generation.name, complete=False, home=generation.owner, ancestors=ancestors(home))
    found = [claim for claim in claims if claim.name == generation.name and claim.home == generation.owner]
    rival = displacing(claims, (found or [expected])[0])
    if rival is not None:
        raise _displaced(store, home, rival)
    _check_alone(store, home, claims, run)
    if not found:
        raise BackendUnavailable(
            f"the copy {generation.name} at {masked(store.url)} was removed by somebody else; the next pass "
            "begins another"
        )
    return claims


def complete(store: BackupStore, home: Home, generation: Generation, run: CopyingRun) -> None:
    """Let a restore take ``generation`` from now on, and remove those that it replaces.

    Raises:
        Fenced: somebody has taken the place of its home, or a later run copies it; nothing was changed.
    """
    claims = check_owner(store, home, generation, run)
    (mine,) = (claim for claim in claims if claim.name == generation.name)
    generation.complete(mine.ancestors)
    for claim in removable(claims, mine):
        remove_generation(store, claim.name)


def withdraw(store: BackupStore, generation: Generation, run: CopyingRun) -> None:
    """Remove what a displaced run had begun; its complete copies stay for its successor to remove."""
    found = (claim for claim in read_claims(store) if claim.name == generation.name)
    if not any(claim.complete or claim.run not in (None, run.mark) for claim in found):
        remove_generation(store, generation.name)


def remove_generation(store: BackupStore, name: str) -> None:
    """Remove a generation, so that nobody ever takes what is left of it: its claim goes last.

    Not even if whose it was says only now that it is complete: then it has no record any more.
    """
    folder = store.under(name)
    folder.remove([_COMPLETE, _RECORD])
    for below in folder.folders():
        folder.remove_folder(below)
    folder.remove([_OWNER])
    with suppress(BackendUnavailable):  # object stores have no folders that could be left
        store.remove_folder(name)


def _copied_as(store: BackupStore, name: str, home: Home, record: Record) -> Generation:
    """The copy of another home, as if it were of this one, so that one can see how they are related."""
    copied = copied_record(store.under(name))
    logs = {segment.name: segment.log for segment in record.segments}
    here = tuple(replace(segment, log=logs.get(segment.name, segment.log)) for segment in copied.segments)
    return Generation(store, name, home, replace(copied, segments=here))


def _is_old(store: BackupStore, claim: OwnerClaim, pipeline: str) -> bool:
    """Whether release 0.1.0 has made it for that pipeline, so that it is the first one's to take."""
    try:
        unowned = claim.home is None and not token_of(claim.name)
        return unowned and copied_record(store.under(claim.name)).pipeline == pipeline
    except LogCorrupt:
        return False


def copied_record(generation: BackupStore) -> Record:
    """What the copied home remembers of its pipeline.

    Raises:
        LogCorrupt: it is missing or damaged.
    """
    return Record.decode(generation.read(_RECORD) or b"", f"{generation.url}/{_RECORD}")
