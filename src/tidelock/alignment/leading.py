"""The leader: it takes a job from unaligned to aligned, or back, by commands in the shared tree.

It keeps nothing. Every look at the tree says what the job has reported and what the newest command is, and
`next_command` what follows from that. So it may die at any moment, two of them may be at work, and whoever comes
next goes on from there; the job is never in a state that needs one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from tidelock.alignment.directory import Directory, Job
from tidelock.alignment.machine import (
    Abort,
    Align,
    AlignmentState,
    CatchUp,
    Command,
    Heard,
    Source,
    Unknown,
    next_command,
)
from tidelock.epochs import Epoch
from tidelock.errors import PipelineError
from tidelock.log import EpochLog

_LOOK_EVERY = 0.1


class Leader:
    """Leads one job.

    Args:
        known: the directory.
        job: the name of the job.
        look: is called with what the job has reported, again and again.
    """

    def __init__(self, known: Directory, job: str, look: Callable[[Source], None] = lambda source: None) -> None:
        self._known = known
        self.job: Job = known.job(job)
        self._look = look

    def align(self, subjects: Sequence[str], timeout: float) -> Source:
        """Have the job aligned with exactly these subjects, or all that it follows if none is named.

        Returns what the job has reported last: it is not aligned if ``timeout`` seconds were not enough.

        Raises:
            PipelineError: the job does not follow one of them, or cannot be aligned.
        """
        wanted = self._wanted(subjects)
        self.job.check_can_align()
        return self._until(
            lambda source: source.state is AlignmentState.ALIGNED and source.aligned.keys() == set(wanted),
            lambda source, newest: self._lead(wanted, source, newest),
            timeout,
        )

    def abort(self, timeout: float) -> Source:
        """Have the job unaligned; as `align`."""
        return self._until(
            lambda source: source.state is AlignmentState.UNALIGNED and not source.aligned,
            lambda source, newest: None if isinstance(newest, Abort) else Abort(0),
            timeout,
        )

    def _wanted(self, subjects: Sequence[str]) -> list[str]:
        follows = list(self.job.follows)
        if not follows:
            raise PipelineError(f"job {self.job.name} follows no subject, so there is nothing to align it with")
        unknown = [name for name in subjects if name not in follows]
        if unknown:
            raise PipelineError(
                f"job {self.job.name} does not follow {', '.join(unknown)}: it follows {', '.join(follows)}"
            )
        return list(subjects) or follows

    def _until(
        self,
        done: Callable[[Source], bool],
        lead: Callable[[Source, Heard | None], Command | None],
        timeout: float,
    ) -> Source:
        """Give commands until the job is where it shall be; ``lead`` gets the command that was not obeyed yet."""
        deadline = time.monotonic() + timeout
        while True:
            source = self._known.reported(self.job.name, list(self.job.follows))
            newest, version = self._known.command(self.job.name)
            self._look(source)
            open_ = newest if newest is not None and newest.number > source.number else None
            if (open_ is None and done(source)) or time.monotonic() >= deadline:
                return source
            command = lead(source, open_)
            if command is not None:
                number = max(source.number, newest.number if newest else 0) + 1
                self._known.give(self.job.name, replace(command, number=number), version)
            time.sleep(_LOOK_EVERY)

    def _lead(self, wanted: Sequence[str], source: Source, newest: Heard | None) -> Command | None:
        if newest is not None and _concerns(newest) == set(wanted):
            return None  # it has not been heard yet
        command = next_command(wanted, source, {name: self._tail(name) for name in wanted})
        return CatchUp(0, tuple(wanted)) if command is None and newest is not None else command

    def _tail(self, subject: str) -> Epoch:
        return EpochLog.open(self._known.subject(subject).endpoint).tail()


def _concerns(command: Heard) -> set[str]:
    match command:
        case CatchUp(_, subjects):
            return set(subjects)
        case Align(_, start):
            return set(start)
        case Abort() | Unknown():
            return set()
