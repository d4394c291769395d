"""The demo itself: run the pipeline, kill a segment, kill the process, run it again, compare.

The story knows the pipeline only by its home, its database and its process id, as an operator would. Whatever ends
it, every process that it started is gone when it returns.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

from tidelock.cli.demo.children import Child, ChildFailed
from tidelock.cli.demo.deliveries import delivered
from tidelock.cli.demo.progress import DemoEvent, DemoSegment, DemoView, DemoWatch
from tidelock.cli.demo.proof import prove
from tidelock.cli.demo.settings import Settings
from tidelock.cli.pictures.segment_table import shortened
from tidelock.home.home import Home

PIPELINE = Path(__file__).with_name("trending.py")
"""The file that declares the pipeline."""
_SEGMENTS = (("tweets", "words", "wanted"), ("counts",), ("top", "store"))
_VICTIM = "counts"
_ATTEMPTS = 4
"""How often Spark tries a task before it gives up on the query."""
_CORES = 2
_LOOK_EVERY = 0.25
_PATIENCE = 240.0
"""Seconds without a new epoch or event after which the demo gives up."""
_LONGEST_TEXT = 100


class DemoScreen(Protocol):
    """Where the story is told while it happens."""

    def show(self, view: DemoView) -> None:
        """Show how things are now."""

    def tell(self, event: DemoEvent) -> None:
        """Show that something happened."""


class DemoStory:
    """One run of the demo."""

    def __init__(self, settings: Settings, screen: DemoScreen) -> None:
        self._settings = settings
        self._screen = screen
        self._home = Home(settings.home)
        self._watch = DemoWatch(self._home)
        self._view = DemoView(settings.epochs, [DemoSegment(names[-1], names) for names in _SEGMENTS])
        self._head, self._victim = self._view.segments[0], self._view.segment(_VICTIM)
        self._began = self._child_began = time.time()
        self._child: Child | None = None
        self._news: dict[tuple[str, str | None], float] = {}
        self._delivered = 0

    def run(self) -> dict[str, Any]:
        """Tell the whole story; the answer has what was done and whether the result is right.

        Raises:
            ChildFailed: the process died although nobody had killed it, or nothing moves any more.
        """
        try:
            first = self._start()
            self._wait(self._warm)
            segment = self._see_it_recover(self._kill_segment())
            self._wait(lambda: self._caught_up(segment) or self._nearly_done())
            killed = self._kill_process(first)
            process = self._start_again(killed)
            self._finish()
        finally:
            if self._child is not None:
                self._child.kill()
        proof = prove(self._settings, self._home.log(_VICTIM))
        return {
            **proof,
            "seed": self._settings.seed,
            "seconds": self._now(),
            "segment": segment,
            "process": process,
            "events": [asdict(event) for event in self._view.events],
        }

    # -- the acts

    def _start(self) -> Child:
        plan = {"segments": [{"operators": names} for names in _SEGMENTS]}
        self._plan.write_text(json.dumps(plan), encoding="utf-8")
        child = self._spawn()
        self._tell(
            f"started `tidelock run` (pid {child.pid}): {len(_SEGMENTS)} segments, an epoch every two seconds"
        )
        return child

    def _kill_segment(self) -> dict[str, Any]:
        self._lay_switch()
        self._wait(lambda: self._deaths() > 0)
        at, before = self._now(), self._view.epochs()
        self._tell(f"killing the Python workers of segment {_VICTIM} (SIGKILL), until Spark gives it up")
        self._wait(lambda: ("segment failed", _VICTIM) in self._news)
        return {"name": _VICTIM, "kills": self._deaths(), "at": at, "before": before}

    def _see_it_recover(self, killed: Mapping[str, Any]) -> dict[str, Any]:
        self._wait(lambda: ("segment recovered", _VICTIM) in self._news)
        failed, recovered = (self._seconds_of(f"segment {what}") for what in ("failed", "recovered"))
        seconds, before, after = round(recovered - failed, 1), killed["before"], self._view.epochs()
        went = ", ".join(f"{name} from {before[name]} to {after[name]}" for name in after if name != _VICTIM)
        self._tell(f"{_VICTIM} is back, {seconds:.1f} s after its query failed; since the kill {went} epochs")
        return {**killed, "failed_at": failed, "recovered_at": recovered, "seconds": seconds, "after": after}

    def _seconds_of(self, kind: str) -> float:
        return round(self._news[kind, _VICTIM] - self._began, 1)

    def _kill_process(self, child: Child) -> dict[str, Any]:
        at = self._now()
        child.kill()
        self._look()
        self._mark("killed")
        self._tell(f"killed the whole process, Python and JVM (pid {child.pid}, SIGKILL), after {self._arrived()}")
        return {"pid": child.pid, "exit_code": child.exit_code, "at": at, "epoch": self._delivered - 1}

    def _start_again(self, killed: Mapping[str, Any]) -> dict[str, Any]:
        child = self._spawn()
        self._mark("restarting")
        self._tell(f"started it again with the same command (pid {child.pid})")
        self._wait(lambda: self._delivered > killed["epoch"] + 1)
        recovered = self._now()
        seconds = round(recovered - killed["at"], 1)
        self._tell(f"epoch {killed['epoch'] + 1} has arrived, {seconds:.1f} s after the kill")
        return {**killed, "resumed_pid": child.pid, "recovered_at": recovered, "seconds": seconds}

    def _finish(self) -> None:
        child = self._child
        assert child is not None
        self._wait(child.finished)
        child.see_off()
        self._look()
        self._tell(f"the pipeline has ended by itself, after {self._arrived()}")
        self._tell("computing the same without Spark, to compare")

    def _warm(self) -> bool:
        """Whether all segments are in step after the start, or there is no more time to wait for that."""
        in_step = all(segment.lag <= 1 for segment in self._view.segments)
        epochs = self._settings.epochs
        return self._delivered >= max(1, epochs // 4) and (in_step or self._head.epochs >= epochs // 2)

    def _caught_up(self, segment: Mapping[str, Any]) -> bool:
        """Whether it has done what waited for it when it came back."""
        return self._victim.epochs >= int(segment["after"][self._head.name])

    def _nearly_done(self) -> bool:
        return self._head.epochs >= self._settings.epochs - 1

    # -- the switch

    def _lay_switch(self) -> None:
        """Put all files there at once, so that no worker finds only some of them."""
        aside = self._settings.home / "switch.aside"
        aside.mkdir()
        for number in range(_ATTEMPTS):
            (aside / str(number)).touch()
        aside.rename(self._settings.switch)

    def _deaths(self) -> int:
        """How many workers have taken a file away and died."""
        switch = self._settings.switch
        return _ATTEMPTS - len(list(switch.glob("*"))) if switch.exists() else 0

    # -- the process

    @property
    def _plan(self) -> Path:
        return self._settings.home / "plan.json"

    def _spawn(self) -> Child:
        arguments = ["run", f"{PIPELINE}:pipeline", "--home", str(self._home.root), "--plan", str(self._plan)]
        arguments += ["--epochs", str(self._settings.epochs), "--master", f"local[{_CORES},{_ATTEMPTS}]", "--json"]
        for name, value in _spark_settings(self._settings.home / "scratch").items():
            arguments += ["--conf", f"{name}={value}"]
        self._child_began = time.time()
        self._child = Child(arguments, self._settings.home / "run.txt", self._settings.to_environment())
        return self._child

    # -- looking and telling

    def _wait(self, reached: Callable[[], bool]) -> None:
        """Look again and again until the condition holds, as long as the process is well."""
        seen, since = self._look(), time.monotonic()
        while not reached():
            self._check_alive(reached)
            if time.monotonic() - since > _PATIENCE:
                raise ChildFailed(f"nothing new for {_PATIENCE:.0f} s; see run.txt in {self._settings.home}")
            time.sleep(_LOOK_EVERY)
            now = self._look()
            if now != seen:
                seen, since = now, time.monotonic()

    def _check_alive(self, reached: Callable[[], bool]) -> None:
        if self._child is not None and self._child.finished():
            self._look()
            if not reached():
                raise ChildFailed("the pipeline was through before the demo was: give it more --epochs")

    def _look(self) -> tuple[int, ...]:
        status = self._watch.status(self._child_began)
        for told in status["segments"] if status else ():
            self._view.segment(told["name"]).take(told)
        if self._deaths() > 0 and ("segment failed", _VICTIM) not in self._news:
            self._victim.state = "killed"
        self._delivered = len(delivered(self._settings.database).rankings)
        for event in self._watch.news():
            self._take(event)
        self._view.seconds = self._now()
        self._screen.show(self._view)
        return *self._view.epochs().values(), len(self._view.events)

    def _take(self, event: Mapping[str, Any]) -> None:
        self._news[event["kind"], event["segment"]] = event["at"]
        who = f"{event['segment']}: " if event["segment"] else ""
        text = shortened(f"{event['kind']}: {who}{event['text']}", _LONGEST_TEXT)
        self._add(DemoEvent(round(event["at"] - self._began, 1), text))

    def _tell(self, text: str) -> None:
        self._add(DemoEvent(self._now(), text, loud=True))
        self._screen.show(self._view)

    def _add(self, event: DemoEvent) -> None:
        self._view.events.append(event)
        self._screen.tell(event)

    def _mark(self, state: str) -> None:
        for segment in self._view.segments:
            segment.state = state

    def _arrived(self) -> str:
        return f"{self._delivered} of {self._settings.epochs} epochs had arrived"

    def _now(self) -> float:
        return round(time.time() - self._began, 1)


def _spark_settings(scratch: Path) -> dict[str, str]:
    return {
        # It runs for a minute: compiling well would cost more than it brings.
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.driver.extraJavaOptions": f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Djava.io.tmpdir='{scratch}'",
        # A killed JVM cannot clean up: what it leaves behind stays in one place. A socket's path must be short.
        "spark.python.unix.domain.socket.enabled": "false",
        "spark.local.dir": str(scratch),
        "spark.sql.warehouse.dir": str(scratch),
    }
