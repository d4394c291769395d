"""The alignment protocol as a whole: jobs, subjects and coordinators that crash, restart, and read late or twice.

Nothing here is faked but Spark, the network and the disk: jobs decide with `Follower`, keep the machine's document
as `running.neighbours.aligning` does, and coordinators go by `next_command`. What survives a crash of a job is
what is kept on disk by a real one: its document, the batch that it has planned and the position that it has
committed.
"""

from __future__ import annotations

import graphlib
import itertools
from collections.abc import Callable, Mapping
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.following import Clock, FollowingJob
from tests.memory_logs import MemoryLog

from tidelock.alignment.landscape import JobRecord, find_cycle
from tidelock.alignment.machine import (
    Abort,
    Align,
    AlignmentState,
    CatchUp,
    Command,
    Commanded,
    Heard,
    Progressed,
    Source,
    Unknown,
    next_command,
)
from tidelock.following.merging import BEHIND, ahead
from tidelock.log.sealed import unseal

INTERVAL, PATIENCE = 1.0, 10.0
ROUNDS = 12
"""So many rounds are enough for everything, once crashes stop."""


class Job:
    """A job with its home, its query and the thread that speaks for it."""

    def __init__(self, name: str, logs: Mapping[str, MemoryLog], clock: Clock, *, merges: bool) -> None:
        self.name = name
        self.logs = logs
        self.clock = clock
        self.query = FollowingJob(
            list(logs.values()), clock, name, interval=INTERVAL, patience=PATIENCE, merges=merges
        )
        self.kept = Source.of(list(logs)).to_document()
        self.planned: dict[str, int] | None = None
        self.obeyed: list[Command] = []
        self.taken: dict[str, list[int]] = {log: [-1] for log in logs}
        self.stepped_at = 0.0
        self.start()

    def start(self) -> None:
        self.running = True
        self.heard: Heard | None = None
        self.source = Source.from_document(self.kept, list(self.logs))
        self.instruct()
        self.query.restart()

    def crash(self) -> None:
        self.running = False

    # -- its query

    @property
    def position(self) -> dict[str, int]:
        return self.query.position

    def pending(self) -> bool:
        return any(log.tail > self.position[name] for name, log in self.logs.items())

    def plan(self, between: Callable[[], None] = lambda: None) -> None:
        """Decide on the next batch, unless one is planned: that one is done as it was planned."""
        if self.planned is not None:
            return
        first = self.query.ask(self.query.sources[0])
        for source in self.query.sources[1:]:
            between()
            assert self.query.ask(source) == first, "all sources of a query take the same"
        for name, log in self.logs.items():
            log.move_cursor(self.name, first[0][name])
        if first[0] != first[1]:
            self.check_step(*first)
            self.planned = first[1]

    def commit(self) -> None:
        if self.planned is None:
            return
        for name, at in self.planned.items():
            if at > self.taken[name][-1]:
                self.taken[name].append(at)
        self.query.position, self.planned = self.planned, None
        self.stepped_at = self.clock.now

    def check_step(self, start: dict[str, int], end: dict[str, int]) -> None:
        assert start == self.position, "from where it was, so nothing is lost and nothing comes twice"
        for name, at in end.items():
            assert at == start[name] or (at > start[name] and at in self.logs[name].ends)
        told, merges = self.query.instruction.aligned, self.query.instruction.merges
        if not told or any(start[name] < told[name] for name in told):
            return
        if self.clock.now - self.stepped_at >= PATIENCE:
            return  # it may have gone without the others
        news = {name: [e for e in self.logs[name].ends if e > start[name]] for name in told}
        if len(told) == 1:
            (name,) = told
            if news[name]:
                taken = news[name].index(end[name]) + 1
                assert taken == 1 or (merges and taken >= BEHIND), (
                    "one epoch per batch, unless several change nothing"
                )
        elif all(end[name] > start[name] for name in told):
            here = {name: start[name] for name in told}
            met = [one for one in agreed(self.logs, told) if all(at in self.logs[n].ends for n, at in one.items())]
            assert {name: end[name] for name in told} == ahead(here, met, merges=merges), (
                "where everybody meets next"
            )

    # -- what speaks for it

    def instruct(self) -> None:
        self.query.tell(aligned=self.source.aligned)

    def look(self) -> Source:
        source = self.source
        for name, log in self.logs.items():
            position = log.cursor(self.name)
            source = source.handle(Progressed(name, -1 if position is None else position, log.ends[-2:]))
        return source

    def become(self, source: Source, *, dies: bool = False) -> None:
        """Make it durable first; it may die before the query is told."""
        if source.number > self.source.number:
            assert self.heard is not None
            self.obeyed.append(self.heard)
        for consumer in source.consumers.values():
            assert consumer.state is not AlignmentState.ALIGNED or consumer.position >= consumer.start
        self.kept = source.to_document()
        if dies:
            self.crash()
            return
        self.source = source
        self.instruct()

    def obey(self) -> None:
        if self.heard is not None:
            after = self.source.handle(Commanded(self.heard))
            assert after is self.source or self.heard.number > self.source.number, "an old command changes nothing"
            self.become(after)


def agreed(logs: Mapping[str, MemoryLog], met: Mapping[str, int]) -> list[dict[str, int]]:
    """All positions over these logs that were ever agreed on."""
    made = [data for log in logs.values() for name, data in log.store.made if name.startswith("meeting/")]
    positions = [unseal(data, "a position", lambda fields: dict(fields["at"])) for data in made]
    return [one for one in positions if one.keys() == met.keys()]


class Node:
    """What the shared tree has of a job: the newest command, with its version, and what the job has reported."""

    def __init__(self, job: Job) -> None:
        self.command: Heard | None = None
        self.version = -1
        self.given: list[Heard] = []
        self.report = job.source

    def give(self, command: Heard, version: int) -> None:
        if version == self.version:
            self.command, self.version = command, version + 1
            self.given.append(command)


class Coordinator:
    """Leads one job to the subjects that it wants, none of them for `Abort`; knows only what it has read."""

    def __init__(self, job: Job, node: Node) -> None:
        self.job = job
        self.node = node
        self.wanted: tuple[str, ...] = ()
        self.read: tuple[Source, Heard | None, int] | None = None

    def look(self) -> None:
        self.read = self.node.report, self.node.command, self.node.version

    def speak(self) -> None:
        """Act upon what was read, once; others may have acted meanwhile."""
        if self.read is None:
            return
        (source, newest, version), self.read = self.read, None
        unheard = newest if newest is not None and newest.number > source.number else None
        command = self.decide(source, unheard)
        if command is not None:
            number = max(source.number, newest.number if newest else 0) + 1
            self.node.give(replace(command, number=number), version)

    def decide(self, source: Source, unheard: Heard | None) -> Command | None:
        if unheard is not None and not isinstance(unheard, Unknown) and concerned(unheard) == set(self.wanted):
            return None
        if not self.wanted:
            return None if unheard is None and is_free(source) else Abort(0)
        command = next_command(self.wanted, source, {name: self.job.logs[name].tail for name in self.wanted})
        return CatchUp(0, self.wanted) if command is None and unheard is not None else command


def concerned(command: Heard) -> set[str]:
    match command:
        case CatchUp(_, subjects):
            return set(subjects)
        case Align(_, start):
            return set(start)
        case Abort() | Unknown():
            return set()


def is_free(source: Source) -> bool:
    return source.state is AlignmentState.UNALIGNED and not source.aligned


def is_aligned(source: Source, wanted: tuple[str, ...]) -> bool:
    return source.state is AlignmentState.ALIGNED and source.aligned.keys() == set(wanted)


which = st.integers(0, 2)


class Landscape(RuleBasedStateMachine):
    """Two jobs that follow both subjects, one that follows a single one, and two coordinators for each."""

    @initialize()
    def begin(self) -> None:
        self.clock = Clock()
        self.logs = {name: MemoryLog(name) for name in "ab"}
        follows = [{name: self.logs[name] for name in names} for names in FOLLOWS]
        # Every other one may take several epochs at once, and they meet all the same.
        self.jobs = [Job(f"job{n}", logs, self.clock, merges=n % 2 == 1) for n, logs in enumerate(follows)]
        self.nodes = [Node(job) for job in self.jobs]
        pairs = list(zip(self.jobs, self.nodes, strict=True))
        self.coordinators = [Coordinator(job, node) for job, node in pairs * 2]

    # -- subjects

    @rule(subjects=st.sampled_from(["a", "b", "ab", "aab"]), size=st.integers(1, 2), times=st.integers(1, 3))
    def publish(self, subjects: str, size: int, times: int) -> None:
        for name in subjects * times:
            self.logs[name].grow(size)

    @rule(subject=st.sampled_from("ab"), size=st.integers(1, 3))
    def producer_goes_back(self, subject: str, size: int) -> None:
        """It crashes, and publishes again what nobody has planned to take; in other pieces, perhaps."""
        log = self.logs[subject]
        readers = [job for job in self.jobs if subject in job.logs]
        taken = max((job.planned or job.position)[subject] for job in readers)
        if log.tail > taken and any(end <= taken for end in log.ends):
            log.cut_tail(taken)
            log.grow(size)

    @rule(subject=st.sampled_from("ab"))
    def truncate(self, subject: str) -> None:
        cursors = self.logs[subject].cursors()
        if len(cursors) == sum(subject in job.logs for job in self.jobs) and self.logs[subject].ends:
            self.logs[subject].cut_head(min(cursors.values()))

    # -- time

    @rule(seconds=st.sampled_from([0.5, INTERVAL, PATIENCE]))
    def time_passes(self, seconds: float) -> None:
        self.clock.now += seconds

    # -- jobs

    @rule(n=which, meanwhile=st.sampled_from(["", "a", "ab"]))
    def job_plans(self, n: int, meanwhile: str) -> None:
        """More may be published between the questions to its sources."""
        if self.jobs[n].running:
            self.jobs[n].plan(lambda: self.publish(meanwhile, 1, 1))

    @rule(n=which, times=st.integers(1, 3))
    def job_runs(self, n: int, times: int) -> None:
        if self.jobs[n].running:
            for _ in range(times):
                self.jobs[n].plan()
                self.jobs[n].commit()

    @rule(rival=st.integers(0, 1))
    def job_runs_while_another_does(self, rival: int) -> None:
        """The other one decides right before this one's agreed position is made."""
        job, other = self.jobs[1 - rival], self.jobs[rival]
        if job.running and other.running:
            self.logs["a"].store.before_create = other.plan
            job.plan()
            self.logs["a"].store.before_create = None

    @rule(n=which)
    def job_commits(self, n: int) -> None:
        if self.jobs[n].running:
            self.jobs[n].commit()

    @rule(n=which, when=st.sampled_from(["now", "in a round"]))
    def job_crashes(self, n: int, when: str) -> None:
        job = self.jobs[n]
        if job.running and when == "in a round" and job.planned is None:
            job.query.ask(job.query.sources[0])
        job.crash()

    @rule(n=which)
    def job_starts(self, n: int) -> None:
        if not self.jobs[n].running:
            self.jobs[n].start()

    @rule(n=which, dies=st.booleans())
    def job_looks_at_itself(self, n: int, dies: bool) -> None:
        if self.jobs[n].running:
            self.jobs[n].become(self.jobs[n].look(), dies=dies)

    @rule(n=which, late=st.integers(0, 2))
    def job_reads_its_command(self, n: int, late: int) -> None:
        """The newest one; or an older one, from a server of the tree that lags behind."""
        given = self.nodes[n].given
        if self.jobs[n].running and given:
            self.jobs[n].heard = given[max(0, len(given) - 1 - late)]

    @rule(n=which, ahead=st.integers(0, 2))
    def a_newer_release_commands(self, n: int, ahead: int) -> None:
        """Something that nobody here knows: it changes nothing, and the next command is obeyed."""
        node = self.nodes[n]
        number = node.command.number if node.command is not None else 0
        node.give(Unknown(number + ahead, "who knows"), node.version)

    @rule(n=which)
    def job_obeys(self, n: int) -> None:
        """What it has read, however long ago, and however often."""
        if self.jobs[n].running:
            self.jobs[n].obey()

    @rule(n=which)
    def job_dies_when_it_has_obeyed(self, n: int) -> None:
        job = self.jobs[n]
        if job.running and job.heard is not None:
            job.become(job.source.handle(Commanded(job.heard)), dies=True)

    @rule(n=which)
    def job_reports(self, n: int) -> None:
        if self.jobs[n].running:
            self.nodes[n].report = self.jobs[n].source

    @rule(n=which)
    def job_goes_on_whatever_happens(self, n: int) -> None:
        """No coordinator and no other job is needed, in any state."""
        job = self.jobs[n]
        if not job.running:
            job.start()
        if not job.pending():
            return
        before = dict(job.planned or job.position)
        for _ in range(4):
            job.plan()
            job.commit()
            self.clock.now += PATIENCE
        assert job.position != before or not job.pending()

    # -- coordinators

    @rule(c=st.integers(0, 5), wanted=st.sampled_from([(), ("a",), ("b",), ("a", "b")]))
    def coordinator_wants(self, c: int, wanted: tuple[str, ...]) -> None:
        """A new one, which has read nothing."""
        one = self.coordinators[c]
        one.wanted, one.read = tuple(name for name in wanted if name in one.job.logs), None

    @rule(c=st.integers(0, 5))
    def coordinator_looks(self, c: int) -> None:
        self.coordinators[c].look()

    @rule(c=st.integers(0, 5))
    def coordinator_speaks(self, c: int) -> None:
        self.coordinators[c].speak()

    @rule(n=which, rounds=st.integers(1, 4))
    def it_goes_well_for_a_while(self, n: int, rounds: int) -> None:
        for _ in range(rounds):
            self.round_of(n)

    def round_of(self, n: int) -> None:
        """Everybody takes one turn, and the subjects go on."""
        job = self.jobs[n]
        if not job.running:
            job.start()
        self.coordinators[n].look()
        self.coordinators[n].speak()
        job.heard = self.nodes[n].command
        job.obey()
        self.publish("ab", 1, 1)
        self.clock.now += PATIENCE
        for _ in range(3):
            job.plan()
            job.commit()
        job.plan()  # so that the cursors are where it is
        job.become(job.look())
        self.nodes[n].report = job.source

    # -- what always holds

    @invariant()
    def a_consumer_is_aligned_only_behind_an_align(self) -> None:
        for job in self.jobs:
            for name, consumer in job.source.consumers.items():
                if consumer.state is AlignmentState.ALIGNED:
                    assert consumer.start is not None
                    assert consumer.position >= consumer.start
                    assert self.was_aligned(job, name, consumer.start)

    def was_aligned(self, job: Job, subject: str, start: int) -> bool:
        for command in reversed(job.obeyed):
            if not isinstance(command, Align):
                return False
            if command.start.get(subject) == start:
                return True
        return False

    @invariant()
    def numbers_grow_and_a_report_is_never_ahead_of_what_is_durable(self) -> None:
        for job, node in zip(self.jobs, self.nodes, strict=True):
            given = [command.number for command in job.obeyed]
            assert given == sorted(set(given))
            assert node.report.number <= job.kept["number"]
            assert job.kept["number"] <= (node.command.number if node.command else 0)

    @invariant()
    def what_was_taken_are_whole_entries_in_order(self) -> None:
        for job in self.jobs:
            for name, log in job.logs.items():
                assert job.taken[name] == sorted(set(job.taken[name]))
                assert job.taken[name][-1] == job.position[name]
                assert job.position[name] <= log.tail

    @invariant()
    def agreed_positions_ascend(self) -> None:
        made = agreed(self.logs, {"a": 0, "b": 0})
        for one, two in itertools.pairwise(made):
            assert all(two[name] > at for name, at in one.items())

    def teardown(self) -> None:
        """Once crashes stop, whatever a coordinator wants comes true, and every epoch is taken."""
        if not hasattr(self, "jobs"):
            return
        for n, job in enumerate(self.jobs):
            for wanted in (tuple(job.logs), (), tuple(job.logs)[:1], tuple(job.logs)):
                self.coordinators[n].wanted = wanted
                self.rounds_until(n, wanted)
        for job in self.jobs:
            for _ in range(sum(len(log.ends) for log in job.logs.values())):
                job.plan()
                job.commit()
                self.clock.now += PATIENCE
            assert not job.pending(), "all that was published"
        self.those_that_follow_the_same_meet()

    def those_that_follow_the_same_meet(self) -> None:
        """Now both are aligned; each decides while the other is in the middle of it."""
        one, two = self.jobs[:2]

        def two_is_faster() -> None:
            self.publish("a", 1, 1)  # and sees more
            two.plan()

        for subjects in ("ab", "aab", "abb", "aabb", "b", "a"):
            self.publish(subjects, 1, 1)
            one, two = two, one
            self.logs["a"].store.before_create = two_is_faster
            one.plan()
            self.logs["a"].store.before_create = None
            one.plan()  # again, if what was agreed on was not there yet for it
            two.plan()
            one.commit()
            two.commit()
            assert one.position == two.position

    def rounds_until(self, n: int, wanted: tuple[str, ...]) -> None:
        for _ in range(ROUNDS):
            self.round_of(n)
            self.a_consumer_is_aligned_only_behind_an_align()
            source = self.jobs[n].source
            if is_aligned(source, wanted) if wanted else is_free(source):
                return
        raise AssertionError(f"{self.jobs[n].name} does not get aligned with {wanted}: {self.jobs[n].source}")


FOLLOWS = ("ab", "ab", "a")
TestLandscape = Landscape.TestCase
TestLandscape.settings = settings(max_examples=50, stateful_step_count=50, deadline=None, print_blob=True)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.frozensets(st.sampled_from("stuv"), max_size=2), st.frozensets(st.sampled_from("stuv"), max_size=2)
        ),
        max_size=6,
    )
)
def test_a_cycle_is_found_if_and_only_if_there_is_one(flows: list[tuple[frozenset[str], frozenset[str]]]) -> None:
    jobs = {str(n): JobRecord(str(n), tuple(sorted(f)), tuple(sorted(p))) for n, (f, p) in enumerate(flows)}
    before = {
        job.name: {o.name for o in jobs.values() if set(o.publishes) & set(job.follows)} for job in jobs.values()
    }
    try:
        graphlib.TopologicalSorter(before).prepare()
        has_one = False
    except graphlib.CycleError:
        has_one = True
    cycles = [find_cycle(jobs, name) for name in jobs]
    assert any(cycles) == has_one
    for name, cycle in zip(jobs, cycles, strict=True):
        if cycle:
            assert cycle[0] == cycle[-1] == name
            for one, subject, two in zip(cycle[::2], cycle[1::2], cycle[2::2], strict=False):
                assert subject in jobs[one].publishes
                assert subject in jobs[two].follows
