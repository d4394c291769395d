"""State in caches, for a pipeline that runs: made ready before a segment starts, and copied while it runs.

`tidelock.recovery.cached` decides from where a segment goes on; here that is carried out. The cache comes first,
then the checkpoint is put back, so that whatever is interrupted is found again as a cache that is behind its
checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass

from tidelock.cache.fence import Fence
from tidelock.cache.operator import StateShape
from tidelock.cache.snapshots import Snapshots
from tidelock.cache.store import CellStore, open_cells
from tidelock.caching.gates import CachedGate, SnapshotSchedule
from tidelock.epochs import BEFORE_FIRST, Epoch
from tidelock.errands import Errands
from tidelock.errors import PipelineError
from tidelock.home.events import Events, Trouble
from tidelock.home.home import Home, Record
from tidelock.log import EpochLog
from tidelock.log.sealed import seal, unseal
from tidelock.mending.rolling_back import finish_rolling_back, roll_back
from tidelock.recovery import Link, Unrecoverable
from tidelock.recovery.cached import CacheFound, Resume, Way, resume
from tidelock.spark.checkpoint.checkpoint import Checkpoint
from tidelock.spark.query.batches import Gate
from tidelock.spark.segments.describing import Described
from tidelock.spark.segments.keyed import StatePlace
from tidelock.spark.segments.segment_queries import cached_operator, snapshot_cursor
from tidelock.topology import Cutting


@dataclass(frozen=True)
class CachedSegment:
    """A segment with an operator whose state is in a cache."""

    name: str
    operator: str
    shape: StateShape
    inputs: tuple[tuple[str, int], ...]
    """The URLs of the logs that it reads, and their lags."""


def cached_segments(cutting: Cutting, described: Mapping[str, Described], home: Home) -> dict[str, CachedSegment]:
    """The segments of a pipeline that keep state in a cache, by name.

    Raises:
        PipelineError: there are some, and it was not said where their state is to be kept.
    """
    found = {}
    for segment in cutting.segments:
        operator = cached_operator(segment, described)
        if operator is not None:
            shape = described[operator].state
            assert shape is not None  # that is what makes it a cached one
            home.state(operator)
            inputs = tuple((home.log(read.log), read.lag) for read in segment.inputs)
            found[segment.name] = CachedSegment(segment.name, operator, shape, inputs)
    if found:
        home.identity()  # made here, by one thread: segments start at the same time
    return found


def cached_shape(store: CellStore, home: Home) -> StateShape | None:
    """What the state in ``store`` looks like; None if there is none.

    Raises:
        PipelineError: it is the state of another home.
    """
    header = store.header()
    if header is None:
        return None
    owner, shape = unseal(header, store.shown, lambda fields: (fields["home"], StateShape.decode(fields["shape"])))
    if owner != home.identity():
        raise PipelineError(
            f"{store.shown} holds the state of another home: give this one another place with --cache, or remove "
            "what is there"
        )
    return shape


@dataclass(frozen=True)
class KeptStates:
    """Where the segments with cached state have that.

    Attributes:
        epochs: By segments, the epochs at which it is in the cache or in a snapshot.
        cached: By segments, the epoch at which it is in the cache, if the cache has it.
    """

    epochs: Mapping[str, frozenset[Epoch]]
    cached: Mapping[str, Epoch]


def kept_states(home: Home, record: Record) -> KeptStates:
    """Where the segments of a home have their cached state.

    Raises:
        PipelineError: the cache holds the state of another home.
        BackendUnavailable: the cache does not answer.
    """
    epochs, cached = {}, {}
    for segment in record.segments:
        if segment.cached is not None and home.cache is not None:
            store = open_cells(home.state(segment.cached))
            kept = set(Snapshots(home.snapshots(segment.cached)).epochs() or [BEFORE_FIRST])
            if cached_shape(store, home) is not None:
                cached[segment.name] = store.done()
                kept.add(cached[segment.name])
            epochs[segment.name] = frozenset(kept)
    return KeptStates(epochs, cached)


def forget(home: Home) -> None:
    """Remove the cached state of everything that has run in a home."""
    record = home.record()
    for segment in record.segments if record is not None else ():
        if segment.cached is not None:
            open_cells(home.state(segment.cached)).clear()


class Caches:
    """The cached state of a running pipeline, operator by operator. Thread-safe: it does not change."""

    def __init__(self, home: Home, segments: Mapping[str, CachedSegment], every: int, events: Events) -> None:
        self._home = home
        self._segments = segments
        self._every = every
        self._events = events
        # One snapshot at a time: they are not urgent, and the machine has other things to do.
        self._errands = Errands("tidelock snapshot")

    def open(self, segment: str, check: Callable[[], None] = lambda: None) -> OpenedState | None:
        """Make the state of a segment that is about to start what its checkpoint says; None if it has none.

        If the cache has lost something, the segment's checkpoint is put back as far as that takes. ``check`` is
        called before each step that changes something, and raises if the segment is not to start any more: it may
        have taken so long that another run has begun.

        Raises:
            PipelineError: the state belongs to somebody else.
            Unrecoverable: the state is lost, and can neither be loaded nor computed again.
            BackendUnavailable: the cache does not work.
        """
        cached = self._segments.get(segment)
        if cached is None:
            return None
        opened = OpenedState(self._home, cached, self._every, self._events, self._errands)
        opened.prepare(check)
        return opened

    def close(self, timeout: float) -> bool:
        """Finish the snapshot that is under way, and take no more; whether that took at most ``timeout`` seconds.

        One that hangs ends with the process; whoever takes the state over gives it up before.
        """
        return self._errands.close(timeout)


class OpenedState:
    """The state of one operator, taken over for one run of its segment.

    The thread that starts the segment owns it until the gate is made. Afterwards nothing of it changes, and the
    threads of batches and of snapshots use it together.
    """

    def __init__(self, home: Home, cached: CachedSegment, every: int, events: Events, errands: Errands) -> None:
        self._home = home
        self._cached = cached
        self._every = every
        self._events = events
        self._errands = errands
        self._url = home.state(cached.operator)
        self._store = open_cells(self._url)
        self._snapshots = Snapshots(home.snapshots(cached.operator))
        self._checkpoint = Checkpoint(None, home.checkpoint(cached.name))
        self._fence = Fence(0, "")
        self._done = BEFORE_FIRST
        self._trouble = Trouble(events, "snapshot failed", "snapshot taken", cached.name)

    @property
    def place(self) -> StatePlace:
        """Where its tasks find it."""
        return StatePlace(self._url, self._fence.claim)

    def gate(self, gate: Gate) -> Gate:
        """The gate for batches that change the state."""
        newest = max(self._snapshots.epochs(), default=BEFORE_FIRST)
        schedule = SnapshotSchedule(self._every, self._snapshot, newest)
        return CachedGate(
            gate,
            self._store,
            self._fence,
            self._done,
            schedule,
            lambda b: self._checkpoint.offsets(b).watermark_ms,
        )

    # -- before a run

    def prepare(self, check: Callable[[], None]) -> None:
        """Bring cache and checkpoint together, and take the state over."""
        check()
        # What an earlier attempt could not finish: a segment that runs on would be put back to it much later.
        finish_rolling_back(self._home, [self._cached.name])
        self._hold_logs()
        found = self._found()
        try:
            going_on = resume(found)
        except Unrecoverable as lost:
            raise Unrecoverable(
                f"the state of {self._cached.operator} in {self._store.shown} is lost: {lost}"
            ) from lost
        before = self._store.fence()
        self._bring_back(found, going_on, check)
        self._done = going_on.epoch
        check()
        self._fence = self._store.take_over(f"a run of {self._cached.name} in {self._home.root}", before)

    def _found(self) -> CacheFound:
        committed = self._checkpoint.committed()
        position = max(committed.values(), default=BEFORE_FIRST)
        from_nothing = [] if self._snapshots.epochs() or not self._logs_are_whole() else [BEFORE_FIRST]
        return CacheFound(
            committed=position,
            begun=self._checkpoint.begun(),
            safe=frozenset([*committed.values(), *from_nothing]),
            cached=self._cached_epoch(),
            snapshots=frozenset(self._snapshots.epochs()),
            oldest=BEFORE_FIRST if from_nothing else self._oldest(),
        )

    def _cached_epoch(self) -> Epoch | None:
        shape = cached_shape(self._store, self._home)
        if shape is None:
            return None
        if shape != self._cached.shape:
            raise PipelineError(
                f"the state of {self._cached.operator} has other columns than the one in {self._store.shown}: "
                "give the pipeline a new home"
            )
        return self._store.done()

    def _bring_back(self, found: CacheFound, going_on: Resume, check: Callable[[], None]) -> None:
        check()
        header = seal({"home": self._home.identity(), "shape": self._cached.shape.encode()})
        keys = None
        if going_on.way is Way.BEGIN:
            self._store.clear()
            self._store.create(header, BEFORE_FIRST)
        elif going_on.way is Way.LOAD:
            keys = self._snapshots.load(going_on.epoch, self._store, header, check)
        if going_on.epoch < found.committed:
            check()
            text = f"epochs {going_on.epoch + 1} to {found.committed} are taken again"
            self._events.add("state lost", self._cached.name, text, going_on.epoch)
            roll_back(self._home, self._cached.name, going_on.epoch, same_input=True)
        if keys is not None:
            text = f"{keys} keys, as of epoch {going_on.epoch}, from a snapshot"
            self._events.add("state loaded", self._cached.name, text, going_on.epoch)

    # -- the logs that it would have to read again

    def _hold_logs(self) -> None:
        """Keep what would be needed without the cache, from now on."""
        fresh = self._checkpoint.begun() == BEFORE_FIRST  # an earlier run may have died while it registered
        for log, _ in self._logs():
            if fresh or log.cursor(snapshot_cursor(self._cached.name)) is None:
                log.register(snapshot_cursor(self._cached.name))

    def _release_logs(self, epoch: Epoch) -> None:
        for log, lag in self._logs():
            log.move_cursor(snapshot_cursor(self._cached.name), Link(log.url, lag).position(epoch))

    def _logs_are_whole(self) -> bool:
        """Whether the logs still hold everything since this segment first started."""
        held = [(log.head(), log.cursor(snapshot_cursor(self._cached.name))) for log, _ in self._logs()]
        return all(head <= (BEFORE_FIRST if cursor is None else cursor) for head, cursor in held)

    def _oldest(self) -> Epoch:
        return max((Epoch(log.head() + lag) for log, lag in self._logs()), default=BEFORE_FIRST)

    def _logs(self) -> list[tuple[EpochLog, int]]:
        return [(EpochLog.open(url), lag) for url, lag in self._cached.inputs]

    # -- while it runs

    def _snapshot(self, epoch: Epoch, fence: Fence, server: str) -> Future[None]:
        return self._errands.run(lambda: self._take_snapshot(epoch, fence, server))

    def _take_snapshot(self, epoch: Epoch, fence: Fence, server: str) -> None:
        try:
            self._snapshots.take(self._store, self._cached.shape, epoch, fence, server)
            self._release_logs(epoch)
        except Exception as error:
            self._trouble.met(error, f"of epoch {epoch}: {error}", epoch)
            raise
        self._trouble.over(f"of epoch {epoch}")
