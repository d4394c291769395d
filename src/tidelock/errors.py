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
"""

from __future__ import annotations

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
]


class TidelockError(Exception):
    """The root of every error that Tidelock raises on purpose."""


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
