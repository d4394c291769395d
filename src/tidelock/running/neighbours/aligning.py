"""The part of a running job that speaks with others: what it follows and publishes, and how it is aligned.

A thread reads the newest command from the shared tree, feeds the alignment machine with it and with what the job
has committed, and writes the instruction that the job's sources look at in every round. The machine's document is
in the home before the instruction is changed, so a job that is killed goes on in the mode that it was in.

The tree is only for talking. While it does not answer, the job runs as it ran; the thread tries again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

from tidelock.alignment.combining import standing
from tidelock.alignment.directory import Directory, Job, Subject
from tidelock.alignment.machine import AlignmentState, Commanded, Heard, Progressed, Source, Unknown
from tidelock.coordination import SessionExpired, Tree, open_tree
from tidelock.epochs import BEFORE_FIRST, Epoch
from tidelock.errors import BackendUnavailable, LogCorrupt, PipelineError
from tidelock.following.follower import Instruction
from tidelock.home.events import Events, Trouble
from tidelock.home.home import Home
from tidelock.log import EpochLog
from tidelock.pipeline.declaration import Declaration
from tidelock.pipeline.subscriptions import Publication, default_coordinator
from tidelock.spark.checkpoint.checkpoint import Checkpoint
from tidelock.spark.query.batches import Batches
from tidelock.spark.segments.segment_queries import SegmentQueries
from tidelock.topology import why_one_by_one

_LOOK_EVERY = 0.1
_TELL_EVERY = 0.5
_TRY_EVERY = 2.0
_KEPT_ROWS = 100
_AWAY = (BackendUnavailable, SessionExpired)
_AT_REST = (AlignmentState.UNALIGNED, AlignmentState.ALIGNED)


@dataclass(frozen=True)
class Neighbours:
    """What a job has to do with other jobs."""

    job: Job
    publishes: Mapping[str, tuple[Subject, str]]
    """By the names of subjects: the subject, and the log of this job for it."""
    logs: Mapping[str, EpochLog]
    """By the names of subjects that it follows, their logs."""
    aligned: tuple[str, ...]
    """Those that a new job is aligned with from the beginning."""

    @classmethod
    def of(cls, pipeline: Declaration, segments: SegmentQueries, home: Home) -> Neighbours | None:
        """The neighbours of a job; None if it neither follows nor publishes anything.

        Raises:
            PipelineError: it is to be aligned, and reads what it follows in several segments.
        """
        if not pipeline.followed and not pipeline.published:
            return None
        reading = tuple(
            s.name for s in segments.cutting.segments if any(name in segments.followed for name in s.sources)
        )
        logs = {one.subject: EpochLog.open(one.log) for one in segments.followed.values()}
        job = Job(
            pipeline.name,
            str(home.root),
            home.identity(),
            {one.subject: one.consumer for one in pipeline.followed.values()},
            tuple(known.subject for known in pipeline.published.values()),
            reading,
            _one_by_one(segments, reading, logs, pipeline.storing),
        )
        aligned = tuple(one.subject for one in pipeline.followed.values() if one.aligned)
        if aligned:
            job.check_can_align()
        return cls(
            job,
            {known.subject: _published(home, node, known) for node, known in pipeline.published.items()},
            logs,
            aligned,
        )


def _one_by_one(
    segments: SegmentQueries, reading: Collection[str], logs: Mapping[str, EpochLog], storing: Collection[str]
) -> str | None:
    timed = [subject for subject, log in logs.items() if log.header.event_time]
    traits = {name: described.traits for name, described in segments.described.items()}
    return why_one_by_one(segments.cutting, traits, reading, timed, storing)


def _published(home: Home, node: str, known: Publication) -> tuple[Subject, str]:
    """The subject of a publication, and the log in which this job keeps it or its part of it.

    Raises:
        PipelineError: the job was put back, and the subject that it shares has its later epochs already.
    """
    own = EpochLog.open(home.log(node))
    if known.shared is None:
        return Subject(known.subject, own.url, own.header.schema, shared=False), own.url
    subject = EpochLog.open(known.shared)
    taken = standing(subject).at.get(own.header.id, BEFORE_FIRST)
    present = max(own.tail(), Checkpoint(None, home.checkpoint(node)).position())
    if taken > present:
        raise PipelineError(
            f"this job was put back to epoch {present}, and subject {known.subject}, which it shares with other "
            f"jobs, has its epochs up to {taken} already: followers would get the same rows twice. Publish it "
            "under another name, in a new home"
        )
    return Subject(known.subject, subject.url, own.header.schema, shared=True), own.url


class _NotKept(Exception):
    """What should have been in the home before anything else is not; it was told."""


class Aligner:
    """Speaks for one running job. Made before its segments start; `run` belongs into a thread of its own.

    That thread owns the session with the tree and all that is remembered here. What others may call is `end`,
    `leave` and `closing`; the instruction, which several write, is guarded by a lock, as is the mode that it is
    made from.
    Whatever fails is told once, and tried again: the thread lives as long as the run.
    """

    def __init__(
        self,
        neighbours: Neighbours,
        home: Home,
        events: Events,
        *,
        interval: float,
        patience: float,
        last_epoch: Epoch | None,
    ) -> None:
        self._its = neighbours
        self._home = home
        self._events = events
        self._usual = Instruction(
            interval=interval, patience=patience, last=last_epoch, merges=neighbours.job.one_by_one is None
        )
        self._url = home.coordinator or default_coordinator()
        self._ended = threading.Event()
        self._left = threading.Event()
        self._closing = False
        self._instructing = threading.RLock()
        self._tree: Tree | None = None
        self._tried = self._told = self._advanced = 0.0
        self._away = False
        self._seen: dict[str, int] = {}
        self._rows: list[dict[str, Any]] = []
        self._reported: tuple[Any, ...] = ()
        self._unheard: Unknown | None = None
        self._advancing = Trouble(events, "alignment failed", "alignment recovered")
        self._talk_trouble = Trouble(events, "alignment failed", "alignment recovered")
        self.source = self._kept()
        self._instruct(self.source)

    # -- at the start

    def register(self) -> None:
        """Make the job and its subjects known, before it starts.

        Raises:
            PipelineError: another job has its name or one of its subjects, or jobs would follow each other in a
                cycle.
            BackendUnavailable: the tree does not answer.
        """
        self._open()

    # -- while it runs

    def run(self) -> None:
        """Speak and listen until `end` is called."""
        try:
            while not self._ended.wait(_LOOK_EVERY):
                self._look()
            self._look(last=True)
        finally:
            self.close()

    def _look(self, *, last: bool = False) -> None:
        # Logs are asked often only while the job is led from one state to the other.
        if self.source.state not in _AT_REST or time.monotonic() - self._advanced >= _TELL_EVERY:
            self._advanced = time.monotonic()
            self._try(self._advance, self._advancing)
        if not self._try(lambda: self._try_to_talk(last=last), self._talk_trouble):
            self.close()  # whatever it is, it may be the session's: with a new one, everything is told again

    def _try(self, what: Callable[[], bool], trouble: Trouble) -> bool:
        """Do something that may fail in any way; whether it has not. It answers whether it was done at all."""
        try:
            if what():
                trouble.over("the job speaks with others again")
        except _NotKept:  # that is not the fault of who is spoken with, and is tried again with the next look
            return True
        except Exception as failure:
            trouble.met(failure, f"{failure}; the job goes on, and this is tried again")
            return False
        return True

    def end(self) -> None:
        """Let `run` return."""
        self._ended.set()

    def leave(self) -> None:
        """Write nothing into the home any more: `run` has not returned, and the home gets another owner."""
        self._left.set()

    def closing(self) -> None:
        """Let nobody wait for a subject any more: the job is about to stop."""
        with self._instructing:
            self._closing = True
            self._instruct(self.source)

    # -- the machine

    def _kept(self) -> Source:
        subjects = list(self._its.logs)
        kept = self._home.sealed_document("alignment", lambda fields: Source.from_document(fields, subjects))
        return kept or Source.of(subjects, self._its.aligned)

    def _advance(self) -> bool:
        """Tell the machine how far the job is."""
        source = self.source
        for subject, log in self._its.logs.items():
            try:
                position = log.cursor(self._its.job.follows[subject])
                completed = [covers.last for covers in log.ranges()[-2:]]
            except (BackendUnavailable, LogCorrupt):
                continue  # whoever reads the log will say so
            source = source.handle(Progressed(subject, BEFORE_FIRST if position is None else position, completed))
        self._become(source)
        return True

    def _become(self, source: Source) -> None:
        before = self.source
        with self._instructing:  # `closing` writes the instruction for the mode that it finds
            if self._left.is_set():
                return
            if _mode(source) != _mode(before):
                # Nothing is told of what is not durable, and what could not be written is tried again.
                with self._keeping():
                    self._home.seal_document("alignment", source.to_document())
                    self._instruct(source)
            self.source = source
        if source.state is not before.state:
            self._events.add("alignment", None, _told(source))

    @contextmanager
    def _keeping(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self._events.home_fails(error)
            raise _NotKept from error

    def _instruct(self, source: Source) -> None:
        aligned = {
            self._its.logs[subject].header.id: start
            for subject, start in source.aligned.items()
            if subject in self._its.logs
        }
        usual = self._usual
        replace(usual, aligned=aligned, closing=self._closing).write(self._home.instruction)

    # -- the tree

    def _try_to_talk(self, *, last: bool) -> bool:
        if self._tree is None and time.monotonic() - self._tried < _TRY_EVERY and not last:
            return False
        self._tried = time.monotonic()
        try:
            self._talk(self._open(), last=last)
            if self._away:
                self._away = False
                self._events.add("coordinator back", None, self._url)
        except _AWAY as trouble:
            self.close()
            if not self._away:
                self._away = True
                self._events.add("coordinator away", None, f"{trouble}; the job goes on, and hears commands later")
            return False
        return True

    def _talk(self, known: Directory, *, last: bool) -> None:
        name = self._its.job.name
        if self._its.logs:
            self._hear(known.command(name)[0])
        report = (_mode(self.source), self.source.number)
        if report == self._reported and not last and time.monotonic() - self._told < _TELL_EVERY:
            return
        self._told, self._reported = time.monotonic(), report
        if self._its.logs:
            known.report(name, self.source)
            if self._look_at_batches():
                known.keep_epochs(name, self._rows)

    def _hear(self, command: Heard | None) -> None:
        if isinstance(command, Unknown):
            if command != self._unheard:
                self._events.add("alignment failed", None, f"{command.why}; the job goes on as it is")
            self._unheard = command
        elif command is not None:
            self._become(self.source.handle(Commanded(command)))

    def _open(self) -> Directory:
        """The directory; a new session makes the job known once more, for the tree may be another one."""
        if self._tree is not None:
            return Directory(self._tree)
        self._tree = open_tree(self._url)
        known = Directory(self._tree)
        try:
            known.enter(self._its.job)
            for subject, log in self._its.publishes.values():
                known.publish(subject, self._its.job.name, log)
        except BaseException:
            self.close()
            raise
        self._reported = ()
        return known

    def close(self) -> None:
        """End the session with the tree. Idempotent."""
        tree, self._tree = self._tree, None
        if tree is not None:
            with suppress(Exception):  # it is left; what is wrong with it was told, and ends nobody's thread
                tree.close()

    # -- which epochs took which

    def _look_at_batches(self) -> bool:
        """Learn of new batches from the checkpoints; whether there were any."""
        found = [row for segment in self._its.job.segments for row in self._new_rows(segment)]
        if not found:
            return False
        heads = {subject: log.head() for subject, log in self._its.logs.items()}
        rows = sorted([*self._rows, *found], key=lambda row: row["epoch"])
        self._rows = [row for row in rows if _is_held(row, heads)][-_KEPT_ROWS:]
        return True

    def _new_rows(self, segment: str) -> list[dict[str, Any]]:
        location = self._home.checkpoint(segment)
        batches = Batches(None, location, segment)
        names = {log.header.id: subject for subject, log in self._its.logs.items()}
        rows = []
        for number in Checkpoint(None, location).committed_batches(after=self._seen.get(segment, -1)):
            self._seen[segment] = number
            work = batches.work(number)
            if work is not None:
                taken = {names[i.log]: [i.covers.first, i.covers.last] for i in work.inputs if i.log in names}
                rows.append({"epoch": [work.covers.first, work.covers.last], "taken": taken, "segment": segment})
        return rows


def _mode(source: Source) -> tuple[Any, ...]:
    return source.number, tuple((name, c.state, c.start) for name, c in source.consumers.items())


def _told(source: Source) -> str:
    if source.state is AlignmentState.UNALIGNED:
        return "unaligned: it takes what is there, at its own interval"
    concerned = ", ".join(name for name, c in source.consumers.items() if c.state is not AlignmentState.UNALIGNED)
    if source.state is AlignmentState.ALIGNED:
        return f"aligned with {concerned}"
    return f"{source.state.value} with {concerned}"


def _is_held(row: Mapping[str, Any], heads: Mapping[str, Epoch]) -> bool:
    """Whether some log still holds what a row speaks of; a row that took nothing goes with its neighbours."""
    return not row["taken"] or any(last > heads[subject] for subject, (_, last) in row["taken"].items())
