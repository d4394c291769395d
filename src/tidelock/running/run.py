"""One run of a pipeline: from taking its home to leaving it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from tidelock.backup.backup import Backup, release
from tidelock.caching.caches import kept_states
from tidelock.epochs import Epoch
from tidelock.errands import all_end
from tidelock.errors import BackendUnavailable, BatchFailed, PipelineError
from tidelock.home.events import Events, RunEvent, Trouble
from tidelock.home.home import Home
from tidelock.home.status import Status
from tidelock.intervals import interval_seconds
from tidelock.mending.checkpoints import mend_checkpoints
from tidelock.mending.mending import mend
from tidelock.pipeline.declaration import Declaration
from tidelock.placing import has_no_room
from tidelock.preparing.preparation import PlanLike, prepare, settle, stored_plan
from tidelock.replanning.finish import finish
from tidelock.running.draining import Draining
from tidelock.running.drifting import DriftWatch
from tidelock.running.lookout import Lookout, RepeatedTask
from tidelock.running.neighbours.threads import NeighbourThreads
from tidelock.running.pacing import BatchPace
from tidelock.running.ports.spark import world_of
from tidelock.running.status import running_status
from tidelock.running.supervisor import Supervisor
from tidelock.spark.checkpoint.checkpoint import Checkpoint
from tidelock.spark.checkpoint.formats import check_settings
from tidelock.spark.frames import SparkSession
from tidelock.spark.processes.session import PARTITIONS, partitions_warning, with_retries
from tidelock.spark.segments.segment_queries import SegmentQueries

_STATUS_EVERY = 0.5
_COMPARE_EVERY = 5.0
_BACKUP_PAUSE = 0.5
_LAST_COPY = 30.0
_LAST_TALK = 30.0
_LAST_LOOK = 10.0


class Run:
    """A pipeline that runs in this process, in threads of its own. Made by `Pipeline.start`.

    Any thread may call what is public. The rest belongs to the one thread of the run, up to what shows how it is
    doing: one more thread looks at the logs and at the plan, and one writes the status and takes what is asked of
    the run. What they and `status` have of each other are values, replaced as a whole.
    """

    def __init__(
        self,
        pipeline: Declaration,
        spark: SparkSession,
        home: Home,
        *,
        plan: PlanLike = None,
        backup: str | None = None,
        last_epoch: int | None = None,
        accept_changes: bool = False,
        available_now: bool = False,
        listener: Callable[[RunEvent], None] | None = None,
    ) -> None:
        if last_epoch is not None and last_epoch < 0:
            raise PipelineError(f"the last epoch is {last_epoch}: it must be at least 0")
        check_settings(spark.conf.get)
        self.home = home = home.as_recorded()
        last = None if last_epoch is None else Epoch(last_epoch)
        self._held = ExitStack()
        try:
            self._held.enter_context(home.held())
            self._events = Events(home, listener)
            resumed = self._finish_what_was_cut_off(copied=backup is not None)
            segments = self._settle(pipeline, spark, plan, accept_changes=accept_changes)
            self._neighbours = NeighbourThreads.of(pipeline, segments, home, self._events, last)
            self._held.callback(self._neighbours.close)
            self._supervisor = Supervisor(
                segments.cutting,
                segments.functions,
                world_of(segments, home),
                home,
                pipeline.run_settings,
                self._events,
                last_epoch=last,
                drain=Draining(segments, home) if available_now else None,
                stopping=self._neighbours.closing,
            )
            self._began = time.time()
            self._prepare_to_show(pipeline, in_time=not available_now)
            self._backup = None if backup is None else Backup(home, backup)
            home.drop_document("request")
            self._tell_how_it_begins(pipeline, spark, resumed=resumed)
            self._failure: BaseException | None = None
            self._outcome: str | None = None
            self._left = threading.Event()
            self._ended = threading.Event()
            self._thread = threading.Thread(target=self._run, name=f"tidelock {pipeline.name}", daemon=True)
            self._thread.start()
        except BaseException as failure:
            self._held.close()
            if isinstance(failure, OSError) and has_no_room(failure):
                raise BackendUnavailable(
                    f"{home.root} has no room, so the pipeline cannot be started ({failure}): make some and start "
                    "it again, it goes on where it was"
                ) from failure
            raise

    def _warn_of_partitions(self, spark: SparkSession) -> None:
        """Tell if every batch is going to run far more tasks than there are cores."""
        described, cutting = self.prepared.described, self.prepared.cutting
        stateful = {name for name, found in described.items() if found.traits.stateful and not found.traits.cached}
        names = [segment.name for segment in cutting.segments if stateful.intersection(segment.operators)]
        if not names:
            return
        kept = [Checkpoint(None, self.home.checkpoint(name)).shuffle_partitions() for name in names]
        known = max((number for number in kept if number is not None), default=None)
        asked = int(str(spark.conf.get(PARTITIONS))) if known is None else known
        cores = spark.sparkContext.defaultParallelism
        warning = partitions_warning(asked, cores, kept=known is not None)
        if warning is not None:
            self._events.add("many partitions", None, warning)

    # -- the steps of a start, in their order

    def _finish_what_was_cut_off(self, *, copied: bool) -> bool:
        """Bring the home to a state that fits together; whether something has run here before."""
        self.home.drop_document("status")
        finish(self.home)
        if not copied and self.home.record() is not None:
            release(self.home)
        return self._mend()

    def _settle(
        self, pipeline: Declaration, spark: SparkSession, plan: PlanLike, *, accept_changes: bool
    ) -> SegmentQueries:
        """Cut the pipeline by the plan that was asked for, or that the home has, and write that down."""
        chosen = plan if plan is not None else stored_plan(self.home, pipeline.topology())
        self.prepared = prepare(pipeline, spark, chosen, self.home.coordinator)
        return settle(
            self.prepared,
            self.home,
            spark,
            asked=plan is not None,
            events=self._events,
            accept_changes=accept_changes,
        )

    def _prepare_to_show(self, pipeline: Declaration, *, in_time: bool) -> None:
        """Make what watches the run beside it; ``in_time``: epochs are due at the pipeline's interval."""
        self._compared = 0.0
        self._drift: dict[str, Any] | None = None
        self._watch = DriftWatch.of(self.prepared, self.home)
        epoch = interval_seconds(pipeline.epoch)
        due = {s.name: epoch * s.epochs_per_batch for s in self.prepared.cutting.segments}
        self._pace = BatchPace(due) if in_time else None  # what is there is taken as fast as it goes
        self._lookout = Lookout(self._supervisor)
        self._unseen = Trouble(self._events, "status failed", "status recovered")
        self._unshown = Trouble(self._events, "status failed", "status recovered")
        self._looking = RepeatedTask("tidelock looking", self._look, _STATUS_EVERY)
        self._showing = RepeatedTask("tidelock status", self._show, _STATUS_EVERY)

    def _tell_how_it_begins(self, pipeline: Declaration, spark: SparkSession, *, resumed: bool) -> None:
        kind = "run resumed" if resumed else "run started"
        self._events.add(kind, None, f"{pipeline.name}, {len(self.prepared.cutting.segments)} segments")
        master = str(spark.sparkContext.master)
        if with_retries(master) != master:
            text = "this session does not retry tasks: make it with tidelock.session, or for local[N,4]"
            self._events.add("no task retries", None, text)
        self._warn_of_partitions(spark)

    def _mend(self) -> bool:
        """See that the logs fit to the checkpoints, or make them; whether something has run here before."""
        record = self.home.record()
        if record is not None:
            for removed in mend_checkpoints(self.home, record):
                self._events.add("torn file removed", removed.segment, str(removed))
            kept = kept_states(self.home, record)
            mend(
                self.home,
                record,
                safe=kept.epochs,
                cached=kept.cached,
                tell=lambda mended: self._events.add(mended.kind, None, str(mended)),
            )
        return record is not None

    # -- for the user

    def stop(self, *, drain: bool = True) -> None:
        """Ask it to stop at the boundary of an epoch; with ``drain`` all segments finish what is in their logs."""
        self._supervisor.stop(drain=drain)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it has ended; False if ``timeout`` seconds were not enough.

        Raises:
            BatchFailed: it was given up; the message has the story.
        """
        self._thread.join(timeout)
        if self._thread.is_alive():
            return False
        if self._failure is not None:
            raise self._failure
        if self._supervisor.machine.gave_up is not None:
            segment, story = self._supervisor.machine.gave_up
            raise BatchFailed(
                f"pipeline {self._supervisor.record.pipeline}: segment {segment} was given up: {story}"
            )
        return True

    def status(self) -> Status:
        """How it is doing. Any thread may ask, as often as it likes.

        No store is asked for it: of logs it has what was seen last.
        """
        record, seen = self._supervisor.record, self._lookout.seen
        status = running_status(record, seen, self._events, self._began, self._drift)
        return status if self._outcome is None else replace(status, state=self._outcome)

    @property
    def events(self) -> tuple[RunEvent, ...]:
        """The newest events, up to twenty, the oldest first. Any thread may ask; the home has all of them."""
        return self._events.newest

    # -- inside

    def _run(self) -> None:
        try:
            self._looking.start()
            self._showing.start()
            self._supervise()
        except BaseException as failure:
            self._failure = failure
        finally:
            with self._held:  # whatever else fails, the home is free afterwards
                self._finish()

    def _supervise(self) -> None:
        copying = self._start_backup()
        self._neighbours.start()
        try:
            self._supervisor.run()
        finally:
            self._ended.set()
            self._leave(copying)

    def _leave(self, copying: threading.Thread | None) -> None:
        """Wait for what is done beside the run, but not for ever: it ends with the process."""
        if not self._neighbours.end(_LAST_TALK):
            text = f"who speaks with other jobs did not end within {_LAST_TALK:g} s, and the run ends without that"
            self._events.add("alignment failed", None, text)
        if copying is not None and not all_end([copying], _LAST_COPY):
            text = f"the copy under way did not end within {_LAST_COPY:g} s, and the run ends without it"
            self._events.add("backup failed", None, text)

    def _start_backup(self) -> threading.Thread | None:
        backup = self._backup
        if backup is None:
            return None
        trouble = Trouble(self._events, "backup failed", "backup recovered")
        copying = threading.Thread(
            target=lambda: backup.run_until(
                self._ended,
                _BACKUP_PAUSE,
                trouble.met,
                lambda: trouble.over("the copy is fresh again"),
                lambda error: self._events.add("backup displaced", None, str(error)),
            ),
            name="tidelock backup",
            daemon=True,
        )
        copying.start()
        return copying

    def _finish(self) -> None:
        self._outcome = "failed" if self._failure or self._supervisor.machine.gave_up else "stopped"
        positions = {s.name: self._supervisor.machine.epoch(s.name) for s in self._supervisor.record.segments}
        where = ", ".join(f"{name} at epoch {epoch}" for name, epoch in positions.items())
        if not self._looking.end(_LAST_LOOK):
            text = f"the logs were not looked at within {_LAST_LOOK:g} s, and the run ends without that"
            self._events.add("status failed", None, text)
        self._events.add("run ended", None, f"{self._outcome}: {where}")
        self._showing.end(_LAST_LOOK)
        self._left.set()

    # -- in the threads of what shows

    def _look(self) -> None:
        """Look at the logs and, now and then, at the plan. What only shows ends nothing: a failure is told."""
        try:
            self._lookout.look()
            if self._watch is not None and (
                self._ended.is_set() or time.monotonic() - self._compared > _COMPARE_EVERY
            ):
                self._compared = time.monotonic()
                self._drift = self._watch.look(self._lookout.seen.view)
        except Exception as error:
            text = f"the logs cannot be looked at ({type(error).__name__}: {error}); the run goes on"
            self._unseen.met(error, text)
        else:
            self._unseen.over("the logs are looked at again")

    def _show(self) -> None:
        """Write down how it is doing, and hear what is asked."""
        if self._left.is_set():  # the home may be somebody else's by now
            return
        self._write()
        request = self._request()
        if request is not None:
            self.stop(drain=bool(request.get("drain", True)))

    def _request(self) -> dict[str, Any] | None:
        """What somebody asks this process to do, taken from the home."""
        try:
            request = self.home.document("request")
            if request is not None:
                self.home.drop_document("request")
        except OSError as error:
            self._events.home_fails(error)
            return None
        return request

    def _write(self) -> None:
        """Write down how it is doing; a failure is told, and it is tried again."""
        try:
            self._look_at_pace()
            self.home.put_document("status", self.status().to_json())
        except OSError as error:
            self._events.home_fails(error)
        except Exception as error:
            self._unshown.met(
                error, f"the status cannot be made ({type(error).__name__}: {error}); the run goes on"
            )
        else:
            self._events.home_works()
            self._unshown.over("the status is made again")

    def _look_at_pace(self) -> None:
        if self._pace is None:
            return
        for name, segment in self._supervisor.view.segments.items():
            gauge = segment.gauge
            said = self._pace.look(name, gauge.at, gauge.batch_seconds, waits=segment.paused)
            if said is not None:
                self._events.add("interval too short", name, said)
