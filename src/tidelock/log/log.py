"""The epoch log: the window's rules performed on a store.

Readers and writers are separate. `EpochLog` is what everybody may do: look, read, keep a cursor. `LogWriter`
is what the one holder of the lease may do: publish, truncate, collect what dead attempts have left. Whatever else
is done to a log is in `repair`.

A writer's life: `take over` (older writers are fenced), load the window, collect what dead attempts left,
then for every batch: executors write parts, `publish` names them, `truncate` drops what all have read.
Whatever is killed between two of these steps, the log is a contiguous run of whole entries.
"""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import pyarrow as pa

from tidelock.credentials import found
from tidelock.epochs import BEFORE_FIRST, Epoch, EpochRange
from tidelock.errors import Fenced, InternalError, LogCorrupt, LogNotFound, PipelineError
from tidelock.log.cursor import decode_cursor, encode_cursor
from tidelock.log.documents import CURSORS, HEADER, RECALLS, aside_name, consumer_of, cursor_name, last_aside
from tidelock.log.entry import Manifest, Part
from tidelock.log.parts import read_batches
from tidelock.log.sealed import seal, unseal
from tidelock.log.store import LogStore, Token, last_name, open_store
from tidelock.log.topic_parts import is_of_topic, read_topic_part
from tidelock.log.window import Entry, Retention, Window

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True)
class Header:
    """What never changes about a log."""

    id: str
    name: str
    schema: Mapping[str, Any]
    retention: Retention
    event_time: bool
    """Whether its writer has a watermark, which is then in every manifest, also if no column shows it."""


class EpochLog:
    """An epoch log that exists. Thread-safe: it holds no state but its header."""

    def __init__(self, store: LogStore, header: Header) -> None:
        self.store = store
        self.header = header

    @property
    def url(self) -> str:
        """What opens the log."""
        return self.store.url

    @property
    def shown(self) -> str:
        """Where the log is, for people."""
        return self.store.shown

    @classmethod
    def open(cls, url: str) -> EpochLog:
        """The log at ``url``.

        Raises:
            LogNotFound: there is none.
            UnsupportedFormat: a newer release made it.
            LogCorrupt: its header is damaged.
        """
        return cls.kept_in(open_store(url))

    @classmethod
    def kept_in(cls, store: LogStore) -> EpochLog:
        """The log whose store this is; raises what `open` does."""
        data = store.get(HEADER)
        if data is None:
            raise LogNotFound(
                f"there is no epoch log at {store.shown}: start the query that writes it first, or make it "
                "with tidelock.EpochLog.create"
            )
        return cls(store, unseal(data, f"{store.shown}: the log's header", _header))

    @classmethod
    def create(
        cls,
        url: str,
        schema: Mapping[str, Any],
        *,
        name: str | None = None,
        retention: Retention | None = None,
        event_time: bool = False,
        identity: str | None = None,
    ) -> EpochLog:
        """The log at ``url``, made with these properties if it is not there yet. Idempotent.

        A log that exists keeps its own properties; the caller compares the schema. ``identity`` is for a log that
        was lost and is made anew: its readers know it by that.
        """
        store = open_store(url)
        keep = retention or Retention()
        fields = {
            "id": identity or uuid.uuid4().hex,
            "name": check_name(name or last_name(url), "log"),
            "schema": schema,
            "retention": {
                "epochs": keep.epochs,
                "seconds": keep.seconds,
                "wait_for": sorted(keep.wait_for),
            },
            "event_time": event_time,
        }
        if store.get(HEADER) is None:
            store.create(HEADER, seal(fields))
        return cls.open(url)

    # -- entries

    def ranges(self) -> list[EpochRange]:
        """What the published entries cover, in order.

        Raises:
            LogCorrupt: an entry in the middle is missing.
        """
        found = self.store.ranges()
        if _gap(found) is not None:
            found = self.store.ranges()  # a listing is no snapshot: entries may go while it is made
        missing = _gap(found)
        if missing is not None:
            raise lost(self.shown, f"the manifest of epoch {missing}, although later epochs are there")
        return found

    def head(self) -> Epoch:
        """The position right before the oldest entry that the log holds."""
        ranges = self.ranges()
        return Epoch(ranges[0].first - 1) if ranges else BEFORE_FIRST

    def tail(self) -> Epoch:
        """The newest epoch that the log holds."""
        ranges = self.ranges()
        return ranges[-1].last if ranges else BEFORE_FIRST

    def check_there(self) -> None:
        """See that this very log is still there.

        Raises:
            LogCorrupt: it is gone, or another one is in its place.
        """
        data = self.store.get(HEADER)
        if data is None or unseal(data, f"{self.shown}: the log's header", _header).id != self.header.id:
            raise lost(self.shown, "everything")

    def manifest(self, covers: EpochRange) -> Manifest:
        """The manifest of the entry that covers exactly ``covers``.

        Raises:
            LogCorrupt: it is damaged, missing, or belongs to another log.
        """
        where = f"{self.shown}: the manifest of epoch {covers}"
        data = self.store.manifest(covers)
        if data is None:
            raise LogCorrupt(f"{where} is missing")
        manifest = Manifest.decode(data, where)
        if (manifest.log, manifest.covers) != (self.header.id, covers):
            raise LogCorrupt(f"{where} belongs to another log or epoch")
        return manifest

    def manifests(self, after: Epoch, last: Epoch) -> Iterator[Manifest]:
        """The manifests of the epochs behind ``after`` up to ``last``, in order.

        Raises:
            PipelineError: some of them are not there (truncated, or not published).
        """
        wanted = [r for r in self.ranges() if r.last > after and r.first <= last]
        if last > after and (not wanted or wanted[0].first != after + 1 or wanted[-1].last != last):
            raise PipelineError(self._not_there(after, last))
        for covers in wanted:
            yield self.manifest(covers)

    def _not_there(self, after: Epoch, last: Epoch) -> str:
        held = self.ranges()
        holds = f"epochs {held[0].first} to {held[-1].last}" if held else "no epochs"
        return (
            f"{self.shown}: epochs {after + 1} to {last} were asked for, but the log holds {holds} and a "
            "batch takes whole entries. If they were truncated, give the reader a name (the option "
            "`consumer`): a log keeps what its consumers still need"
        )

    def read_part(self, covers: EpochRange, part: Part) -> Iterator[pa.RecordBatch]:
        """The rows of one part, verified.

        Raises:
            LogCorrupt: the part is missing or damaged.
        """
        where = f"{self.shown}: part {part.file} of epoch {covers}"
        if is_of_topic(part):
            return read_topic_part(part, self.header.schema, where)
        store = self.store if part.log is None else open_store(found(part.log))
        data = store.read_part(part.file)
        if data is None:
            raise LogCorrupt(f"{where} is missing")
        return read_batches(data, part, where)

    def verify(self) -> Iterator[tuple[EpochRange, Manifest | LogCorrupt]]:
        """Read every entry completely; yields its manifest, or what is wrong with it."""
        for covers in self.store.ranges():
            try:
                manifest = self.manifest(covers)
                for part in manifest.parts:
                    for _ in self.read_part(covers, part):
                        pass
                yield covers, manifest
            except LogCorrupt as damage:
                yield covers, damage

    # -- cursors

    def cursors(self) -> dict[str, Epoch]:
        """How far each consumer has durably come; a cursor that cannot be read counts as nothing read."""
        found = {}
        for name in self.store.names(CURSORS):
            data = self.store.get(name)
            if data is not None:
                found[consumer_of(name)] = decode_cursor(data)
        return found

    def cursor(self, consumer: str) -> Epoch | None:
        """How far ``consumer`` has come, or None if it is unknown."""
        data = self.store.get(cursor_name(consumer))
        return None if data is None else decode_cursor(data)

    def register(self, consumer: str) -> Epoch:
        """Have everything kept for ``consumer`` that the log holds; the position right before that. Durable.

        First the cursor, then the look at the head: a writer may be dropping entries at any moment, but none that
        is there when this cursor is (`LogStore.unpublish`).
        """
        self.store.put(cursor_name(consumer), encode_cursor(BEFORE_FIRST))
        head = self.head()
        self.move_cursor(consumer, head)
        return head

    def move_cursor(self, consumer: str, epoch: Epoch) -> None:
        """Say that ``consumer`` has durably finished ``epoch``, and no later one.

        A cursor that is new, or goes back, is durable: without it the log would drop what the consumer needs. One
        that goes forward is atomic but not synced, because without it the log keeps more than it must.
        """
        now = self.cursor(consumer)
        if now != epoch:
            ahead = now is not None and now < epoch
            self.store.put(cursor_name(consumer), encode_cursor(epoch), durable=not ahead)

    def forget(self, consumer: str) -> None:
        """Remove the cursor of a consumer that will not come back."""
        self.store.delete(cursor_name(consumer))

    # -- epochs that a consumer is not to see

    def set_aside(self, consumer: str, manifest: Manifest) -> None:
        """Let ``consumer`` see the entry without its rows from now on. Durable, idempotent.

        The rows stay in the log for its other consumers, and until this one has passed them. Other rows that are
        published for the same epochs later, after a roll-back, are not meant.
        """
        fields = {"covers": str(manifest.covers), "entry": manifest.digest}
        self.store.put(aside_name(consumer, manifest.covers), seal(fields))

    def is_set_aside(self, consumer: str, manifest: Manifest) -> bool:
        """Whether ``consumer`` is not to see the rows of the entry.

        Raises:
            LogCorrupt: the note that says so is damaged.
        """
        name = aside_name(consumer, manifest.covers)
        data = self.store.get(name)
        if data is None:
            return False
        # Release 0.1.0 did not say which entry of these epochs it meant.
        return unseal(data, f"{self.shown}: {name}", lambda fields: fields.get("entry")) in (None, manifest.digest)

    # -- epochs that were published again

    def recalls(self) -> tuple[Epoch, ...]:
        """The epochs that the log was put back to, oldest first: what was behind each was published again.

        Raises:
            LogCorrupt: the document that says so is damaged.
        """
        data = self.store.get(RECALLS)
        return () if data is None else unseal(data, f"{self.shown}: {RECALLS}", recalled)

    def tell_recalls(self, epochs: Iterable[Epoch]) -> None:
        """Let readers know all the epochs that the log was put back to. Durable."""
        self.store.put(RECALLS, seal({"epochs": list(epochs)}))

    def check_stands(self, position: Epoch, known: int) -> int:
        """See that what a reader has taken up to ``position`` was not published again since.

        ``known``: how many recalls there were when it came to that position. Returns how many there are now.

        Raises:
            PipelineError: some of it was.
        """
        recalls = self.recalls()
        # Fewer than were known: the log itself was put back to a time before one of them.
        new = recalls[known:] if known <= len(recalls) else recalls
        if any(epoch < position for epoch in new):
            raise PipelineError(
                f"{self.shown}: the epochs behind {min(new)} were lost and are published again, perhaps cut "
                f"otherwise, and this query has taken the epochs up to {position} already: put it back to epoch "
                f"{min(new)} or before with `tidelock restore`, or let it begin anew in a new home"
            )
        return len(recalls)

    # -- writing

    def take_over(self, owner: str, clock: Callable[[], float] = time.time) -> LogWriter:
        """Become the log's only writer; whoever wrote before is `Fenced` from now on."""
        return LogWriter(self, self.store.take_over(owner), clock)


class LogWriter:
    """The right to change a log's entries, for as long as nobody takes it over.

    Owned by one thread at a time, as the batches of a query are: there is one for every run of a query, every copy
    and every snapshot, and the store fences all but the newest.
    """

    def __init__(self, log: EpochLog, token: Token, clock: Callable[[], float]) -> None:
        self.log = log
        self.token = token
        self._clock = clock
        with self._fenced_rather_than_damaged():
            manifests = [log.manifest(covers) for covers in log.ranges()]
        start = Epoch(manifests[0].covers.first - 1) if manifests else BEFORE_FIRST
        self.window = Window(tuple(m.entry for m in manifests), {}, start, log.header.retention)
        named = {part.file for manifest in manifests for part in manifest.parts}
        self._collect(name for name in log.store.part_names() if name not in named)

    @contextmanager
    def _fenced_rather_than_damaged(self) -> Iterator[None]:
        """Tell a log that a newer writer has changed meanwhile from one that is damaged."""
        try:
            yield
        except LogCorrupt:
            self.log.store.check_holds(self.token)
            raise

    def _collect(self, left_over: Iterable[str]) -> None:
        """Remove parts that no entry names: dead or fenced attempts have left them.

        What this writer knows of the entries is all there is to know only as long as it holds the log. Once it
        does not, such a part may belong to an entry of a newer writer, which collects what is left.
        """
        with suppress(Fenced):
            self.log.store.collect_parts(self.token, left_over)

    def part_prefix(self, last: Epoch) -> str:
        """How the names of this writer's parts for an epoch begin: no other attempt uses it."""
        return f"{last:012}-{self.token}-"

    def is_published(self, entry: Entry) -> bool:
        """Whether this very work has been published before.

        Raises:
            WindowError: the epochs hold other work, or would leave a gap.
        """
        return self.window.publish(entry) is self.window

    def publish(self, manifest: Manifest) -> bool:
        """Publish an entry, once: False if the same work is there already. Atomic and durable.

        Raises:
            WindowError: the epochs hold other work, or would leave a gap.
            Fenced: a newer writer has taken over.
            LogCorrupt: the log has lost what was published before.
            BackendUnavailable: no room or no connection; nothing was published.
        """
        if manifest.log != self.log.header.id:
            raise InternalError(f"{self.log.shown}: a manifest for log {manifest.log} was published here")
        manifest = replace(manifest, published_at=self._clock())
        grown = self.window.publish(manifest.entry)
        if grown is self.window:
            return False
        try:
            own = [part.file for part in manifest.parts if part.log is None]
            self.log.store.publish(self.token, manifest.covers, manifest.encode(), own)
        except Fenced:
            self._check_kept()
            raise
        self.window = grown
        self._drop_other_attempts(manifest)
        return True

    def _check_kept(self) -> None:
        """See that the log has all that was published: a store that has lost it has lost its lease as well."""
        self.log.check_there()
        tail = max((covers.last for covers in self.log.store.ranges()), default=BEFORE_FIRST)
        if tail < self.window.tail:
            raise lost(self.log.shown, f"the epochs from {tail + 1} to {self.window.tail}")

    def _drop_other_attempts(self, manifest: Manifest) -> None:
        """Remove what tasks that were run twice have left for the epoch that is published now."""
        named = {part.file for part in manifest.parts}
        mine = self.log.store.part_names(self.part_prefix(manifest.covers.last))
        self._collect(name for name in mine if name not in named)

    def truncate(self) -> tuple[Entry, ...]:
        """Drop what every consumer has finished and retention does not keep; returns what went."""
        window = replace(self.window, cursors=self.log.cursors())
        left, dropped = window.truncate(self._clock())
        if not self._remove(dropped):
            return ()  # a reader came, or went back, since the cursors were read: the next time counts it in
        self.window = left
        return dropped

    def _remove(self, entries: tuple[Entry, ...]) -> bool:
        if not entries:
            return True
        with self._fenced_rather_than_damaged():
            parts = [p.file for e in entries for p in self.log.manifest(e.covers).parts]
        if not self.log.store.unpublish(self.token, [e.covers for e in entries], finished=True):
            return False
        self.log.store.remove_parts(parts)
        return True


def lost(url: str, what: str) -> LogCorrupt:
    """The error for a log that no longer has what it had."""
    return LogCorrupt(
        f"{url}: the log has lost {what}: its store was emptied, or came back with older data. Start the pipeline "
        "again: it goes back to the newest epoch that all parts agree on"
    )


def check_name(name: str, what: str) -> str:
    """``name`` if it can stand in a file name, a key and a URL alike.

    Raises:
        PipelineError: it cannot.
    """
    if not _NAME.fullmatch(name):
        raise PipelineError(
            f"{name!r} cannot be the name of a {what}: use letters, digits, '.', '_' and '-', at most "
            "100 of them, beginning with a letter or digit"
        )
    return name


def recalled(fields: dict[str, Any]) -> tuple[Epoch, ...]:
    """What the document of recalls says."""
    return tuple(Epoch(epoch) for epoch in fields["epochs"])


def aside_last(fields: dict[str, Any]) -> Epoch:
    """The last epoch that a note is about which hides rows from a consumer."""
    return last_aside(str(fields["covers"]))


def _gap(ranges: list[EpochRange]) -> Epoch | None:
    gaps = (Epoch(one.last + 1) for one, two in pairwise(ranges) if two.first != one.last + 1)
    return next(gaps, None)


def _header(fields: dict[str, Any]) -> Header:
    keep = fields["retention"]
    retention = Retention(keep["epochs"], keep["seconds"], frozenset(keep["wait_for"]))
    return Header(fields["id"], fields["name"], fields["schema"], retention, fields["event_time"])
