"""A world for the supervisor that a test plays: no Spark, no time but what a story lets pass, one thing at a time.

A story is a generator. It does something to the world, and each `yield` lets so many seconds pass, while the
supervisor goes on. What the supervisor has others do runs between two of its steps, in a thread that has the only
baton: so it may hang in the middle, and wake up later, and still nothing happens by chance.
"""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from math import inf
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tidelock.epochs import BEFORE_FIRST, Epoch, EpochRange
from tidelock.home.events import Events
from tidelock.home.home import Home, Record, SegmentRecord
from tidelock.log import EpochLog
from tidelock.pipeline.declaration import RunSettings
from tidelock.recovery import Bound, Policy
from tidelock.running.draining import Draining
from tidelock.running.gates import SegmentGate, Stopped
from tidelock.running.ports.ports import Told, World
from tidelock.running.supervisor import Supervisor
from tidelock.spark.query.batches import Work
from tidelock.spark.query.listening import BatchProgress, Losses
from tidelock.testing.logs import SCHEMA
from tidelock.topology import Kind, Plan, Segment, TopologyNode, connect, cut

HANG_AFTER = 600.0
AT_ONCE = Policy(first_delay=0.0)
ALL_STOPPED = {"numbers": "stopped", "left": "stopped", "right": "stopped"}
MOST_STEPS = 100_000

Story = Iterator[float]
Script = Callable[[Any], None]


class PlayedQuery:
    """A query that does what the story says, until it is stopped."""

    def __init__(self, run: str, gate: SegmentGate, told: Callable[[str], None]) -> None:
        self.runId = run
        self.isActive = True
        self.stuck = False
        self.gate = gate
        self._failure: Exception | None = None
        self._told = told

    def exception(self) -> Exception | None:
        return self._failure

    def stop(self) -> None:
        if self.stuck:
            raise TimeoutError("its code goes on")
        if self.gate.inside():
            self.gate.leave(InterruptedError("its query was stopped"))
        self.ends()

    def ends(self, failure: Exception | None = None) -> None:
        if self.isActive:
            self.isActive, self._failure = False, failure
            self._told(self.runId)


class Hand:
    """Something that is done with the baton, and gives it back when it hangs."""

    def __init__(self, what: Callable[[], None]) -> None:
        self._what = what
        self._mine, self._given_back = threading.Semaphore(0), threading.Semaphore(0)
        self.hangs = False
        self.over = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self._mine.acquire()
        _hands.mine = self
        try:
            self._what()
        finally:
            self.over = True
            self._given_back.release()

    def go_on(self) -> None:
        """Let it do what it does, until it is over or hangs."""
        self.hangs = False
        self._mine.release()
        self._given_back.acquire()

    def hang(self) -> None:
        """Give the baton back in the middle."""
        self.hangs = True
        self._given_back.release()
        self._mine.acquire()

    def is_alive(self) -> bool:
        return not self.over

    def join(self, timeout: float) -> None:
        """What can go on does so meanwhile."""
        if not self.hangs and not self.over:
            self.go_on()


_hands = threading.local()


def hang() -> None:
    """Hang, in what the supervisor has others do, until the story wakes it up."""
    _hands.mine.hang()


class PlayedWorld:
    """Spark, checkpoints, threads and time, as the story has them."""

    def __init__(self) -> None:
        self.time = 0.0
        self.takes = 0
        self.done: list[str] = []
        """What the supervisor has had done, in order."""
        self.times: dict[str, list[float]] = defaultdict(list)
        """When each of that was done."""
        self.starts: dict[str, int] = defaultdict(int)
        self.queries: dict[str, list[PlayedQuery]] = defaultdict(list)
        self.scripts: dict[tuple[str, int], Script] = {}
        self.before_turns: dict[tuple[str, int], Callable[[], None]] = {}
        self.turns = threading.Semaphore(3)
        self.gates: dict[str, SegmentGate] = {}
        self.checkpoints: dict[str, dict[int, Epoch]] = defaultdict(dict)
        self.losing: Exception | None = None
        self.unreadable: Exception | None = None
        self.gone = False
        self.deaf = False
        """Spark's events are lost."""
        self.looks: list[float] = []
        """When the supervisor has asked Spark how it is."""
        self.every_step: Callable[[], object] = lambda: None
        self._told: deque[Told] = deque()
        self._hands: list[Hand] = []
        self._story: Story = iter(())
        self._next = 0.0

    def tells(self, story: Story) -> None:
        self._story = story

    # -- for the story

    def wake(self) -> None:
        """Let go on what hangs."""
        for hand in self._hands:
            if hand.hangs:
                hand.go_on()

    def begins(self, segment: str, epoch: int) -> None:
        """A batch is let in, which takes that epoch."""
        self.gates[segment].enter(Work(EpochRange.single(Epoch(epoch)), (), (), "query", epoch))

    def computes(self, segment: str, epoch: int) -> None:
        """A batch has been computed, and Spark has not committed it yet."""
        self.begins(segment, epoch)
        self.gates[segment].leave(None)

    def commits(self, segment: str, epoch: int) -> None:
        """A batch has been computed and is in the commit log, and Spark tells it."""
        self.computes(segment, epoch)
        self.checkpoints[segment][epoch] = Epoch(epoch)
        self.tells_commit(segment, epoch)

    def tells_commit(self, segment: str, epoch: int, attempt: int = -1) -> None:
        """Spark tells that a batch is committed."""
        if not self.deaf:
            run = self.queries[segment][attempt].runId
            self._progressed(BatchProgress(run, epoch, 1, 1.0, 0.1, 0, 0))

    def fails(self, segment: str, failure: Exception, epoch: int | None = None) -> None:
        """The query of a segment fails; with an ``epoch``, inside of its batch."""
        if epoch is not None:
            self.begins(segment, epoch)
            self.gates[segment].leave(failure)
        self.query(segment).ends(failure)

    def query(self, segment: str) -> PlayedQuery:
        return self.queries[segment][-1]

    def active(self, segment: str) -> list[bool]:
        return [query.isActive for query in self.queries[segment]]

    # -- the engine

    def start(self, segment: Segment, gate: Any, starting: Any, *, draining: bool) -> None:
        name = segment.name
        self.starts[name] += 1
        self.gates[name] = gate
        key = (name, self.starts[name])
        self.before_turns.get(key, lambda: None)()
        with starting.turn(self.turns):
            self._note(f"start {name}")
            self.scripts.get(key, self.comes_up(name))(starting)

    def comes_up(self, segment: str) -> Script:
        """What a start does that goes well."""

        def begin(starting: Any) -> None:
            query = PlayedQuery(f"{segment} {len(self.queries[segment])}", starting.gate, self._query_ended)
            self.queries[segment].append(query)
            starting.begun(query)

        return begin

    def rest(self) -> str:
        return ""

    def listen(self, progressed: Callable[[BatchProgress], None], ended: Callable[[str], None]) -> None:
        self._progressed, self._ended = progressed, ended

    def _query_ended(self, run: str) -> None:
        self._note(f"end {run.rpartition(' ')[0]}")
        if not self.deaf:
            self._ended(run)

    def losses(self) -> Losses:
        self.looks.append(self.time)
        if self.losing is not None:
            raise self.losing
        return Losses(0, ())

    def is_gone(self) -> bool:
        return self.gone

    def close(self, patience: float) -> bool:
        self._note("close")
        return True

    def _note(self, what: str) -> None:
        self.done.append(what)
        self.times[what].append(self.time)

    # -- checkpoints

    def position(self, segment: str) -> Epoch:
        return max(self.checkpoints[segment].values(), default=BEFORE_FIRST)

    def is_committed(self, segment: str, batch: int) -> bool:
        if self.unreadable is not None:
            raise self.unreadable
        return batch in self.checkpoints[segment]

    # -- threads

    def begin(self, name: str, what: Callable[[], None]) -> Hand:
        self._hands.append(Hand(what))
        return self._hands[-1]

    # -- the inbox

    def now(self) -> float:
        return self.time

    def put(self, told: Told) -> None:
        self._told.append(told)

    def take(self, until: float) -> Told | None:
        self.takes += 1
        assert self.takes < MOST_STEPS, "it goes on for ever"
        self.every_step()
        while not self._told and until > self.time:
            ready = next((hand for hand in self._hands if not hand.hangs and not hand.over), None)
            if ready is not None:
                ready.go_on()
            elif self._next <= self.time:
                self._next = self.time + next(self._story, inf)
            else:
                self.time = min(until, self._next)
        return self._told.popleft() if self._told else None


def _segments(shape: dict[str, str | None]) -> Any:
    nodes = [
        TopologyNode(name, Kind.SOURCE if reads is None else Kind.SINK, () if reads is None else (reads,))
        for name, reads in shape.items()
    ]
    topology = connect("job", nodes, {})
    return cut(topology, Plan.each(topology), {})


class Play:
    """One run of a pipeline with a head, `numbers`, and two segments that read it, `left` and `right`."""

    def __init__(
        self,
        folder: Path,
        policy: Policy | None = None,
        *,
        hang_after: float = HANG_AFTER,
        last_epoch: int | None = None,
        drains: bool = False,
    ) -> None:
        self.world = PlayedWorld()
        self.home = Home(folder)
        cutting = _segments({"numbers": None, "left": "numbers", "right": "numbers"})
        self.log = EpochLog.create(self.home.log("numbers"), SCHEMA)
        records = tuple(
            SegmentRecord(
                s.name,
                s.operators,
                tuple((i.log, i.lag) for i in s.inputs),
                self.home.log(s.writes) if s.writes else None,
            )
            for s in cutting.segments
        )
        self.home.remember(Record("job", {}, {}, records, {}))
        played: Any = SimpleNamespace(cutting=cutting, needs_ticks=False, followed={}, described={})
        self.supervisor = Supervisor(
            cutting,
            {},
            World(self.world, self.world, self.world, self.world),
            self.home,
            RunSettings(policy or Policy(), Bound(100, 1 << 30), hang_after, 1, 1.0),
            Events(self.home),
            last_epoch=None if last_epoch is None else Epoch(last_epoch),
            drain=Draining(played, self.home) if drains else None,
            last_words=0.0,
        )
        self.world.every_step = self.supervisor.machine.validate

    def run(self, story: Story) -> None:
        """Tell a story to its end, and that of the run."""
        self.world.tells(story)
        try:
            self.supervisor.run()
        finally:
            self.world.wake()

    def stop(self, *, drain: bool = False) -> None:
        self.supervisor.stop(drain=drain)

    def state(self, segment: str) -> str:
        return self.supervisor.machine.state(segment).value

    def states(self) -> dict[str, str]:
        return {segment: self.state(segment) for segment in ("numbers", "left", "right")}

    def epoch(self, segment: str) -> int:
        return self.supervisor.machine.epoch(segment)

    def kinds(self) -> list[str]:
        return [event["kind"] for event in self.home.events()]

    def texts(self, kind: str) -> list[str]:
        return [event["text"] for event in self.home.events() if event["kind"] == kind]


Begin = Callable[..., Play]
"""Makes a run; the arguments are those of `Play`, without the folder."""

__all__ = [
    "ALL_STOPPED",
    "AT_ONCE",
    "HANG_AFTER",
    "Begin",
    "Play",
    "PlayedQuery",
    "PlayedWorld",
    "Stopped",
    "Story",
    "hang",
]
