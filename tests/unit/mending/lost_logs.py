"""Ways in which the logs of a job without Spark get lost, and how the job is started again."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.unit.backup.backup_job import COLUMNS, INPUTS, Job

from tidelock.epochs import Epoch
from tidelock.home.home import Home
from tidelock.home.identities import known_identities
from tidelock.log import EpochLog, Retention, open_store


def lose(job: Job, node: str) -> None:
    """Everything is gone."""
    shutil.rmtree(Path(job.home.root) / "logs" / node)


def lose_entries(job: Job, node: str, first: int, last: int) -> None:
    """The entries of these epochs are gone."""
    for entry in (job.home.root / "logs" / node / "entries").glob("*.json"):
        if first <= int(entry.name[:12]) <= last:
            entry.unlink()


def tail(job: Job, node: str) -> int:
    return max((covers.last for covers in open_store(job.home.log(node)).ranges()), default=-1)


def started_again(home: Home) -> Job:
    """The job as a run would start it: lost logs are made anew under their old identities."""
    identities = known_identities(home)
    for node in ("words", "counts"):
        readers = frozenset(segment for segment, inputs in INPUTS.items() if node in inputs)
        EpochLog.create(
            home.log(node),
            COLUMNS,
            name=node,
            retention=Retention(wait_for=readers),
            identity=identities.get(node),
        )
    return Job(home)


def positions(job: Job) -> dict[str, Epoch]:
    return {segment: job.position(segment) for segment in INPUTS}


def contents(home: Home) -> dict[str, bytes]:
    """Everything in a home that a run would notice."""
    return {
        str(file.relative_to(home.root)): file.read_bytes()
        for file in sorted(home.root.rglob("*"))
        if file.is_file() and file.name not in ("lock", "lease.json")
    }
