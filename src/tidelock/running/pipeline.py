"""The public `Pipeline`: a declaration that can be started."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import NoReturn, TypedDict, Unpack

from tidelock.home.home import Home
from tidelock.home.log_places import LogsLike
from tidelock.home.status import Status
from tidelock.pipeline.declaration import Declaration
from tidelock.preparing.preparation import PlanLike
from tidelock.running.run import Run
from tidelock.running.signals import Signals, unclaimed
from tidelock.spark.frames import SparkSession

_LOOK_EVERY = 0.25


class RunWishes(TypedDict, total=False):
    """What may be asked of a run; `Pipeline.start` explains it."""

    log: LogsLike
    cache: str | None
    coordinator: str | None
    plan: PlanLike
    backup: str | None
    last_epoch: int | None
    accept_changes: bool
    availableNow: bool


class Pipeline(Declaration):
    """A pipeline of sources, operators and sinks.

    Args:
        name: the job's name: letters, digits, `.`, `_` and `-`.
        epoch: how often an epoch ends, as Spark writes intervals: `1 second`.
        attempts: how often the same epoch may fail before it counts as poison.
        on_poison: what happens to a poison epoch: `stop` stops the pipeline and tells why; `dead-letter` sets the
            input of that epoch aside in a log of its own and goes on.
        hang_after: after how many seconds a batch that does not end, or a query that is not up, counts as failed.
        outage_patience: for how many seconds a store or server may be away before the pipeline stops.
        max_pending_epochs: how many epochs that somebody has still to read a log may hold before its writer waits.
        max_pending_bytes: the same in bytes.
        snapshot_every: after how many epochs state that is in a cache is copied to the home. The fewer, the less
            is computed again when the cache is lost, and the more is copied.
        alignment_patience: for how many seconds a job that is aligned with subjects waits for one that is silent.
        policy: all about failures and outages at once, instead of ``attempts``, ``on_poison`` and
            ``outage_patience``; it also has the delays between attempts.
    """

    def start(
        self,
        spark: SparkSession,
        home: str | Path,
        *,
        log: LogsLike = None,
        cache: str | None = None,
        coordinator: str | None = None,
        plan: PlanLike = None,
        backup: str | None = None,
        last_epoch: int | None = None,
        accept_changes: bool = False,
        availableNow: bool = False,
    ) -> Run:
        """Start the pipeline in its home, or go on where it was. Returns at once.

        Args:
            spark: a session; `tidelock.session` makes a fitting one.
            home: the directory that keeps its state; one home, one pipeline.
            log: the URL below which its logs are kept, or such a URL for single sources and operators, with `*`
                for the others; the directory ``logs`` of the home if nothing is said.
            cache: the URL under which operators made with `tidelock.keyed` keep their state. A home remembers it.
            coordinator: the URL of the shared tree through which jobs find each other's subjects:
                `embedded:/path/tree.db` or `zookeeper://host:2181/path`. A home remembers it.
            plan: `one` (only the cuts that Spark forces), `each` (a segment for every operator), a plan's document
                or the path of one. A home that has run keeps its plan.
            backup: the URL to which checkpoints and logs are copied while it runs.
            last_epoch: stop by itself when this epoch has gone through everywhere.
            accept_changes: go on also if operators that keep state have changed since the last run. Their state
                was made by the old code; whether it fits is for you to know.
            availableNow: as Spark's trigger of that name: take what is there when it starts, and stop by itself
                when that has gone through everywhere, with all that its last watermark closes.

        Raises:
            PipelineError: the pipeline cannot be, another process runs in this home, or an operator that keeps
                state is not the one that has made it.
            PlanError: the plan does not fit.
        """
        place = Home(home, log, cache, coordinator)
        return Run(
            self,
            spark,
            place,
            plan=plan,
            backup=backup,
            last_epoch=last_epoch,
            accept_changes=accept_changes,
            available_now=availableNow,
        )

    def run(self, spark: SparkSession, home: str | Path, **more: Unpack[RunWishes]) -> Status:
        """Run the pipeline until it is stopped; the arguments are those of `start`. Returns its last status.

        In the main thread it listens to the signals that the program has left alone. Ctrl-C stops it when all logs
        are read, twice at the next epoch, a third time is an interrupt as in any program. SIGTERM stops it at the
        next epoch and then ends the program.

        Raises:
            BatchFailed: a segment was given up; the message has the story.
            SystemExit: SIGTERM has come, and the pipeline has stopped.
        """
        started = self.start(spark, home, **more)
        with Signals(_interrupt, heard=unclaimed()) as signals:
            while not started.wait(_LOOK_EVERY):
                drain = signals.news()
                if drain is not None:
                    started.stop(drain=drain)
        if signals.terminated:
            raise SystemExit(128 + signal.SIGTERM)
        return started.status()


def _interrupt(code: int) -> NoReturn:
    raise KeyboardInterrupt
