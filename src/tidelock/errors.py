"""Every error that Tidelock raises, as one tree; the branches say who must act.

    TidelockError
    ├── PipelineError             the user: a declaration, an option or a call is wrong
    │   ├── SchemaMismatch        ... the columns do not fit the log
    │   ├── LogNotFound           ... there is no log at that URL yet
    │   └── UnsupportedFormat     ... the log was written by a newer Tidelock: upgrade
    ├── PlanError                 the user: no plan fits the constraints
    ├── BatchFailed               whoever wrote what failed: a batch stopped inside Spark, the cause is told
    ├── BackendUnavailable        a retry: a store or server does not answer
    ├── LogCorrupt                stop and look: stored data is damaged or missing
    ├── Fenced                    stop now: a newer run owns what this one was writing
    └── InternalError             us: a rule of Tidelock's own was broken

A message says what happened, where (log, epoch, file), and what to do about it.

Which branch an error is of decides what is done about it, also when it was raised in another process: see
`tidelock.error_notes`.
"""

from __future__ import annotations

import json
from typing import ClassVar

__all__ = [
    "BackendUnavailable",
    "BatchFailed",
    "Fenced",
    "InternalError",
    "LogCorrupt",
    "LogNotFound",
    "PipelineError",
    "PlanError",
    "SchemaMismatch",
    "TidelockError",
    "UnsupportedFormat",
    "branch",
]


class TidelockError(Exception):
    """The root of every error that Tidelock raises on purpose."""

    word: ClassVar[str | None] = None
    """With what errors of this process are marked as soon as they are made."""

    def __init__(self, *args: object) -> None:
        super().__init__(*args)
        if self.word is not None:
            self.mark(self.word)

    def mark(self, word: str) -> None:
        """Add a note that says what this is, for somebody who knows the word. Idempotent."""
        kind = branch(type(self))
        said = f"{type(self).__name__}: {Exception.__str__(self)}".partition("\n")[0]
        note = f"[tidelock {word}] {json.dumps([kind.__name__, said])}"
        # On those two nobody acts by their type.
        if kind not in (TidelockError, BatchFailed) and note not in getattr(self, "__notes__", ()):
            self.add_note(note)


class PipelineError(TidelockError):
    """The user declared or asked for something that cannot work."""


class SchemaMismatch(PipelineError):
    """The columns of a DataFrame do not fit the columns of a log."""


class LogNotFound(PipelineError):
    """There is no epoch log at the given URL."""


class UnsupportedFormat(PipelineError):
    """Stored data has a format version that this release does not know."""


class PlanError(TidelockError):
    """No plan satisfies the constraints, or the plan does not fit the pipeline."""


class BatchFailed(TidelockError):
    """A batch could not be computed: the operators' code, or Spark itself, raised something."""


class BackendUnavailable(TidelockError):
    """A store or a server did not answer; nothing was changed and a retry may help."""


class LogCorrupt(TidelockError):
    """Stored data is damaged or missing; a person has to look at it."""


class Fenced(TidelockError):
    """A newer run owns the log; this run must stop and write nothing more."""


class InternalError(TidelockError):
    """One of Tidelock's own rules was broken: a defect of Tidelock."""


def branch(error: type[TidelockError]) -> type[TidelockError]:
    """The class of this module that says who must act on an error, also on one of a type of others.

    >>> class Away(BackendUnavailable): ...
    >>> branch(Away).__name__
    'BackendUnavailable'
    """
    return next(above for above in error.__mro__ if above.__module__ == __name__)
