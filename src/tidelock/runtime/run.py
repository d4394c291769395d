"""One run of a pipeline: from taking its home to leaving it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from tidelock.epochs import Epoch
from tidelock.errors import BatchFailed, PipelineError
from tidelock.runtime.backup import Backup, release
from tidelock.runtime.caches import kept_states
from tidelock.runtime.drifting import Watch
from tidelock.runtime.events import Event, Events
from tidelock.runtime.home import Home
from tidelock.runtime.mending import mend
from tidelock.runtime.pipeline import Pipeline
from tidelock.runtime.preparing import PlanLike, prepare, settle, stored_plan
from tidelock.runtime.replanning_finish import finish
from tidelock.runtime.status import running_status
from tidelock.runtime.supervisor import Supervisor
from tidelock.runtime.talking import Talking
from tidelock.spark.frames import SparkSession
from tidelock.spark.session import with_retries

_STATUS_EVERY = 0.5
_COMPARE_EVERY = 5.0
_BACKUP_PAUSE = 0.5


class Run:
    """A pipeline that runs in this process, in threads of its own. Made by `Pipeline.start`."""

    def __init__(
        self,
        pipeline: Pipeline,
        spark: SparkSession,
        home: Home,
        *,
        plan: PlanLike = None,
        backup: str | None = None,
        last_epoch: int | None = None,
        listener: Callable[[Event], None] | None = None,
    ) -> None:
        if last_epoch is not None and last_epoch < 0:
            raise PipelineError(f"the last epoch is {last_epoch}: it must be at least 0")
        self.home = home = home.as_recorded()
        pipeline.coordinator = home.coordinator
        self._held = ExitStack()
        self._held.enter_context(home.held())
        home.drop_document("status")
        try:
            finish(home)
            if backup is None and home.record() is not None:
                release(home)
            self._events = Events(home, listener)
            resumed = self._mend()
            stored = stored_plan(home, pipeline.topology())
            chosen = plan if plan is not None else stored
            self.prepared = prepare(pipeline, spark, chosen)
            segments = settle(self.prepared, home, spark, asked=plan is not None, events=self._events)
            last = None if last_epoch is None else Epoch(last_epoch)
            self._talking = Talking.of(pipeline, segments, home, self._events, last)
            self._held.callback(self._talking.close)
            self._supervisor = Supervisor(
                segments, home, pipeline.care, self._events, last_epoch=last, stopping=self._talking.closing
            )
        except BaseException:
            self._held.close()
            raise
        self._began = time.time()
        self._written = self._compared = 0.0
        self._watch = Watch.of(self.prepared, home)
        self._drift: dict[str, Any] | None = None
        home.drop_document("request")
        kind = "run resumed" if resumed else "run started"
        self._events.add(kind, None, f"{pipeline.name}, {len(self.prepared.cutting.segments)} segments")
        master = str(spark.sparkContext.master)
        if with_retries(master) != master:
            text = "this session does not retry tasks: make it with tidelock.session, or for local[N,4]"
            self._events.add("no task retries", None, text)
        self._failure: BaseException | None = None
        self._backup = None if backup is None else Backup(home, backup)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"tidelock {pipeline.name}", daemon=True)
        self._thread.start()

    def _mend(self) -> bool:
        """See that the logs fit to the checkpoints, or make them; whether something has run here before."""
        record = self.home.record()
        if record is not None:
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

    def status(self) -> dict[str, Any]:
        """How it is doing, as `tidelock status --json` tells it."""
        return {**running_status(self._supervisor, self._events, self._began), "drift": self._drift}

    # -- inside

    def _run(self) -> None:
        copying = self._start_backup()
        self._talking.start()
        try:
            self._supervisor.run(self._look)
        except BaseException as failure:
            self._failure = failure
        finally:
            self._ended.set()
            self._talking.end()
            if copying is not None:
                copying.join()
            self._finish()
            self._held.close()

    def _start_backup(self) -> threading.Thread | None:
        backup = self._backup
        if backup is None:
            return None

        def report(error: Exception) -> None:
            self._events.add("backup failed", None, str(error))

        copying = threading.Thread(
            target=lambda: backup.run_until(self._ended, _BACKUP_PAUSE, report),
            name="tidelock backup",
            daemon=True,
        )
        copying.start()
        return copying

    def _finish(self) -> None:
        state = "failed" if self._failure or self._supervisor.machine.gave_up else "stopped"
        positions = {s.name: self._supervisor.machine.epoch(s.name) for s in self._supervisor.record.segments}
        where = ", ".join(f"{name} at epoch {epoch}" for name, epoch in positions.items())
        self._events.add("run ended", None, f"{state}: {where}")
        self._compare()
        self.home.put_document("status", {**self.status(), "state": state})

    def _compare(self) -> None:
        self._compared = time.monotonic()
        if self._watch is not None:
            self._drift = self._watch.look(self._supervisor)

    def _look(self) -> None:
        if time.monotonic() - self._written < _STATUS_EVERY:
            return
        self._written = time.monotonic()
        if self._written - self._compared > _COMPARE_EVERY:
            self._compare()
        self.home.put_document("status", self.status())
        request = self.home.document("request")
        if request is not None:
            self.home.drop_document("request")
            self.stop(drain=bool(request.get("drain", True)))
