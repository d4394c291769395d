"""What a job follows and publishes, and where that is found: in the home of another job, or in the shared tree."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tidelock.alignment.directory import Directory
from tidelock.coordination import open_tree
from tidelock.credentials import taken
from tidelock.errors import PipelineError
from tidelock.home.home import Home
from tidelock.log import EpochLog, Retention

COORDINATOR = "TIDELOCK_COORDINATOR"
"""The environment variable that says where the shared tree is, for jobs that were not told."""


def default_coordinator() -> str:
    """Where the shared tree is if nobody says it: in a file of this user, for the jobs of this machine."""
    if COORDINATOR in os.environ:
        return taken(os.environ[COORDINATOR])
    state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    (state / "tidelock").mkdir(parents=True, exist_ok=True)
    return f"embedded:{state}/tidelock/tree.db"


@contextmanager
def directory(coordinator: str | None) -> Iterator[Directory]:
    """The directory of jobs and subjects, for some questions."""
    with open_tree(coordinator or default_coordinator()) as tree:
        yield Directory(tree)


@dataclass(frozen=True)
class Subscription:
    """A source that follows a subject.

    Attributes:
        subject: Its public name.
        home: The home of the job that publishes it; None if it is looked up in the shared tree.
        consumer: The name of the cursor on its log.
        aligned: Whether a new job takes it epoch by epoch from the beginning.
    """

    subject: str
    home: str | None
    consumer: str
    aligned: bool = False

    def log(self, coordinator: str | None) -> str:
        """The URL of the subject's log.

        Raises:
            PipelineError: nobody has published it.
            LogNotFound: its log is not there any more.
        """
        if self.home is not None:
            return EpochLog.open(self.recorded_log(self.home)).url
        with directory(coordinator) as known:
            return EpochLog.open(known.subject(self.subject).endpoint).url

    def recorded_log(self, home: str) -> str:
        """The URL of the subject's log, as the home of the job that publishes it has it; nothing is opened.

        Raises:
            PipelineError: nothing has run there, or it does not publish the subject.
        """
        record = Home(home).known()
        if self.subject not in record.subjects:
            known = ", ".join(record.subjects) or "nothing"
            raise PipelineError(
                f"job {record.pipeline} in {home} does not publish {self.subject}: it publishes {known}"
            )
        return record.subjects[self.subject]


@dataclass(frozen=True)
class Publication:
    """A node whose log has a public name.

    Attributes:
        subject: The name.
        retention: What the subject keeps although nobody may have read it yet.
        shared: The URL of the subject's own log, if several jobs produce it.
        producers: How many of them there have to be before its first epoch.
    """

    subject: str
    retention: Retention
    shared: str | None = None
    producers: int = 1
