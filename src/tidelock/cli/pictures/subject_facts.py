"""What there is to know about subjects from outside, as plain values: for people and for machines."""

from __future__ import annotations

from typing import Any

from tidelock.alignment.combining import standing
from tidelock.alignment.directory import Directory, Job, Subject
from tidelock.cli.pictures.log_facts import log_facts, type_name
from tidelock.epochs import BEFORE_FIRST, Epoch
from tidelock.errors import LogNotFound
from tidelock.following.merging import MOST
from tidelock.log import EpochLog
from tidelock.urls import masked

Facts = dict[str, Any]

COMMITTED = "committed"
PRE_COMMITTED = "pre-committed"


def subjects_facts(known: Directory) -> list[Facts]:
    """All subjects, a few facts of each."""
    jobs = known.jobs()
    return [_brief(known, subject, jobs) for subject in known.subjects()]


def _brief(known: Directory, subject: Subject, jobs: dict[str, Job]) -> Facts:
    log = _opened(subject.endpoint)
    ranges = log.ranges() if log else []
    return {
        "subject": subject.name,
        "endpoint": masked(subject.endpoint),
        "columns": _columns(subject),
        "newest": ranges[-1].last if ranges else None,
        "oldest": ranges[0].first if ranges else None,
        "producers": sorted(known.producers(subject.name)),
        "consumers": sorted(job.name for job in jobs.values() if subject.name in job.follows),
    }


def subject_facts(known: Directory, name: str, last: int) -> Facts:
    """One subject: its epochs, who produces and who follows it, and which of their epochs belong together.

    Raises:
        PipelineError: there is no such subject.
        LogNotFound: its log is gone.
    """
    subject, jobs = known.subject(name), known.jobs()
    log = EpochLog.open(subject.endpoint)
    consumers = [_consumer(known, log, job, name) for job in jobs.values() if name in job.follows]
    facts = log_facts(log, last)
    mapping = {fact["job"]: fact.pop("mapping") for fact in consumers}
    epochs = [
        {
            "epoch": entry["epochs"],
            "state": COMMITTED,
            "rows": entry["rows"],
            "published_at": entry["published_at"],
            "made_from": [{"log": source["log"], "epochs": source["epochs"]} for source in entry["inputs"]],
            "taken_by": {job: _taken(entry["epochs"], rows) for job, rows in mapping.items()},
        }
        for entry in facts["last"]
    ]
    return {
        **_brief(known, subject, jobs),
        "shared": subject.shared,
        "producers": [_producer(known, job, url) for job, url in sorted(known.producers(name).items())],
        "consumers": consumers,
        "epochs": epochs + (_open_epoch(known, subject, log) if subject.shared else []),
    }


def _producer(known: Directory, job: str, url: str) -> Facts:
    log = _opened(url)
    ranges = log.ranges() if log else []
    return {
        "job": job,
        "alive": known.is_alive(job),
        "log": masked(url),
        "newest": ranges[-1].last if ranges else None,
    }


def _consumer(known: Directory, log: EpochLog, job: Job, subject: str) -> Facts:
    source = known.reported(job.name, list(job.follows))
    cursor = log.cursor(job.follows[subject])
    newest = log.tail()
    rows = [row for row in known.epochs(job.name) if subject in row["taken"]]
    return {
        "job": job.name,
        "alive": known.is_alive(job.name),
        "state": source.consumers[subject].state.value,
        "epoch": cursor,
        "lag": max(0, newest - (BEFORE_FIRST if cursor is None else cursor)),
        "epochs_per_batch": 1 if job.one_by_one else MOST,
        "one_by_one": job.one_by_one,
        "mapping": [(row["taken"][subject], row["epoch"]) for row in rows],
    }


def _taken(epochs: list[int], rows: list[tuple[list[int], list[int]]]) -> list[int] | None:
    """The epoch of a job that took these epochs of the subject, if it is remembered."""
    return next((own for (first, last), own in rows if first <= epochs[0] and epochs[1] <= last), None)


def _open_epoch(known: Directory, subject: Subject, log: EpochLog) -> list[Facts]:
    """The next epoch of a shared subject, as far as its producers have their parts ready."""
    now = standing(log)
    parts = []
    for job, url in sorted(known.producers(subject.name).items()):
        own = _opened(url)
        ranges = own.ranges() if own else []
        done = now.at.get(own.header.id, BEFORE_FIRST) if own else BEFORE_FIRST
        ready = [covers for covers in ranges if covers.last > done]
        parts.append({"log": job, "epochs": [ready[0].first, ready[-1].last] if ready else None})
    if not any(part["epochs"] for part in parts):
        return []
    epoch = Epoch(now.epoch + 1)
    blank: Facts = {"rows": None, "published_at": None, "taken_by": {}}
    return [{"epoch": [epoch, epoch], "state": PRE_COMMITTED, "made_from": parts, **blank}]


def _columns(subject: Subject) -> list[Facts]:
    return [{"name": field["name"], "type": type_name(field["type"])} for field in subject.schema["fields"]]


def _opened(url: str) -> EpochLog | None:
    try:
        return EpochLog.open(url)
    except LogNotFound:
        return None
