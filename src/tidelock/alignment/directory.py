"""The directory: what jobs tell each other about themselves and their subjects, in the shared tree.

    /subjects/<name>                  where its log is, its schema, whether several jobs may produce it
    /subjects/<name>/producers/<job>  the log in which a job keeps its part of the subject
    /subjects/<name>/combiner         the lease of the job that puts the parts together
    /jobs/<job>                       its home, what it follows and what it publishes
    /jobs/<job>/runs/<identity>       there while the home of that identity runs it (ephemeral)
    /jobs/<job>/alive                 the same, of a job of release 0.1.0
    /jobs/<job>/command               the newest command of a leader
    /jobs/<job>/source                what the job says of its own alignment
    /jobs/<job>/epochs                which of its epochs took which epochs of its subjects

Every node has one writer, but for the command, which is changed only by who has read the newest one. Nothing here
is needed to go on with data: a job that cannot reach the tree runs as it ran, and hears commands later.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from tidelock.alignment.landscape import JobRecord, drawn, find_cycle
from tidelock.alignment.machine import Command, Heard, Source, Unknown, from_fields, to_fields
from tidelock.coordination import BadVersion, NodeExists, NoNode, NotEmpty, Tree
from tidelock.credentials import found, taken
from tidelock.errors import LogCorrupt, PipelineError
from tidelock.urls import masked


@dataclass(frozen=True)
class Subject:
    """A public epoch log."""

    name: str
    endpoint: str
    """The URL of the log that followers read."""
    schema: Mapping[str, Any]
    shared: bool
    """Whether several jobs produce it, each into a log of its own."""


@dataclass(frozen=True)
class Job:
    """A job that publishes or follows subjects."""

    name: str
    home: str
    identity: str
    follows: Mapping[str, str]
    """The subjects that it follows, each with the name of its cursor."""
    publishes: tuple[str, ...]
    segments: tuple[str, ...] = ()
    """The segments that read the subjects."""
    one_by_one: str | None = None
    """Why it takes the epochs of a subject one by one when it is aligned, however far behind it is."""

    def to_fields(self) -> dict[str, Any]:
        """The job as its node has it."""
        return {
            "home": self.home,
            "identity": self.identity,
            "follows": dict(self.follows),
            "publishes": list(self.publishes),
            "segments": list(self.segments),
            "one_by_one": self.one_by_one,
        }

    def check_can_align(self) -> None:
        """See that what it follows is read in one place.

        Raises:
            PipelineError: it is not.
        """
        if len(self.segments) > 1:
            raise PipelineError(
                f"job {self.name} reads the subjects that it follows in several segments "
                f"({', '.join(self.segments)}), and only one query can take an agreed set of epochs: unite or "
                "join the subjects in the first operators, before state or an anchor, and run it in a new home"
            )

    @property
    def record(self) -> JobRecord:
        """The job in the graph of all jobs."""
        return JobRecord(self.name, tuple(self.follows), self.publishes)


class Directory:
    """The directory in a shared tree. As safe for threads as the tree is."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree

    # -- subjects

    def subjects(self) -> list[Subject]:
        """All subjects, by name."""
        return [self.subject(name) for name in self._children("/subjects")]

    def subject(self, name: str) -> Subject:
        """The subject of that name.

        Raises:
            PipelineError: nobody has published it.
        """
        fields = self._read(f"/subjects/{name}")
        if fields is None:
            known = ", ".join(self._children("/subjects")) or "nothing"
            raise PipelineError(
                f"there is no subject {name}: start the job that publishes it first, with the same --coordinator. "
                f"Published so far: {known}"
            )
        return Subject(name, found(fields["endpoint"]), fields["schema"], fields["shared"])

    def has_subject(self, name: str) -> bool:
        """Whether somebody has published it."""
        return self._read(f"/subjects/{name}") is not None

    def publish(self, subject: Subject, job: str, log: str) -> None:
        """Make ``subject`` known, as produced by ``job`` into ``log``. Idempotent.

        Raises:
            PipelineError: another job publishes a subject of that name, and they do not share it.
        """
        path = f"/subjects/{subject.name}"
        own = f"{path}/producers/{job}"
        before = self._read(own)
        endpoint = taken(subject.endpoint)
        self._write(own, {"log": taken(log), "endpoint": endpoint, "shared": subject.shared})
        # Written first and checked afterwards: of several that want one name together at least one sees another.
        for other in self._children(f"{path}/producers"):
            known = self._read(f"{path}/producers/{other}")
            if other != job and known is not None and not _are_one(subject, known):
                self._put_back(own, before)
                raise PipelineError(
                    f"subject {subject.name} is published by {other} already, into {masked(known['endpoint'])}: "
                    "choose another name, or share it with publish(..., shared=URL), with one and the same URL "
                    "in all jobs that produce it"
                )
        self._write(path, {"endpoint": endpoint, "schema": subject.schema, "shared": subject.shared})

    def producers(self, subject: str) -> dict[str, str]:
        """The jobs that produce a subject, each with the URL of its log."""
        logs = {}
        for job in self._children(f"/subjects/{subject}/producers"):
            fields = self._read(f"/subjects/{subject}/producers/{job}")
            if fields is not None:
                logs[job] = found(str(fields["log"]))
        return logs

    def withdraw(self, subject: str, job: str) -> None:
        """Let ``job`` be no longer a producer of ``subject``; the last one takes the subject with it."""
        path = f"/subjects/{subject}"
        self._delete(f"{path}/producers/{job}")
        try:  # not all at once: one that comes to produce it at this moment keeps it
            self._tree.delete(f"{path}/producers")
            self._delete(f"{path}/combiner")
            self._tree.delete(path)
        except (NotEmpty, NoNode):
            return

    # -- jobs

    def jobs(self) -> dict[str, Job]:
        """All jobs, by name."""
        jobs = {}
        for name in self._children("/jobs"):
            fields = self._read(f"/jobs/{name}")
            if fields:
                jobs[name] = _job(name, fields)
        return jobs

    def job(self, name: str) -> Job:
        """The job of that name.

        Raises:
            PipelineError: there is none.
        """
        fields = self._read(f"/jobs/{name}")
        if not fields:
            known = ", ".join(self.jobs()) or "none"
            raise PipelineError(
                f"there is no job {name} that follows or publishes subjects: run it with the same --coordinator. "
                f"Known jobs: {known}"
            )
        return _job(name, fields)

    def enter(self, job: Job) -> None:
        """Make ``job`` known, and let it be alive for as long as this client of the tree lives. Idempotent.

        Of several jobs of one name that come at once exactly one enters: the one whose node was created first.
        What an earlier process of the same home has left there is replaced: one at a time runs a home. What was
        said to or by an earlier job of that name, in another home, goes.

        Raises:
            PipelineError: another job of that name runs, or the jobs would follow each other in a cycle.
        """
        own = f"/jobs/{job.name}/runs/{job.identity}"
        self._delete(own)
        try:
            self._tree.create(own, ephemeral=True, make_parents=True)
            created = self._tree.get(own).created
            if any(other < created for other in self._others(job)) or self._runs_older_release(job):
                raise self._taken(job.name)
            self._make_known(job)
        except BaseException:
            self._delete(own)
            self._drop_unknown(job.name)
            raise

    def _others(self, job: Job) -> list[int]:
        """When the runs of other homes under the name of ``job`` were created."""
        path = f"/jobs/{job.name}/runs"
        found = [self._tree.find(f"{path}/{run}") for run in self._children(path) if run != job.identity]
        return [node.created for node in found if node is not None]

    def _runs_older_release(self, job: Job) -> bool:
        """Whether a process of release 0.1.0 runs another home under the name of ``job``."""
        known = self._read(f"/jobs/{job.name}")
        return known is not None and known["identity"] != job.identity and self._has_older_release(job.name)

    def _has_older_release(self, job: str) -> bool:
        return self._tree.find(f"/jobs/{job}/alive") is not None

    def _taken(self, job: str) -> PipelineError:
        known = self._read(f"/jobs/{job}")
        where = f", in {known['home']}" if known else ""
        return PipelineError(f"a job {job} runs already{where}: give this pipeline another name, or stop that one")

    def _make_known(self, job: Job) -> None:
        known = self.jobs().get(job.name)
        self._write(f"/jobs/{job.name}", job.to_fields())
        # Registered first and checked afterwards: of several that close a cycle together the last one sees it.
        cycle = find_cycle({name: one.record for name, one in self.jobs().items()}, job.name)
        if cycle:
            self._put_back_job(job.name, known)
            self._drop_unknown(job.name)
            raise PipelineError(
                f"job {job.name} would follow itself: {drawn(cycle)}. Jobs that share epochs may not form a "
                "cycle, because each would wait for an epoch of the other; put the loop into one job, with "
                "Pipeline.feedback"
            )
        if known is not None and known.identity != job.identity:
            for node in ("command", "source", "epochs"):
                self._delete(f"/jobs/{job.name}/{node}")

    def forget(self, job: str) -> None:
        """Let a job be unknown: what it publishes is withdrawn, and nobody hears of it any more.

        Raises:
            PipelineError: there is none of that name, or it runs.
        """
        known = self.job(job)
        if self.is_alive(job):
            raise PipelineError(f"job {job} runs, in {known.home}: stop it first, with `tidelock stop`")
        for subject in known.publishes:
            self.withdraw(subject, job)
        self._delete(f"/jobs/{job}")

    def is_alive(self, job: str) -> bool:
        """Whether a process runs ``job`` now."""
        return bool(self._children(f"/jobs/{job}/runs")) or self._has_older_release(job)

    # -- alignment

    def command(self, job: str) -> tuple[Heard | None, int]:
        """The newest command for ``job`` and its version in the tree (-1 if there is none)."""
        path = f"/jobs/{job}/command"
        node = self._tree.find(path)
        if node is None:
            return None, -1
        try:
            return from_fields(_parsed(path, node.data)), node.version
        except LogCorrupt as damage:
            return Unknown(0, str(damage)), node.version

    def give(self, job: str, command: Command, version: int) -> bool:
        """Give a command, if the newest one is still that of ``version``; False if somebody else was faster."""
        path, data = f"/jobs/{job}/command", json.dumps(to_fields(command)).encode()
        try:
            if version < 0:
                self._tree.create(path, data, make_parents=True)
            else:
                self._tree.set(path, data, version=version)
        except (NodeExists, BadVersion):
            return False
        return True

    def report(self, job: str, source: Source) -> None:
        """Say how the alignment of ``job`` is."""
        self._write(f"/jobs/{job}/source", source.to_document())

    def reported(self, job: str, subjects: Sequence[str]) -> Source:
        """What ``job`` has said of its alignment last; unaligned if it has said nothing yet."""
        fields = self._read(f"/jobs/{job}/source")
        return Source.of(subjects) if fields is None else Source.from_document(fields, subjects)

    def keep_epochs(self, job: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Say which epochs of ``job`` took which epochs of its subjects: all that is to be remembered."""
        self._write(f"/jobs/{job}/epochs", {"rows": list(rows)})

    def epochs(self, job: str) -> list[dict[str, Any]]:
        """What `keep_epochs` has kept."""
        fields = self._read(f"/jobs/{job}/epochs")
        return [] if fields is None else list(fields["rows"])

    # -- nodes

    def _children(self, path: str) -> list[str]:
        try:
            return self._tree.children(path)
        except NoNode:
            return []

    def _read(self, path: str) -> dict[str, Any] | None:
        node = self._tree.find(path)
        return _parsed(path, node.data) if node is not None and node.data else None

    def _write(self, path: str, fields: Mapping[str, Any]) -> None:
        data = json.dumps(fields).encode()
        try:
            self._tree.create(path, data, make_parents=True)
        except NodeExists:
            if self._tree.get(path).data != data:
                self._tree.set(path, data)

    def _put_back_job(self, job: str, known: Job | None) -> None:
        if known is not None:
            self._write(f"/jobs/{job}", known.to_fields())
        else:
            self._tree.set(f"/jobs/{job}", b"")

    def _drop_unknown(self, job: str) -> None:
        """Remove the node of a job that nobody knows; not all at once: one that comes at this moment stays."""
        path = f"/jobs/{job}"
        if self._read(path) is None:
            for empty in (f"{path}/runs", path):
                with suppress(NoNode, NotEmpty):
                    self._tree.delete(empty)

    def _put_back(self, path: str, fields: Mapping[str, Any] | None) -> None:
        if fields is None:
            self._delete(path)
        else:
            self._write(path, fields)

    def _delete(self, path: str) -> None:
        try:
            self._tree.delete(path, recursive=True)
        except NoNode:
            return


def _parsed(path: str, data: bytes) -> dict[str, Any]:
    """The document of a node.

    Raises:
        LogCorrupt: it is none.
    """
    try:
        return dict(json.loads(data))
    except (ValueError, TypeError) as error:
        raise LogCorrupt(
            f"the shared tree is damaged: what is at {path} is no document ({error}). Stop the jobs that use it "
            "and remove that node, or begin with an empty tree"
        ) from error


def _are_one(subject: Subject, known: Mapping[str, Any]) -> bool:
    """Whether another producer shares ``subject``."""
    return subject.shared and bool(known["shared"]) and found(str(known["endpoint"])) == taken(subject.endpoint)


def _job(name: str, fields: Mapping[str, Any]) -> Job:
    return Job(
        name,
        fields["home"],
        fields["identity"],
        fields["follows"],
        tuple(fields["publishes"]),
        tuple(fields["segments"]),
        fields.get("one_by_one"),
    )
